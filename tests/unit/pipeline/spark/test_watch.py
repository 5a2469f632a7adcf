"""A driver without executors ends, instead of holding its lease for ever."""

import threading

import pytest

from tallymark.pipeline.spark.watch import NoExecutors, Watch
from tallymark.testing import until


def test_without_executors_the_jobs_are_cancelled_and_the_driver_ends():
    cancelled, stopping = threading.Event(), threading.Event()
    now = iter(range(0, 10_000, 10))
    watch = Watch(list, cancelled.set, stopping=stopping, patience_s=30, every_s=0.001, clock=lambda: float(next(now)))
    with pytest.raises(NoExecutors, match="no executor for 30 s"), watch:
        assert cancelled.wait(20)
    assert stopping.is_set()


def test_executors_that_come_and_go_are_no_reason():
    present = [["executor_a_0"], [], [], ["executor_b_1"], []]
    looks = []

    def executors():
        looks.append(1)
        return present[len(looks) % len(present)]

    now, stopping = iter(range(0, 10_000_000, 10)), threading.Event()
    with Watch(
        executors,
        lambda: None,
        stopping=stopping,
        patience_s=35,
        every_s=0.001,
        clock=lambda: float(next(now)),
    ):
        until(lambda: len(looks) > 50, "many looks")
    assert not stopping.is_set()


def test_a_stop_cancels_what_waits():
    cancelled, stopping = threading.Event(), threading.Event()
    with Watch(list, cancelled.set, stopping=stopping, patience_s=1000, every_s=0.001):
        stopping.set()
        assert cancelled.wait(20)
