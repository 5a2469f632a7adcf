"""A real Tallymark for tests: `tallymark up` as a process, and hands to ask, hurt, stop and start it again."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest

from lab.process import die_with_parent
from tallymark.client.transport import HttpTransport, NoAnswer, Request

COMMAND = (sys.executable, "-m", "tallymark")
# Generous: on a quiet machine `up` is ready within 15 s, at a load average of 20 on two cores it took 200 s.
START_S, STOP_S, GONE_S = 600.0, 120.0, 60.0
TAIL_LINES = 25
REQUEST_EVENTS = 1_000
WORKING = re.compile(r"pyspark\.worker")


class Running:
    """One data folder and the `tallymark up` on it. Everything goes through commands, HTTP and signals."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, object] | None = None,
        roles: str | None = None,
        profile: Path | None = None,
    ) -> None:
        """Everything on one machine; with a profile, some `roles` of a cluster."""
        self.folder = folder
        self._which = [*(["--roles", roles] if roles else []), *(["--profile", str(profile)] if profile else [])]
        self.data = folder / "data"
        self.settings = dict(settings or {})
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._output = folder / "up.out"
        self._store = self.data / "store" / "tallymark.db"
        self._process: subprocess.Popen[bytes] | None = None
        self._commands: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)

    # Starting and stopping

    def start(self, *, environment: Mapping[str, str] | None = None) -> "Running":
        """Returns when the ready line is there."""
        assert self._process is None, "already started"
        begin = self._output.stat().st_size if self._output.exists() else 0
        command = [*COMMAND, "up", "--data", str(self.data), "--port", str(self.port), *self._which]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        with open(self._output, "ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment or clean_environment(),
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,
            )
        self.wait_until(lambda: "Tallymark is ready" in self._said(begin), seconds=START_S, what="`tallymark up` ready")
        return self

    def stop(self, *, within_s: float = STOP_S) -> float:
        """Ctrl-C, as a person does it; the seconds it took."""
        assert self._process is not None, "not started"
        begun = time.monotonic()
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"`tallymark up` did not stop within {within_s:g} s\n{self.describe()}")
        self._process = None
        assert code == 0, f"`tallymark up` ended with code {code}\n{self.describe()}"
        return time.monotonic() - begun

    def close(self) -> None:
        """Nothing of it is left afterwards, whatever happened."""
        for command in self._commands:
            if command.poll() is None:
                command.kill()
            command.wait()
        if self._process is not None:
            self.kill_everything()

    @property
    def started(self) -> bool:
        return self._process is not None

    # Hurting it

    def pid(self, role: str) -> int | None:
        """Of a role that is ready; None while it is not."""
        try:
            pid = int(json.loads((self.data / "run" / f"{role}.json").read_bytes())["pid"])
        except (OSError, ValueError, KeyError):
            return None
        return pid if is_alive(pid) else None

    def jvm(self) -> psutil.Process | None:
        """Spark's Java process."""
        pipeline = self.pid("pipeline")
        return next((each for each in _children(pipeline) if each.name() == "java"), None) if pipeline else None

    def python_workers(self) -> list[psutil.Process]:
        """The processes in which Spark runs tasks, and the daemon they are forked from; [] while there are none.

        Found by their folder: workers whose daemon was killed go on, and are nobody's children.
        """
        working = [each for each in psutil.process_iter() if WORKING.search(_command_line(each))]
        return [each for each in working if _folder(each) == self.folder.resolve()]

    def kill(self, role: str) -> int:
        """kill -9, once the role is there to be killed."""
        pid: int = self.wait_until(lambda: self.pid(role), seconds=START_S, what=f"{role} running")
        _kill(pid)
        return pid

    def kill_everything(self) -> None:
        """The supervisor first, so that it repairs nothing, then all that came of it; returns when all are gone."""
        assert self._process is not None, "not started"
        everyone = [*_children(self._process.pid)]
        self._process.kill()
        for process in everyone:
            _kill(process.pid)
        self._process.wait()
        self._process = None
        self.wait_until(
            lambda: not any(is_alive(each.pid) for each in everyone), seconds=GONE_S, what="all processes gone"
        )

    def copy_store(self, target: Path) -> None:
        """A consistent copy of the store, also while it is written."""
        with closing(sqlite3.connect(self._store, timeout=30)) as store, closing(sqlite3.connect(target)) as copy:
            store.backup(copy)

    def put_back_store(self, source: Path) -> None:
        """The store as it was when it was copied; only while nothing runs."""
        for suffix in ("-wal", "-shm"):
            self._store.with_name(self._store.name + suffix).unlink(missing_ok=True)
        shutil.copy(source, self._store)

    # Asking

    def command(self, *arguments: str, code: int | None = 0, timeout_s: float = 300.0) -> subprocess.CompletedProcess:
        """`tallymark …` against this one; fails unless it ends with `code`."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self._client_environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if code is not None and done.returncode != code:
            pytest.fail(
                f"`tallymark {' '.join(arguments)}` ended with code {done.returncode}, not {code}\n"
                f"{done.stdout}\n{done.stderr}\n{self.describe()}"
            )
        return done

    def ask(self, *arguments: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.command(*arguments, "--output", "json").stdout)

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A command that goes on beside the test; its output goes to `commands.out`."""
        with open(self.folder / "commands.out", "ab") as output:
            started = subprocess.Popen(
                [*COMMAND, *arguments], cwd=self.folder, env=self._client_environment(), stdout=output, stderr=output
            )
        self._commands.append(started)
        return started

    def get(self, path: str, **parameters: Any) -> Any:
        status, content = self.exchange("GET", path + (f"?{urlencode(parameters, doseq=True)}" if parameters else ""))
        assert status == 200, f"GET {path} {parameters} was answered {status} {content}"
        return content

    def exchange(self, method: str, path: str, content: Any = None, *, timeout_s: float = 60.0) -> tuple[int, Any]:
        """Status and JSON of the answer; NoAnswer if there is none."""
        transport = HttpTransport(self.url, timeout_s=timeout_s)
        body = None if content is None else content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            answer = transport.exchange(Request(method, path, body, headers))
        finally:
            transport.close()
        return answer.status, answer.json()

    def text(self, path: str) -> str:
        """The body of an answer, as it is."""
        transport = HttpTransport(self.url)
        try:
            answer = transport.exchange(Request("GET", path))
        finally:
            transport.close()
        assert answer.status == 200, f"GET {path} was answered {answer.status} {answer.body!r}"
        return answer.body.decode()

    def metric(self, name: str) -> float:
        """One number without labels, as Prometheus would read it."""
        (line,) = (line for line in self.text("/metrics").splitlines() if line.startswith(f"{name} "))
        return float(line.split()[1])

    def put_meter(self, **definition: Any) -> None:
        status, told = self.exchange("PUT", f"/v1/meters/{definition['name']}", definition)
        assert status in (200, 201), told

    def send(self, events: Iterable[dict[str, Any]], *, wait: bool = True, sent_at: Any = None) -> None:
        """All of them accepted, in requests of at most a thousand; with `wait` they are counted, too."""
        events = list(events)
        path = "/v1/events?wait=applied&timeout=50" if wait else "/v1/events"
        for start in range(0, len(events), REQUEST_EVENTS):
            batch = events[start : start + REQUEST_EVENTS]
            status, told = self.exchange("POST", path, {"sent_at": sent_at, "events": batch} if sent_at else batch)
            assert status == (200 if wait else 202), f"{status} {told}\n{self.describe()}"
            assert told["accepted"] == len(batch), told

    def total(self, meter: str, **where: Any) -> dict[str, Any]:
        return dict(self.get(f"/v1/meters/{meter}/total", **where, consistency="fresh")["value"])

    def series(self, meter: str, start_ms: int, end_ms: int, step: str, **where: Any) -> dict[int, dict[str, Any]]:
        """Bucket -> values, without the buckets in which nothing happened."""
        parameters = {"from": start_ms, "to": end_ms, "step": step, **where, "consistency": "fresh"}
        (only,) = self.get(f"/v1/meters/{meter}/series", **parameters)["series"]
        return {to_ms(point.pop("time")): point for point in only["points"] if point["count"]}

    def status(self) -> dict[str, Any]:
        return dict(self.get("/v1/status"))

    def settled(self, *, seconds: float = 120.0) -> dict[str, Any]:
        """The status once nothing is in flight."""

        def at_rest() -> dict[str, Any] | None:
            try:
                status = self.status()
            except (NoAnswer, AssertionError):
                return None
            return status if status["in_flight"] == 0 else None

        return dict(self.wait_until(at_rest, seconds=seconds, what="nothing in flight"))

    # Waiting and explaining

    def wait_until(self, condition: Any, *, seconds: float, what: str) -> Any:
        """The condition's first true value; a failure shows what Tallymark said."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if self._process is not None and self._process.poll() is not None:
                pytest.fail(f"`tallymark up` ended with code {self._process.poll()}\n{self.describe()}")
            if time.monotonic() > deadline:
                pytest.fail(f"not within {seconds:g} s: {what}\n{self.describe()}")
            time.sleep(0.05)
        return found

    def describe(self) -> str:
        """The ends of what it printed and logged."""
        files = [self._output, self.folder / "commands.out", *sorted((self.data / "logs").glob("*.log"))]
        return "\n".join(f"--- {file.name}\n{_tail(file)}" for file in files if file.exists())

    def _said(self, begin: int) -> str:
        return self._output.read_bytes()[begin:].decode(errors="replace")

    def _client_environment(self) -> dict[str, str]:
        return {**clean_environment(), "TALLYMARK_URL": self.url}


def clean_environment() -> dict[str, str]:
    """Ours, without settings that a developer's shell may carry."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TALLYMARK_")}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def to_ms(moment: str) -> int:
    from tallymark.load.check import to_ms as convert

    found = convert(moment)
    assert found is not None
    return found


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _children(pid: int) -> list[psutil.Process]:
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [each for each in found if is_alive(each.pid)]


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _folder(process: psutil.Process) -> Path | None:
    try:
        return Path(process.cwd())
    except psutil.Error:
        return None


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _tail(file: Path) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-TAIL_LINES:])
