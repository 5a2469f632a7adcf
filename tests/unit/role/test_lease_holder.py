"""Of several keepers or drivers one works; which one, the store says."""

import logging
import threading

import pytest

from leases import Leases, OneLease, ScriptedLease
from tallymark.role.lease_holder import LeaseHolder, unique_name
from tallymark.store.protocol import LeaseLost, StoreUnreachable
from tallymark.testing import until


def keeper(leases: Leases, *, name: str = "this", lease_s: float = 9) -> LeaseHolder:
    return LeaseHolder(leases, "keeper", name=name, lease_s=lease_s)


def test_one_works_and_the_other_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    leases = Leases()
    first, second = keeper(leases, name="first"), keeper(leases, name="second")
    for _ in range(3):
        first.take()
        second.take()
        assert (first.is_ours, second.is_ours) == (True, False)
    assert caplog.text.count("standing by") == 1
    second.release()  # it has nothing to give
    first.release()
    second.take()
    assert (first.is_ours, second.is_ours) == (False, True)


def test_one_that_lost_it_stands_by_and_gets_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    leases = Leases()
    holder = keeper(leases)
    holder.take()
    leases.holder = "second"
    holder.take()
    assert not holder.is_ours
    holder.take()
    leases.holder = ""
    holder.take()
    assert holder.is_ours
    assert len(leases.granted) == 2
    assert caplog.text.count("has taken over") == 1


def test_an_answer_that_comes_after_the_lease_was_lost_is_not_believed() -> None:
    leases = Leases()
    holder = keeper(leases)
    holder.take()
    lease = leases.granted[0]
    take = lease.take

    def take_slowly() -> bool:
        had = take()
        holder.lose()  # meanwhile another thread's write was fenced
        return had

    lease.take = take_slowly  # type: ignore[method-assign]
    holder.take()
    assert not holder.is_ours


def test_it_is_renewed_while_the_work_takes_long_and_given_back_at_the_end() -> None:
    leases = Leases()
    taken = threading.Event()
    holder = keeper(leases, lease_s=0.03)
    with holder.kept():
        assert holder.is_ours, "at once"
        lease = leases.granted[0]
        take, renewals = lease.take, []

        def take_again() -> bool:
            renewals.append(take())
            if len(renewals) == 1:
                raise StoreUnreachable("no node answers")
            taken.set()
            return True

        lease.take = take_again  # type: ignore[method-assign]
        assert taken.wait(30), "this thread does nothing, as one that waits for a slow answer"
        assert holder.is_ours
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

    holder = LeaseHolder(Away(), "keeper", name="this", lease_s=0.03)
    with holder.kept():
        until(lambda: holder.is_ours, "the lease is had")
    assert caplog.text.count("could not be taken") == 1


def test_no_two_processes_have_the_same_name() -> None:
    names = {unique_name("keeper") for _ in range(50)}
    assert len(names) == 50


def test_it_is_renewed_in_time_and_asked_for_every_second_while_standing_by() -> None:
    leases = Leases()
    holder = keeper(leases, lease_s=9)
    assert holder.every_s == 1
    holder.take()
    assert holder.every_s == 3  # two renewals may fail
    assert keeper(leases, lease_s=1.5).every_s == 0.5


def driver(lease: ScriptedLease, lost: list[str]) -> LeaseHolder:
    """One that has the lease, and may not write again once it is lost."""
    holder = LeaseHolder(
        lease, "pipeline", name="this", lease_s=0.03, on_lost=lambda: lost.append("lost"), regains=False
    )
    assert holder.take()
    return holder


def test_a_lease_is_renewed_while_the_block_runs_and_then_released() -> None:
    lease, lost = ScriptedLease(True), []
    with driver(lease, lost).kept():
        until(lambda: lease.asked >= 4, "three renewals")
    assert lost == []
    assert lease.released == 1


def test_a_lost_lease_is_told_once_and_not_asked_for_again() -> None:
    lease, lost = ScriptedLease(True, True, False, True), []
    holder = driver(lease, lost)
    with holder.kept():
        until(lambda: lost, "the loss is noticed")
        assert not holder.is_ours
        assert not holder.take(), "the store object must stay fenced"
    assert lost == ["lost"]
    assert (lease.granted, lease.asked, lease.released) == (1, 3, 0)


def test_a_store_that_does_not_answer_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    away = [StoreUnreachable("away"), StoreUnreachable("away")]
    lease, lost = ScriptedLease(True, *away, True), []
    with driver(lease, lost).kept():
        until(lambda: lease.asked >= 5, "renewals go on")
    assert lost == []
    assert caplog.text.count("could not be taken or renewed: away") == 1


def test_a_bug_does_not_end_the_renewals_and_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    lease, lost = ScriptedLease(True, KeyError("epoch"), True), []
    with driver(lease, lost).kept():
        until(lambda: lease.asked >= 4, "renewals go on")
    assert lost == []
    assert [record.exc_info is not None for record in caplog.records if "could not be" in record.message] == [True]


def test_a_refused_write_is_a_loss() -> None:
    lease, lost = ScriptedLease(True), []
    holder = driver(lease, lost)

    def write() -> None:
        with holder.kept():
            raise LeaseLost("another driver has taken over")

    with pytest.raises(LeaseLost):
        write()
    assert lost == ["lost"]
    assert lease.released == 0
    assert not holder.take()


def test_a_lease_that_cannot_be_released_does_not_fail_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    class Away(ScriptedLease):
        def release(self) -> None:
            raise StoreUnreachable("away")

    with driver(Away(True), []).kept():
        pass
    assert "the next pipeline waits until it runs out: away" in caplog.text
