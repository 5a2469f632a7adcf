"""Of several keepers one works; which one, the store says."""

import logging
import threading
from typing import Any

import pytest

from tallymark.keeper.duties import Duty, Rota
from tallymark.keeper.turn import Turn, holder
from tallymark.store.protocol import LeaseLost, StoreUnreachable
from tallymark.testing import until


class Leases:
    """Hands a lease to whoever asks first; `holder` can be taken away."""

    def __init__(self) -> None:
        self.holder = ""
        self.given: list[OneLease] = []

    def lease(self, role: str, holder: str, *, lease_s: float) -> "OneLease":
        assert role == "keeper"
        self.given.append(OneLease(self, holder))
        return self.given[-1]


class OneLease:
    def __init__(self, leases: Leases, name: str) -> None:
        self._leases, self._name, self._had = leases, name, False

    def take(self) -> bool:
        if self._had and self._leases.holder != self._name:
            return False  # for ever
        self._leases.holder = self._leases.holder or self._name
        self._had = self._leases.holder == self._name
        return self._had

    def release(self) -> None:
        assert self._leases.holder == self._name
        self._leases.holder = ""


def test_one_works_and_the_other_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    leases = Leases()
    first, second = Turn(leases, lease_s=9, holder="first"), Turn(leases, lease_s=9, holder="second")
    for _ in range(3):
        first.take()
        second.take()
        assert (first.ours, second.ours) == (True, False)
    assert caplog.text.count("standing by") == 1
    second.give_back()  # it has nothing to give
    first.give_back()
    second.take()
    assert second.ours
    assert first.every_s == 3


def test_one_that_lost_it_stands_by_and_gets_it_again(caplog: pytest.LogCaptureFixture) -> None:
    leases = Leases()
    turn = Turn(leases, lease_s=9, holder="first")
    turn.take()
    leases.holder = "second"
    turn.take()
    assert not turn.ours
    turn.take()
    leases.holder = ""
    turn.take()
    assert turn.ours
    assert len(leases.given) == 2
    assert caplog.text.count("has taken over") == 1


def test_an_answer_that_comes_after_the_lease_was_lost_is_not_believed() -> None:
    leases = Leases()
    turn = Turn(leases, lease_s=9, holder="this")
    turn.take()
    lease = leases.given[0]
    take = lease.take

    def take_slowly() -> bool:
        had = take()
        turn.lose()  # meanwhile another thread's write was fenced
        return had

    lease.take = take_slowly  # type: ignore[method-assign]
    turn.take()
    assert not turn.ours


def test_only_the_one_whose_turn_it_is_does_its_duties() -> None:
    leases, now, done = Leases(), [0.0], []
    leases.holder = "another"
    turn = Turn(leases, lease_s=3, holder="this")
    rota = Rota(turn=turn, clock=lambda: now[0])
    rota.add(Duty("lease", turn.every_s, turn.take, always=True))
    rota.add(Duty("beat", 1.0, lambda: done.append("beat"), always=True))
    rota.add(Duty("fold", 1.0, lambda: done.append("fold")))
    rota.run_due()
    assert done == ["beat"]
    leases.holder = ""
    now[0] += 1
    rota.run_due()
    assert done == ["beat", "beat", "fold"]


def test_a_write_that_is_fenced_ends_the_turn_and_is_no_failure() -> None:
    leases, now = Leases(), [0.0]
    turn = Turn(leases, lease_s=3, holder="this")
    turn.take()
    rota = Rota(turn=turn, clock=lambda: now[0])

    def fold() -> bool:
        raise LeaseLost("another keeper")

    rota.add(Duty("fold", 1.0, fold))
    rota.run_due()
    assert not turn.ours
    assert rota.failing() == []


def test_it_is_renewed_while_the_work_takes_long_and_given_back_at_the_end() -> None:
    leases = Leases()
    taken = threading.Event()
    turn = Turn(leases, lease_s=0.03, holder="this")
    with turn.kept():
        assert turn.ours, "at once"
        lease = leases.given[0]
        take, renewals = lease.take, []

        def take_again() -> bool:
            renewals.append(take())
            if len(renewals) == 1:
                raise StoreUnreachable("no node answers")
            taken.set()
            return True

        lease.take = take_again  # type: ignore[method-assign]
        assert taken.wait(30), "this thread does nothing, as one that waits for a slow answer"
        assert turn.ours
    assert leases.holder == ""


def test_a_keeper_whose_store_is_away_when_it_starts_begins_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    leases = Leases()
    away = [True, True]

    class Away:
        def lease(self, role: str, holder: str, *, lease_s: float) -> OneLease:
            if away:
                away.pop()
                raise StoreUnreachable("no node answers")
            return leases.lease(role, holder, lease_s=lease_s)

    turn = Turn(Away(), lease_s=0.03, holder="this")
    with turn.kept():
        until(lambda: turn.ours, "the lease is had")
    assert caplog.text.count("could not be taken") == 1


def test_no_two_processes_have_the_same_name() -> None:
    names: set[Any] = {holder("keeper") for _ in range(50)}
    assert len(names) == 50
