"""`tallymark tail`: lines for people. The command as a whole is tested in `tests/processes/test_tail.py`."""

import re

import pytest

from tallymark.commands import tail
from tallymark.commands.tail import _Lines

EVENT = {
    "event": "view",
    "id": "1",
    "time": "2026-11-15T12:00:00.000Z",
    "received": "2026-11-15T12:30:00.123Z",
    "value": 0.123456789,
    "values": {"cpu": 0.5},
    "props": {"video": "A B", "n": 1234567, "first": True, "odd key": "[red]x\x1b[2J\x9b\n", "empty": ""},
}
LINE = (
    "12:30:00.123  view      value=0.123456789  cpu=0.5  video=\"A B\"  n=1234567  first=true"
    '  "odd key"="[red]x\\u001b[2J\\u009b\\n"  empty=""'
)  # fmt: skip


@pytest.mark.parametrize("is_decorated", [False, True])
def test_a_line_has_all_that_an_event_carries_and_steers_no_terminal(capsys, monkeypatch, is_decorated):
    monkeypatch.setattr(tail, "is_decorated", lambda stream: is_decorated)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    _Lines(True).show(EVENT)
    told = capsys.readouterr().out
    colours = re.compile(r"\x1b\[[0-9;]*m")
    assert bool(colours.search(told)) == is_decorated
    assert colours.sub("", told) == LINE + "\n"


def test_names_are_aligned_as_far_as_that_helps(capsys):
    lines = _Lines(False)
    for name in ("a", "a_long_event_name", "b", "x" * 100):
        lines.show({"event": name, "received": EVENT["received"], "props": {"k": 1}})
    told = capsys.readouterr().out.splitlines()
    assert told[2] == "12:30:00.123  b                  k=1"
    assert told[3].endswith("x" * 100 + "  k=1")
