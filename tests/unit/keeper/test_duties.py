"""A duty that fails is tried again later, and holds up none of the others."""

import logging
import threading

import pytest

from leases import Leases
from tallymark.keeper.duties import PAUSE_S, Duty, Rota
from tallymark.role.lease_holder import LeaseHolder
from tallymark.store.protocol import LeaseLost


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_duty_runs_at_its_own_pace() -> None:
    clock, ran = Clock(), []
    rota = Rota(clock=clock)
    rota.add(Duty("quick", 1.0, lambda: ran.append("quick")))
    rota.add(Duty("slow", 3.0, lambda: ran.append("slow")))
    for _ in range(7):
        rota.run_due()
        clock.now += 0.5
    assert ran == ["quick", "slow", "quick", "quick", "quick", "slow"]


def test_a_duty_with_more_to_do_comes_again_after_a_moment() -> None:
    clock, left = Clock(), [True, True, False]
    rota = Rota(clock=clock)
    rota.add(Duty("fold", 5.0, lambda: left.pop(0)))
    rota.run_due()
    assert rota.next_due() == pytest.approx(clock.now + PAUSE_S)
    clock.now += PAUSE_S
    rota.run_due()
    clock.now += PAUSE_S
    rota.run_due()
    assert rota.next_due() == pytest.approx(clock.now + 5.0)


def test_a_failing_duty_backs_off_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    clock, ran, broken = Clock(), [], [True]

    def fail() -> None:
        ran.append("bad")
        if broken[0]:
            raise OSError("disk is away")

    rota = Rota(clock=clock)
    rota.add(Duty("bad", 1.0, fail))
    rota.add(Duty("good", 1.0, lambda: ran.append("good")))
    with caplog.at_level(logging.INFO):
        for _ in range(8):
            rota.run_due()
            clock.now += 1.0
    assert ran.count("good") == 8
    assert ran.count("bad") == 3  # at 0, 2 and 6 s
    assert rota.failing() == ["bad"]
    assert "bad failed 1 times in a row, next try in 2 s: disk is away" in caplog.text
    broken[0] = False
    clock.now += 60.0
    rota.run_due()
    assert rota.failing() == []
    assert rota.next_due() == pytest.approx(clock.now + 1.0)


def test_it_stops_between_two_duties() -> None:
    stopping, ran = threading.Event(), []
    rota = Rota()

    def stop() -> None:
        ran.append("first")
        stopping.set()

    rota.add(Duty("first", 0.0, stop))
    rota.add(Duty("second", 0.0, lambda: ran.append("second")))
    rota.run(stopping)
    assert ran == ["first"]


def test_a_duty_that_takes_long_rests_in_proportion():
    now = [0.0]

    def work() -> bool:
        now[0] += 1.0
        return now[0] < 3.0

    rota = Rota(clock=lambda: now[0])
    rota.add(Duty("fold", 2.0, work, share=0.1))
    rota.run_due()
    now[0] = rota.next_due()
    rota.run_due()
    now[0] = rota.next_due()
    rota.run_due()
    # Three parts of about a second: nine times as long until the next round.
    assert rota.next_due() - now[0] == pytest.approx(27.0, abs=0.5)


def test_only_the_one_that_holds_the_lease_does_its_duties() -> None:
    leases, now, done = Leases(), [0.0], []
    leases.holder = "another"
    lease = LeaseHolder(leases, "keeper", name="this", lease_s=3)
    rota = Rota(lease=lease, clock=lambda: now[0])
    rota.add(Duty("lease", 1.0, lambda: lease.take() and None, always=True))
    rota.add(Duty("beat", 1.0, lambda: done.append("beat"), always=True))
    rota.add(Duty("fold", 1.0, lambda: done.append("fold")))
    rota.run_due()
    assert done == ["beat"]
    leases.holder = ""
    now[0] += 1
    rota.run_due()
    assert done == ["beat", "beat", "fold"]


def test_a_write_that_is_fenced_loses_the_lease_and_is_no_failure() -> None:
    leases, now = Leases(), [0.0]
    lease = LeaseHolder(leases, "keeper", name="this", lease_s=3)
    lease.take()
    rota = Rota(lease=lease, clock=lambda: now[0])

    def fold() -> bool:
        raise LeaseLost("another keeper")

    rota.add(Duty("fold", 1.0, fold))
    rota.run_due()
    assert not lease.is_ours
    assert rota.failing() == []
