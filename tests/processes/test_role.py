"""A role as a process: it announces itself, and stops when asked or when its parent is gone."""

import json
import logging
import signal
import subprocess
import sys

import pytest

from tallymark.cli import main
from tallymark.role import Role, process, write_atomically
from tallymark.settings import Settings
from tallymark.testing import until

SCRIPT = """
import sys
from tallymark.role import Role
from tallymark.settings import Settings
with Role(Settings(data=sys.argv[1]), "keeper") as role:
    role.announce("127.0.0.1:1")
    role.publish_metrics()
    print("ready", flush=True)
    assert role.stopping.wait(30)
print("stopped", flush=True)
"""


@pytest.fixture
def role(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TALLYMARK_SUPERVISED": "1"},
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    if not process.stdin.closed:
        process.stdin.close()


def test_it_says_where_it_is_and_takes_that_back_at_the_end(role, tmp_path):
    place = tmp_path / "run" / "keeper.json"
    facts = json.loads(place.read_text())
    assert (facts["pid"], facts["address"]) == (role.pid, "127.0.0.1:1")
    role.send_signal(signal.SIGTERM)
    assert role.wait(10) == 0
    assert not place.exists()


def test_the_end_of_its_parent_ends_it(role):
    role.stdin.close()
    assert role.wait(10) == 0
    assert role.stdout.read() == "stopped\n"


@pytest.fixture
def own_process():
    """A role owns the signals and the log of its process: a test that plays one gives them back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    loggers = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = loggers
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_second_one_on_the_same_folder_is_refused_and_takes_nothing_from_the_first(role, tmp_path, capsys):
    metrics = until(lambda: list((tmp_path / "run").glob("*.prom")), "the metrics of the first")
    assert main(["keeper", "--data", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"keeper already runs on {tmp_path} (pid {role.pid})" in told
    assert "--set instance=…" in told
    assert json.loads((tmp_path / "run" / "keeper.json").read_text())["pid"] == role.pid
    assert all(file.exists() for file in metrics)


@pytest.mark.usefixtures("own_process")
def test_one_can_follow_another_that_was_killed(role, tmp_path):
    role.kill()
    role.wait()
    with Role(Settings(data=str(tmp_path)), "keeper"):
        # What the killed one left behind is not believed any more.
        assert not (tmp_path / "run" / "keeper.json").exists()
        assert not (tmp_path / "run" / "keeper.prom").exists()


@pytest.mark.usefixtures("own_process")
def test_a_full_disk_is_told_once_and_does_not_end_the_metrics(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(process, "METRICS_INTERVAL_S", 0.01)
    metrics = tmp_path / "run" / "keeper.prom"
    with Role(Settings(data=str(tmp_path)), "keeper") as role:
        tries = []

        def write(path, content, write=write_atomically):
            tries.append(path)
            if len(tries) < 5:
                raise OSError(28, "No space left on device")
            write(path, content)

        monkeypatch.setattr(process, "write_atomically", write)
        logging.getLogger().addHandler(caplog.handler)
        role.publish_metrics()
        until(metrics.exists, "the metrics after the disk has room again")
    assert [record.getMessage() for record in caplog.records].count(
        f"{metrics} is no longer written: [Errno 28] No space left on device"
    ) == 1
    assert not metrics.exists()


@pytest.mark.usefixtures("own_process", "role")
def test_one_with_a_name_of_its_own_shares_the_folder(tmp_path):
    with Role(Settings(data=str(tmp_path), instance="b"), "keeper") as second:
        second.announce()
        assert {file.name for file in (tmp_path / "run").glob("*.json")} == {"keeper.json", "keeper-b.json"}
    assert (tmp_path / "run" / "keeper.json").exists()


@pytest.mark.parametrize("name", ["../b", "a/b", ".", "-a", "a b", "x" * 65, "ü"])
def test_a_name_that_makes_no_file_name_is_refused(tmp_path, capsys, name):
    assert main(["keeper", "--data", str(tmp_path), f"--set=instance={name}"]) == 2
    assert f"instance = {name!r}" in capsys.readouterr().err


def test_roles_of_several_machines_beat_by_names_of_their_own(monkeypatch):
    settings = Settings()
    assert process.heartbeat_name(settings, "query", "127.0.0.1:8081") == "query"
    settings.store.kind = "cassandra"
    monkeypatch.setattr("socket.gethostname", lambda: "host-1")
    assert process.heartbeat_name(settings, "keeper") == "keeper/host-1"
    assert process.heartbeat_name(settings, "query", "127.0.0.1:8081") == "query/host-1:8081"
    settings.instance = "a"
    assert process.heartbeat_name(settings, "query", "127.0.0.1:8081") == "query/a"
