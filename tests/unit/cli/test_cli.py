"""What every command has in common: help, exit codes, one line for a mistake, few imports."""

import os
import signal
import subprocess
import sys
from importlib import import_module

import pytest

from tallymark.cli import COMMANDS, main
from tallymark.commands.command import Command, Group

HEAVY = ("pyspark", "pyarrow", "polars", "numpy", "granian", "yaml", "rich", "prometheus_client")


def every_command():
    for name, (module, _) in COMMANDS.items():
        found = import_module(f"tallymark.commands.{module}").COMMANDS[name]
        if isinstance(found, Group):
            yield [name], found
            yield from (([name, sub], command) for sub, command in found.commands.items())
        else:
            yield [name], found


def test_no_argument_prints_every_command_and_ends_with_0(capsys):
    assert main([]) == 0
    told = capsys.readouterr()
    assert all(f"  {name} " in told.out for name in COMMANDS)
    assert told.err == ""


@pytest.mark.parametrize("group", ["meters", "dlq"])
def test_the_summary_of_a_group_names_its_commands(group):
    module, summary = COMMANDS[group]
    found = import_module(f"tallymark.commands.{module}").COMMANDS[group]
    later = {"backfill", "recount"}
    assert sorted(summary.partition(": ")[2].split(", ")) == sorted(set(found.commands) - later)


@pytest.mark.parametrize("words", [words for words, _ in every_command()], ids=" ".join)
def test_every_command_has_help_with_an_example(words, capsys):
    for asked in ([*words, "--help"], ["help", *words]):
        assert main(asked) == 0
        told = capsys.readouterr().out
        assert "example:\n  tallymark " in told
    found = {tuple(words): command for words, command in every_command()}[tuple(words)]
    if isinstance(found, Command):
        assert "--output {table,json" in told


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["sned", "view"], "did you mean `tallymark send`?"),
        (["meters", "lst"], "did you mean `tallymark meters list`?"),
        (["send", "view", "--vlaue", "3"], "did you mean --value?"),
        (["total"], "METER"),
        (["total", "events", "event"], "'event' is not key=value"),
        (["total", "events", "--output", "xml"], "choose from 'table', 'json'"),
        (["top", "views", "-k", "many"], "invalid int value: 'many'"),
        (["send"], "tallymark send view video=A"),
        (["send", "view", "--file", "x"], "name an event, or a file"),
        (["settings", "--set", "log.partitoins=4"], "did you mean log.partitions?"),
        (["settings", "--set", "log.partitions=many"], "is not a whole number"),
        (["settings", "--profile", "/nowhere.toml"], "/nowhere.toml does not exist"),
        (["up", "--host", "0.0.0.0"], "no API keys yet"),
        (["total", "events", "--url", "ftp://x"], "http://127.0.0.1:8080"),
        (["--verzion"], "no option --verzion"),
    ],
)
def test_wrong_usage_is_one_line_with_the_way_out_and_code_2(arguments, hint, capsys):
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert hint in told.err
    assert told.err.startswith("tallymark")


def test_nobody_there_is_one_line_with_code_1(capsys):
    assert main(["total", "events", "--url", "http://127.0.0.1:1"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "127.0.0.1:1" in told
    assert "tallymark up" in told


@pytest.mark.parametrize(
    "words", [["send", "--help"], ["total", "events", "--url", "http://127.0.0.1:1"], ["settings"]]
)
def test_the_client_side_imports_nothing_heavy(words):
    program = (
        f"import sys; from tallymark.cli import main; main({words!r}); print(sorted({set(HEAVY)!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_missing_package_is_named_with_the_extra_that_brings_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "tallymark.meters.file", raising=False)
    (tmp_path / "m.yaml").write_text("meters: []")
    assert main(["meters", "check", str(tmp_path / "m.yaml")]) == 1
    assert 'needs the package yaml, which is not installed; pip install "tallymark[all]"' in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error():
    program = "from tallymark.cli import main; import sys; sys.exit(main(['settings']))"
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.close()
    assert writer.stderr is not None
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait() == 0


def test_ctrl_c_is_quiet():
    program = (
        "import os, signal; from tallymark import cli\n"
        "cli._run = lambda arguments: os.kill(os.getpid(), signal.SIGINT)\n"
        "raise SystemExit(cli.main(['settings']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == ""


def test_python_m_tallymark_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "tallymark", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tallymark 0.")


def test_the_command_starts_within_a_fraction_of_a_second():
    # CPU time of the child, so that a busy machine does not matter: a few imports, no more.
    before = os.times()
    subprocess.run([sys.executable, "-m", "tallymark", "send", "--help"], capture_output=True, check=True)
    after = os.times()
    assert (after.children_user + after.children_system) - (before.children_user + before.children_system) < 0.5
