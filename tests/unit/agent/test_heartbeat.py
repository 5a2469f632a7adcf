"""Silence: who has not beaten for too long by the watcher's own clock."""

import os
from pathlib import Path

import pytest

from tallymark.agent.heartbeat import Heartbeat, Watch


@pytest.fixture
def path(tmp_path):
    return tmp_path / "heartbeat"


@pytest.fixture
def watch(path):
    return Watch(path, silent_s=10, starting_s=30)


def beat(path, number):
    path.write_text("0")
    os.utime(path, ns=(number, number))  # whatever the wall clock says: only that it changed counts


def looks(watch, process, *, since, until):
    """Whether it is silent at `until`, after a look in every second."""
    for second in range(since, until):
        assert not watch.is_silent(process, now_s=second)
    return watch.is_silent(process, now_s=until)


def test_a_process_that_beats_is_never_silent(path, watch):
    for second in range(0, 100, 9):
        beat(path, 1_000 - second)  # a clock that runs backwards
        assert not watch.is_silent("a", now_s=second)


def test_a_process_that_stops_beating_is_silent_after_its_time(path, watch):
    watch.is_silent("a", now_s=0)
    beat(path, 1)
    assert not looks(watch, "a", since=1, until=11)
    assert watch.is_silent("a", now_s=11.1)


@pytest.mark.parametrize("has_beaten", [True, False])
def test_after_a_thaw_the_count_begins_anew(path, watch, has_beaten):
    # Both were frozen (SIGSTOP, a paused container, a snapshot): the watcher is the first to go on.
    watch.is_silent("a", now_s=100)
    if has_beaten:
        beat(path, 1)
    assert not looks(watch, "a", since=101, until=109)
    allowed_s = 10 if has_beaten else 30
    assert not looks(watch, "a", since=5000, until=5000 + allowed_s)
    assert watch.is_silent("a", now_s=5000.1 + allowed_s)


def test_a_new_process_has_longer_for_its_first_beat(path, watch):
    beat(path, 1)  # of the one before
    assert not looks(watch, "a", since=100, until=130)
    assert watch.is_silent("a", now_s=130.1)
    assert not looks(watch, "b", since=131, until=161)
    beat(path, 2)
    assert not looks(watch, "b", since=162, until=172)
    assert watch.is_silent("b", now_s=172.1)


def test_a_heartbeat_that_cannot_be_written_is_said_once_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "file").touch()
    heartbeat = Heartbeat(tmp_path / "file" / "heartbeat")
    heartbeat.beat(5)
    assert heartbeat.last == 5
    assert len(caplog.records) == 1


def test_the_last_second_never_goes_back(path):
    heartbeat = Heartbeat(path)
    heartbeat.beat(7)
    heartbeat.beat(3)
    assert Heartbeat(path).last == 7


def test_a_write_that_fails_in_the_middle_leaves_the_last_second_known(path, monkeypatch):
    heartbeat = Heartbeat(path)
    heartbeat.beat(7)

    def torn(self, text, **_):
        self.write_bytes(b"")
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", torn)
    os.utime(path, ns=(1, 1))
    heartbeat.beat(8)
    assert path.stat().st_mtime_ns > 1  # it lives, though its disk is full
    monkeypatch.undo()
    assert Heartbeat(path).last == 7
