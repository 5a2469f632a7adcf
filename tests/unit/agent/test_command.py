"""`tallymark agent`: what is refused before anything starts, and the one snapshot of --once."""

import json
import os
import socket

import pytest

from tallymark.cli import main
from tallymark.commands import agent
from tallymark.supervisor.lock import FolderLock


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """No `tallymark.toml` or variable of this machine takes part."""
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("TALLYMARK_")]:
        monkeypatch.delenv(variable)


@pytest.fixture
def taken():
    """An UDP address in use."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{other.getsockname()[1]}"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--every", "0"], "--every '0' is not a whole number of seconds"),
        (["--every", "1.5s"], "write 1s, 10s or 1m"),
        (["--every", "61m"], "at most 60m"),
        (["--statsd", "8125"], "'8125' is not of the form HOST:PORT"),
        (["--scrape", "localhost:9100"], "'localhost:9100' is not an address that can be scraped"),
        (["--url", "ftp://collector"], "ftp://collector"),
        (["--url", "http://a,http://a"], "twice"),
        (["--server", "x" * 129], "129 characters"),
        (["--tenant", "Acme"], "--tenant: 'Acme' cannot name a tenant"),
        (["--tenant", ""], "--tenant: '' cannot name a tenant"),
        (["--set", "agent.tenant=Acme"], "agent.tenant: 'Acme' cannot name a tenant"),
        (["--process", "\udcff"], "--process '\\udcff' is not UTF-8"),
        (["--process", "x" * 103], "103 characters; up to 102 fit"),
        (["--set", "agent.disks=/x/\udcff"], "agent.disks '/x/\\udcff' is not UTF-8"),
        (["--set", "agent.disks=/" + "x" * 200], "201 characters"),
        (["--set", "agent.every_s=0"], "agent.every_s = 0 (flag) must be 1 to 3600"),
        (["--sever", "x"], "did you mean --server?"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(capsys, tmp_path, monkeypatch, arguments, told):
    monkeypatch.setattr(agent, "_supervise", lambda *_: pytest.fail("it was taken for right usage"))
    assert main(["agent", *arguments]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "tallymark-data").exists()


@pytest.mark.parametrize("more", [[], ["--once"]])
def test_a_port_in_use_is_refused_with_the_way_out(capsys, taken, more):
    assert main(["agent", "--statsd", taken, *more]) == 1
    said = capsys.readouterr().err
    assert f"UDP port {taken.rpartition(':')[2]} on 127.0.0.1 is in use" in said
    assert "--statsd" in said
    assert said.count("\n") == 1


def test_the_same_agent_twice_is_refused_even_if_the_port_is_taken_too(capsys, tmp_path, taken):
    folder = tmp_path / "d" / "agent"
    folder.mkdir(parents=True)
    with FolderLock(folder):
        assert main(["agent", "--data", str(tmp_path / "d"), "--statsd", taken]) == 1
    assert "already runs on" in capsys.readouterr().err


def test_without_psutil_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setattr(agent.importlib.util, "find_spec", lambda name: None)
    assert main(["agent", "--once"]) == 1
    assert 'pip install "tallymark[agent]"' in capsys.readouterr().err


def test_a_data_folder_that_cannot_be_made_is_refused(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert main(["agent", "--data", str(tmp_path / "file"), "--statsd", "off"]) == 1
    assert "--data" in capsys.readouterr().err


def test_once_prints_one_snapshot_for_programs_and_for_people(capsys):
    assert main(["agent", "--once", "--server", "web-1", "--output", "json", "--scrape", "http://127.0.0.1:9/"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["server"] == "web-1"
    assert 0 <= told["values"]["cpu"] <= 1
    assert told["values"]["agent_scrapes_failed"] == 2
    assert told["refused"] == {}
    assert main(["agent", "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["metric", "value"]
    assert {"cpu", "mem_used", "load1", "processes"} <= {line.split()[0] for line in lines[1:]}


def test_flags_win_over_the_file_and_the_url_comes_from_the_environment(tmp_path, monkeypatch):
    (tmp_path / "tallymark.toml").write_text('[agent]\nserver = "file"\nevery_s = 5\nscrape = ["http://a/metrics"]\n')
    monkeypatch.setenv("TALLYMARK_URL", "http://a:1, http://b:2")
    seen = []
    monkeypatch.setattr(agent, "_supervise", lambda settings, section: seen.append(section) or 0)
    assert main(["agent", "--server", "flag", "--process", "nginx"]) == 0
    (found,) = seen
    assert (found.server, found.every_s, found.scrape) == ("flag", 5, ["http://a/metrics"])
    assert found.urls == ["http://a:1", "http://b:2"]
    assert found.processes == ["nginx"]
    assert main(["agent", "--every", "2m", "--url", "http://c:3", "--statsd", "off"]) == 0
    assert (seen[1].every_s, seen[1].urls, seen[1].statsd) == (120, ["http://c:3"], "off")
    assert seen[1].server == "file"


def test_the_tenant_is_the_flags_else_the_files_else_the_environments(tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(agent, "_supervise", lambda settings, section: seen.append(section.tenant) or 0)
    assert main(["agent"]) == 0
    monkeypatch.setenv("TALLYMARK_TENANT", "environment")
    assert main(["agent"]) == 0
    (tmp_path / "tallymark.toml").write_text('[agent]\ntenant = "file"\n')
    assert main(["agent"]) == 0
    assert main(["agent", "--tenant", "flag"]) == 0
    assert seen == ["", "environment", "file", "flag"]
    (tmp_path / "tallymark.toml").unlink()
    monkeypatch.setenv("TALLYMARK_TENANT", "Acme")
    assert main(["agent"]) == 2
    assert "TALLYMARK_TENANT: 'Acme' cannot name a tenant" in capsys.readouterr().err
