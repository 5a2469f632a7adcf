"""`tallymark tail` in a terminal: the real command, the real query service, the real log."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tallymark import log as logs
from tallymark.log.protocol import Outgoing
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.testing import until

SERVE = "import sys; from tallymark.query.service import run; from tallymark.settings import load; "
SERVE += "sys.exit(run(load(environment={}, flags={'data': sys.argv[1], 'query.port': sys.argv[2]})))"
HOSTILE = "\x1b]0;owned\x07\x1b[2J[red]\x9b31m\r\n"


class Scene:
    """A query service on one port, which can be stopped and started again, and a log to write to."""

    def __init__(self, folder: Path, build) -> None:
        self.folder, self.build = folder, build
        self.settings = Settings(data=str(folder))
        open_store(self.settings).close()
        self.log = logs.open_writer(self.settings, "events")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.processes: list[subprocess.Popen] = []
        self.start()

    def start(self) -> None:
        place = self.settings.run_folder / "query.json"
        place.unlink(missing_ok=True)
        self.service = subprocess.Popen([sys.executable, "-c", SERVE, str(self.folder), str(self.port)])
        self.processes.append(self.service)
        until(place.exists, "the service")

    def stop(self) -> None:
        self.service.send_signal(signal.SIGTERM)
        assert self.service.wait(20) == 0

    def tail(self, *arguments: str, out=None) -> subprocess.Popen:
        """Follows when this returns; stdout goes to a file, since pipes fill up."""
        self.out, self.err = self.folder / "out", self.folder / "err"
        command = [sys.executable, "-m", "tallymark", "tail", "--url", f"http://127.0.0.1:{self.port}", *arguments]
        with self.out.open("wb") as to, self.err.open("wb") as remarks:
            environment = {**os.environ, "TERM": "xterm"}
            running = subprocess.Popen(command, stdout=out or to, stderr=remarks, env=environment)
        self.processes.append(running)
        return running

    def send(self, *events: dict) -> None:
        count, content = self.build.payload(events)
        self.log.append([Outgoing(0, content, count)])

    def lines(self) -> list[str]:
        return self.out.read_bytes().decode().split("\n")[:-1]

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(20)
        self.log.close()


@pytest.fixture
def scene(tmp_path, build):
    made = Scene(tmp_path, build)
    yield made
    made.close()


def view(number, **props):
    return {"event": "view", "id": str(number), "props": props}


def test_one_line_an_event_nothing_hostile_reconnects_and_ctrl_c_is_no_failure(scene):
    running = scene.tail("view", "--where", "ms > 1", "--rate", "50")
    until(lambda: b"waiting" in scene.err.read_bytes(), "the tail")
    scene.send(view(1, video="A", ms=5), view(2, video="B", ms=1), {"event": "other", "id": "3", "props": {"ms": 9}})
    until(lambda: scene.lines() == ["12:30:00.000  view      ms=5  video=A"], "the one event that matches")
    scene.send(view(4, **{"video": HOSTILE, f"key{HOSTILE[:4]}": "x", "ms": 7}))
    until(lambda: len(scene.lines()) == 2, "the hostile event")
    hostile = scene.lines()[1]
    assert hostile.isprintable()
    assert "\\u001b]0;owned\\u0007\\u001b[2J[red]\\u009b31m\\r\\n" in hostile

    scene.stop()
    until(lambda: b"connection was lost" in scene.err.read_bytes(), "the remark")
    scene.start()
    numbers = iter(range(100, 10_000))
    # It follows again at some moment, and shows what is sent from then on.
    until(lambda: scene.send(view(next(numbers), ms=2)) or len(scene.lines()) > 2, "events after the restart")

    running.send_signal(signal.SIGINT)
    assert running.wait(20) == 0
    said = scene.err.read_text().splitlines()[-1]
    assert "passed" in said
    assert "shown" in said


def test_json_is_one_object_a_line_and_a_closed_pipe_ends_it(scene):
    running = scene.tail("--output", "json", out=subprocess.PIPE)
    numbers = iter(range(10_000))
    first: list[bytes] = []

    def sent_until_shown() -> bool:
        scene.send(view(next(numbers), video=HOSTILE, decimals=0.1))
        os.set_blocking(running.stdout.fileno(), False)
        first.extend(line for line in [running.stdout.readline()] if line)
        return bool(first)

    until(sent_until_shown, "an event")
    event = json.loads(first[0])
    assert event["props"] == {"video": HOSTILE, "decimals": 0.1}
    assert first[0].decode().rstrip("\n").isprintable()
    running.stdout.close()
    until(lambda: scene.send(view(next(numbers))) or running.poll() is not None, "the end")
    assert running.returncode == 0


def test_what_is_wrong_is_one_line(scene):
    for arguments, said in (
        (["--where", "a ~ 1"], "unexpected character '~'"),
        (["--rate", "0"], "rate = '0' is not a whole number from 1"),
        (["--rate", "1000"], "exceeds 200"),
        (["li ke"], "is not the name of an event"),
    ):
        running = scene.tail(*arguments)
        assert running.wait(20) == 1
        (line,) = scene.err.read_text().splitlines()
        assert line.startswith("tallymark tail: ")
        assert said in line
    scene.stop()
    running = scene.tail()
    assert running.wait(20) == 1
    assert "start it with `tallymark up`" in scene.err.read_text()
