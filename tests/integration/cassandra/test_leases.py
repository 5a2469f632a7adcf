"""One process plays a role; one that was silent too long cannot write when it wakes."""

from typing import Any

import pytest

from tallymark.store.cassandra.book import POINTS, Book
from tallymark.store.protocol import LeaseLost, StoreError


class ManualClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("role", ["pipeline", "keeper"])
def test_a_second_one_takes_over_only_when_the_first_was_silent_for_the_whole_lease(open_store: Any, role: str) -> None:
    clock = ManualClock()
    first = open_store(clock=clock).lease(role, "first", lease_s=10)
    second = open_store(clock=clock).lease(role, "second", lease_s=10)
    assert first.take()
    assert not second.take()
    clock.now += 9.9
    assert not second.take()
    assert first.take()  # renewed at the last moment: the wait begins anew
    clock.now += 9.9
    assert not second.take()
    clock.now += 0.1
    assert not second.take(), "seen to be renewed 0.1 s ago"
    clock.now += 9.9
    assert second.take()
    assert not first.take()
    clock.now += 100
    assert not first.take(), "a lease once lost stays lost"
    assert second.take()


def test_a_lease_given_back_is_had_at_once(open_store: Any) -> None:
    first = open_store().lease("keeper", "first", lease_s=10)
    second = open_store().lease("keeper", "second", lease_s=10)
    assert first.take()
    first.release()
    assert not first.take()
    assert second.take()
    first.release()
    assert second.take()


def test_of_many_that_ask_at_once_one_gets_it(open_store: Any) -> None:
    leases = [open_store().lease("pipeline", f"driver-{number}", lease_s=10) for number in range(5)]
    assert [lease.take() for lease in leases] == [True, False, False, False, False]
    with pytest.raises(StoreError, match="no lease for the role query"):
        open_store().lease("query", "me", lease_s=10)


def test_of_two_that_read_the_same_page_one_gets_it(open_store: Any, address: Any) -> None:
    stores = [open_store(), open_store()]
    books = [Book(store._link, address.name, POINTS) for store in stores]
    heads = [book.head(settled=True) for book in books]
    assert heads[0] == heads[1]
    holders = ["first", "second"]
    had = [book.hold(head, name, epoch=1) for book, head, name in zip(books, heads, holders, strict=True)]
    assert had == [True, False]
    now = books[1].head(settled=True)
    assert (now.epoch, now.holder, now.renewed) == (1, "first", 1)
    assert not books[1].hold(heads[1], "second", epoch=2), "nor later"


def test_a_driver_that_slept_past_its_lease_writes_nothing_when_it_wakes(open_store: Any, build: Any) -> None:
    clock = ManualClock()
    old, new = open_store(), open_store(clock=clock)
    assert old.lease("pipeline", "old", lease_s=10).take()
    old.sink.apply([build.stretch(0, 3)], now_ms=0)
    lease = new.lease("pipeline", "new", lease_s=10)
    assert not lease.take()
    clock.now += 11
    assert lease.take()
    for _ in range(2):
        with pytest.raises(LeaseLost, match=r"pipeline.*epoch 2, ours was 1"):
            old.sink.apply([build.stretch(3, 5)], now_ms=0)
    with pytest.raises(LeaseLost):
        old.sink.begin("log", 1, 7)
    assert new.sink.applied("log") == {0: 3}
    assert (new.snapshots.journal_end(), build.counts(new)) == (1, {"e0": 3})
    new.sink.apply([build.stretch(3, 4)], now_ms=0)
    with pytest.raises(LeaseLost):
        old.sink.apply([build.stretch(4, 5)], now_ms=0)
    assert build.counts(new) == {"e0": 4}


def test_a_keeper_that_slept_past_its_lease_neither_folds_nor_rolls(open_store: Any, build: Any) -> None:
    clock = ManualClock()
    old, new = open_store(), open_store(clock=clock)
    assert old.lease("keeper", "old", lease_s=10).take()
    old.sink.apply([build.stretch(0, 3, series=4)], now_ms=0)
    assert old.upkeep.fold(most_points=2).more  # one slice written, the fold is under way
    lease = new.lease("keeper", "new", lease_s=10)
    assert not lease.take()
    clock.now += 11
    assert lease.take()
    before = new.upkeep.marks()
    with pytest.raises(LeaseLost, match="keeper"):
        old.upkeep.fold(most_points=100)
    with pytest.raises(LeaseLost):
        old.upkeep.roll(now_ms=10**12, delay_s=0, slice_series=10)
    assert new.upkeep.marks() == before
    assert build.counts(new) == {f"e{each}": 3 for each in range(4)}
    assert not new.upkeep.fold(most_points=100).more
    assert new.upkeep.marks().folded == 1
    assert build.counts(new) == {f"e{each}": 3 for each in range(4)}
