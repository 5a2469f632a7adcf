"""`tallymark up` refuses what cannot work before it starts anything."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tallymark.cli import main
from tallymark.client.transport import HttpTransport, Request
from tallymark.commands.up import troubled, unready
from tallymark.supervisor.lock import FolderLock
from tallymark.testing import until


def test_a_port_in_use_is_refused_with_the_way_out(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["up", "--data", str(tmp_path / "d"), "--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert f"port {port} on 127.0.0.1 is in use" in told
    assert "--port" in told
    assert told.count("\n") == 1


def test_a_folder_in_use_is_refused_even_if_the_port_is_taken_too(capsys, tmp_path):
    # The usual case: the same command typed twice. The folder is the better explanation.
    with FolderLock(tmp_path) as lock, socket.create_server(("127.0.0.1", 0)) as taken:
        lock.write(address="127.0.0.1:8080", children={})
        assert main(["up", "--data", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 1
    assert "already runs on" in capsys.readouterr().err


def test_a_wrong_file_of_meters_is_refused_before_anything_starts(capsys, tmp_path):
    (tmp_path / "m.yaml").write_text("meters:\n  - {name: a}\n")
    assert main(["up", "--data", str(tmp_path / "d"), "--meters", str(tmp_path / "m.yaml")]) == 1
    assert "m.yaml:2:" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::", "example.org"])
def test_only_loopback_is_served(capsys, host):
    assert main(["up", "--host", host]) == 2
    assert host in capsys.readouterr().err


def test_a_data_folder_that_cannot_be_made_is_refused(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert main(["up", "--data", str(tmp_path / "file" / "d")]) == 1
    assert "--data" in capsys.readouterr().err


def test_what_is_not_ready_is_named_with_its_trouble():
    report = {
        "ready": False,
        "collector": {"ready": True},
        "keeper": {"ready": False, "troubles": ["no disk"]},
        "query": {"ready": False},
    }
    assert troubled(report) == ["keeper (no disk)", "query"]
    assert troubled(None) == []


def test_ready_is_when_every_chosen_role_is_whatever_the_status_says():
    # On a cluster a collector answers 200 while its neighbours start.
    report = {"ready": True, "collector": {"ready": True}, "query": {"ready": False, "detail": "no store"}}
    assert unready(report, ("collector", "query")) == ["query (no store)"]
    report["query"] = {"ready": True}
    assert unready(report, ("collector", "query")) == []
    assert unready(report, ("collector", "query", "keeper")) == ["keeper"]
    assert unready(None, ("collector",)) == ["collector"]


@pytest.mark.parametrize(
    ("roles", "told"),
    [
        ("colector", "no role 'colector'; did you mean collector?"),
        ("driver", "there are collector, query, keeper, pipeline"),
        (",", "--roles names none"),
    ],
)
def test_a_role_that_is_none_is_refused(capsys, roles, told):
    assert main(["up", "--roles", roles]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--roles", "keeper", "--meters", "m.yaml"], "--meters"), (["--roles", "query", "--demo"], "--demo")],
)
def test_what_needs_another_role_is_refused(capsys, tmp_path, arguments, told):
    assert main(["up", "--data", str(tmp_path / "d"), *arguments]) == 2
    assert told in capsys.readouterr().err


def test_what_is_not_installed_is_named_with_its_extras(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tallymark.commands.up.is_installed", lambda name: name != "confluent_kafka")
    kafka = ["--set", "log.kind=kafka", "--set", "log.brokers=127.0.0.1:1", "--data", str(tmp_path / "d")]
    assert main(["up", "--roles", "collector,keeper", *kafka]) == 1
    assert 'pip install "tallymark[collector,keeper,cluster]"' in capsys.readouterr().err


class Up:
    """`tallymark up --roles …` as a process."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        self.out = folder / f"out-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "tallymark", "up", "--data", str(folder / "d"), *arguments]
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)

    @property
    def said(self):
        return self.out.read_text()

    def until_ready(self):
        until(lambda: "is ready" in self.said or self.process.poll() is not None, "ready", deadline_s=60)
        assert "is ready" in self.said, self.said
        return self

    def files(self):
        return sorted(path.name for path in (self.folder / "d" / "run").glob("*.json"))

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def test_only_the_chosen_roles_run_and_what_dies_comes_back(tmp_path):
    up = Up(tmp_path, "--roles", "query,keeper")
    try:
        up.until_ready()
        assert up.files() == ["keeper.json", "query.json", "up.json"]
        assert "Tallymark is ready (query, keeper) at http://127.0.0.1:" in up.said
        place = tmp_path / "d" / "run" / "keeper.json"
        first = json.loads(place.read_bytes())["pid"]
        os.kill(first, signal.SIGKILL)

        def another() -> bool:
            return place.exists() and json.loads(place.read_bytes())["pid"] != first

        until(another, "the keeper is started again", deadline_s=60)
    finally:
        up.close()
    assert up.process.returncode == 0


def test_two_with_names_of_their_own_share_a_data_folder(tmp_path):
    ups = [Up(tmp_path, "--roles", "query", "--set", f"instance={name}") for name in ("a", "b")]
    try:
        for up in ups:
            up.until_ready()
        assert ups[0].files() == ["query-a.json", "query-b.json", "up-a.json", "up-b.json"]
        address = json.loads((tmp_path / "d" / "run" / "query-a.json").read_bytes())["address"]
        transport = HttpTransport(f"http://{address}")
        listed = transport.exchange(Request("GET", "/v1/status")).json()["roles"]
        transport.close()
        assert [each["instance"] for each in listed if each["role"] == "query"] == ["a", "b"]
        again = Up(tmp_path, "--roles", "query", "--set", "instance=a")
        assert again.process.wait(60) == 1
        assert "--set instance=…" in again.said
        again.close()
    finally:
        for up in ups:
            up.close()
