"""A terminal gets colours and fitted tables; a pipe gets plain text, whole, and nobody waits for rich."""

import os
import pty
import subprocess
import sys

import pytest

from tallymark.commands import output
from tallymark.commands.output import print_line, print_table
from tallymark.commands.progress import Progress

LONG = "v" * 200
RED, BOLD = "\x1b[31m", "\x1b[1m"


def on_a_terminal(program: str, **environment: str) -> str:
    """What the program writes to a terminal, which both its stdout and its stderr are."""
    ours, theirs = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**clean, "TERM": "xterm", **environment},
    )
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65_536):
            seen += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert child.wait(20) == 0, seen.decode()
    return seen.decode().replace("\r\n", "\n")


TABLE = f"""
from tallymark.commands.output import print_table
print_table(["label", "count"], [["[red]x[/red]", 1234567], [{LONG!r}, None]])
"""


def test_a_pipe_gets_each_row_on_one_line_however_narrow_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(["label", "count"], [["a", 1234567], [LONG, None]])
    assert capsys.readouterr().out.splitlines() == [
        f"{'label':<200}      count",
        f"{'a':<200}  1,234,567",
        f"{LONG}          -",
    ]


def test_a_terminal_gets_a_table_of_its_width_with_nothing_cut_off() -> None:
    told = on_a_terminal(TABLE, COLUMNS="60")
    assert BOLD in told
    assert told.count("v") == 200
    assert max(map(len, told.replace(BOLD, "").replace("\x1b[0m", "").splitlines())) <= 60
    assert "[red]x[/red]" in told
    assert RED not in told
    assert "1,234,567" in told


@pytest.mark.parametrize(
    ("environment", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_left_out_where_nobody_wants_them(environment: dict[str, str], is_coloured: bool) -> None:
    program = "from tallymark.commands.output import print_line; print_line('! [late] 1', 'red')"
    told = on_a_terminal(program, **environment)
    assert "! [late] 1" in told
    assert (RED in told) == is_coloured


def test_a_line_into_a_pipe_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("! late", "red")
    assert capsys.readouterr().out == "! late\n"


def test_without_rich_a_terminal_gets_what_a_pipe_gets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(output.importlib.util, "find_spec", lambda name: None)
    print_table(["label"], [["a"]])
    print_line("! late", "red")
    with Progress("waiting …") as progress:
        progress.report("comparing …")
    assert capsys.readouterr() == ("label\na\n! late\n", "")


PROGRESS = """
from tallymark.commands.progress import Progress
with Progress(total=1000) as progress:
    progress.report("500 of 1,000 [sic] acknowledged", 500)
    progress.report("1,000 of 1,000 [sic] acknowledged", 1000)
print("done")
"""


def test_progress_is_shown_while_it_lasts_and_then_cleared() -> None:
    told = on_a_terminal(PROGRESS)
    assert "500 of 1,000 [sic] acknowledged" in told
    rest = told.partition("1,000 of 1,000 [sic] acknowledged")[2]
    assert "\x1b[2K" in rest, "the line is erased"
    assert rest.endswith("done\n")
    spinning = on_a_terminal("from tallymark.commands.progress import Progress\nwith Progress('waiting …'): pass")
    assert "waiting …" in spinning


def test_progress_into_a_pipe_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("waiting …", total=10) as progress:
        progress.report("half", 5)
    assert capsys.readouterr() == ("", "")


def test_what_the_doctor_finds_broken_is_red() -> None:
    program = "from tallymark.cli import main; main(['doctor', '--host', '203.0.113.1'])"
    assert f"{RED}broken   port" in on_a_terminal(program)
