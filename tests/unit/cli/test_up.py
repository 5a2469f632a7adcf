"""`tallymark up` refuses what cannot work before it starts anything."""

import socket

import pytest

from tallymark.cli import main
from tallymark.commands.up import troubled, unready
from tallymark.supervisor.lock import FolderLock


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
        (",", "--roles is empty"),
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
