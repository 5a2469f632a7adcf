"""Waiting, with a clock that only moves when somebody waits."""

import logging
import threading

import pytest

from tallymark.role.loop import Background, repeat, retry, wait_for
from tallymark.role.outage import Outage


class Time:
    """`wait` lets the time pass; after `stop_s` it says stop, as an event does that is set meanwhile."""

    def __init__(self, stop_s: float = float("inf")) -> None:
        self.now_s = 0.0
        self._stop_s = stop_s

    def wait(self, seconds: float) -> bool:
        self.now_s = min(self.now_s + seconds, self._stop_s)
        return self.now_s >= self._stop_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def outage() -> Outage:
    return Outage(logging.getLogger("loop"), "it failed")


def test_work_is_done_at_once_and_then_every_so_often(outage):
    time, done = Time(stop_s=5.0), []
    repeat(lambda: done.append(time()), every_s=lambda: 2.0, wait=time.wait, outage=outage)
    assert done == [0.0, 2.0, 4.0]
    assert time() == 5.0


def test_the_pause_may_depend_on_how_the_work_went(outage):
    time, done = Time(stop_s=5.0), []
    repeat(lambda: done.append(time()), every_s=lambda: float(len(done)), wait=time.wait, outage=outage)
    assert done == [0.0, 1.0, 3.0]


def test_work_that_fails_is_done_again(outage, caplog):
    time, done = Time(stop_s=4.0), []

    def work():
        done.append(time())
        raise OSError("away")

    repeat(work, every_s=lambda: 1.0, wait=time.wait, outage=outage)
    assert done == [0.0, 1.0, 2.0, 3.0]
    assert caplog.text.count("it failed: away") == 1


def answering_at(time: Time, at_s: float):
    def attempt() -> str:
        if time() < at_s:
            raise ConnectionError("away")
        return "the store"

    return attempt


def test_an_attempt_is_repeated_until_it_succeeds(outage, caplog):
    time = Time()
    assert retry(answering_at(time, 3.0), on=ConnectionError, wait=time.wait, outage=outage) == "the store"
    assert time() == 3.0
    assert caplog.text.count("it failed: away") == 1
    assert not outage.is_on


def test_the_first_attempt_does_not_wait(outage):
    time = Time()
    assert retry(answering_at(time, 0.0), on=ConnectionError, wait=time.wait, outage=outage) == "the store"
    assert time() == 0.0


def test_attempts_end_when_it_is_time_to_stop(outage):
    time = Time(stop_s=2.5)
    assert retry(answering_at(time, 3.0), on=ConnectionError, wait=time.wait, outage=outage) is None
    assert time() == 2.5


def test_nothing_is_attempted_after_the_stop(outage):
    tried = []
    assert retry(lambda: tried.append(1), on=OSError, wait=lambda _: True, outage=outage) is None
    assert tried == []


def test_other_errors_end_the_attempts(outage):
    def attempt() -> None:
        raise ValueError("wrong settings")

    with pytest.raises(ValueError, match="wrong settings"):
        retry(attempt, on=ConnectionError, wait=Time().wait, outage=outage)


@pytest.mark.parametrize(
    ("holds_at_s", "within_s", "stop_s", "expected", "ended_s"),
    [
        (0.0, 9.0, 99.0, True, 0.0),
        (3.0, 9.0, 99.0, True, 3.0),
        (9.0, 4.0, 99.0, False, 4.0),
        (9.0, 9.0, 2.5, False, 2.5),
        (0.0, 9.0, 0.0, False, 0.0),
    ],
    ids=["at once", "later", "too late", "stopped", "stopped before"],
)
def test_a_condition_is_waited_for(holds_at_s, within_s, stop_s, expected, ended_s):
    time = Time(stop_s=stop_s)
    held = wait_for(lambda: time() >= holds_at_s, wait=time.wait, every_s=1.0, within_s=within_s, clock=time)
    assert (held, time()) == (expected, ended_s)


def test_a_thread_in_the_background_ends_with_its_block():
    begun, ended = threading.Event(), threading.Event()

    def run(wait) -> None:
        begun.set()
        assert wait(30.0)
        ended.set()

    with Background(run, name="test"):
        assert begun.wait(30.0)
        assert not ended.is_set()
    assert ended.is_set()


def test_leaving_does_not_wait_for_ever():
    release, ended = threading.Event(), threading.Event()

    def run(wait) -> None:
        release.wait(30.0)
        ended.set()

    with Background(run, name="test", join_s=0.01):
        pass
    assert not ended.is_set(), "the block was left while it still ran"
    release.set()
    assert ended.wait(30.0)
