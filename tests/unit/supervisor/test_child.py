"""The small rules: back-off, log files, and recognising a process beyond doubt."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.supervisor import child
from tallymark.supervisor.backoff import BackOff
from tallymark.supervisor.child import last_line, rotate
from tallymark.supervisor.processes import await_leftovers, is_same, start_time


def test_back_off_doubles_and_then_says_that_it_is_hopeless():
    back_off = BackOff()
    assert [back_off.after_death(lived_s=1.0) for _ in range(6)] == [0.2, 0.4, 0.8, 1.6, 30.0, 30.0]
    assert back_off.hopeless


def test_back_off_starts_over_after_a_while_of_health():
    back_off = BackOff()
    for _ in range(6):
        back_off.after_death(lived_s=1.0)
    assert back_off.after_death(lived_s=60.0) == 0.2
    assert not back_off.hopeless


@given(st.lists(st.floats(0, 100), max_size=50))
def test_back_off_is_never_none_and_never_endless(lives):
    back_off = BackOff()
    assert all(0.2 <= back_off.after_death(lived_s=lived) <= 30.0 for lived in lives)


def test_of_a_large_log_file_the_end_is_put_aside_and_who_writes_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "LOG_BYTES", 10)
    log_file = tmp_path / "keeper.log"
    with open(log_file, "ab", buffering=0) as log:
        for number in range(6):
            log.write(b"a long beginning, run %d" % number)
            assert rotate(log_file)
            assert log_file.read_bytes() == b""
        log.write(b"run 6")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "keeper.log": "run 6",
        "keeper.log.1": "ing, run 5",
    }


def test_a_large_log_file_is_emptied_even_if_there_is_no_room_for_a_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "LOG_BYTES", 10)
    log_file = tmp_path / "keeper.log"
    log_file.write_text("x" * 100)
    (tmp_path / "keeper.log.1").mkdir()
    assert rotate(log_file)
    assert log_file.stat().st_size == 0


def test_a_small_log_file_is_appended_to(tmp_path):
    log_file = tmp_path / "keeper.log"
    log_file.write_text("small")
    assert not rotate(log_file)
    assert log_file.read_text() == "small"
    assert not rotate(tmp_path / "none.log")


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (b"", ""),
        (b"one\n", "one"),
        (b"one\ntwo\n\n  \n", "two"),
        (b"\xff\xfe broken\n", "\ufffd\ufffd broken"),
        (b"NameError: name 'x' is not defined\n12:00 INFO py4j: Closing down\n", "NameError: name 'x' is not defined"),
        (b"12:00 ERROR tallymark.pipeline: no Java\n12:01 INFO closing\n", "12:00 ERROR tallymark.pipeline: no Java"),
    ],
)
def test_the_last_line_with_something_in_it(tmp_path, written, line):
    (tmp_path / "log").write_bytes(b"of an earlier run\n" + written)
    assert last_line(tmp_path / "log", len(b"of an earlier run\n")) == line


def test_a_long_last_line_is_cut(tmp_path):
    (tmp_path / "log").write_text("x" * 5000)
    assert len(last_line(tmp_path / "log", 0)) == 200


def test_a_pid_with_another_start_time_is_somebody_else():
    started = start_time(os.getpid())
    assert started is not None
    assert is_same(os.getpid(), started)
    assert not is_same(os.getpid(), started + 1)
    # If this were taken for a leftover, the test would not survive it.
    assert await_leftovers({"keeper": [os.getpid(), started + 1]}, patience_s=0) == []
