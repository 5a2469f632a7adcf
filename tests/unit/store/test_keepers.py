"""Folds and rolls that are broken off or done by two keepers at once count every delta once, by series and in sums."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

import cassandras
from stores import memory_cassandra
from tallymark.store import deltas
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import Store
from tallymark.store.read_plan import Question
from tallymark.store.sqlite import connection
from tallymark.store.sqlite.store import SqliteStore

SERIES = ("a", "b", "c")
HOURS = (0, 3600)
BATCHES = 2
EACH = 100
"""events of a series in an hour, in each batch; of two writes at once Cassandra keeps the one with the larger bytes, \
which for 200 and 300 is that of 200"""


class Stores(Protocol):
    def open(self, before: Callable[[], None] | None = None) -> Store:
        """One process's view of the store; `before` is called before each statement that begins something."""
        ...


class Files:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, before: Callable[[], None] | None = None) -> Store:
        class Watched(sqlite3.Connection):
            def execute(self, *arguments: Any) -> sqlite3.Cursor:
                # Within a transaction nobody else can write: there is nothing to meet.
                if before is not None and not self.in_transaction:
                    before()
                return super().execute(*arguments)

        return SqliteStore(self._path, connect=lambda path: connection.connect(path, factory=Watched))


class Servers:
    def __init__(self) -> None:
        self._server = memory_cassandra.Server()

    def open(self, before: Callable[[], None] | None = None) -> Store:
        def request(_: Any) -> None:
            if before is not None:
                before()

        session = memory_cassandra.Session(self._server, request)
        return CassandraStore(cassandras.address(0, name="store"), connect=lambda _: session, pause_s=0)


@pytest.fixture(params=["sqlite", "cassandra"])
def make_stores(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Stores]:
    """A fresh store for each number."""
    if request.param == "sqlite":
        return lambda number: Files(tmp_path / f"{number}.db")
    return lambda number: Servers()


def filled(store: Store) -> None:
    for number in range(BATCHES):
        apply_batch(store, number)


def apply_batch(store: Store, number: int) -> None:
    cells = [(1, series, hour, EACH, 0, *[None] * 5) for series in SERIES for hour in HOURS]
    count = EACH * len(cells)
    frame = deltas.from_rows(cells)
    stretch = Stretch(0, number, number + 1)
    ledger = Ledger(accepted=count, counted=count)
    store.sink.apply([StretchResult(stretch, "log", 1, (1,), deltas.encode(frame), ledger)], now_ms=0)


def fold_all(store: Store, most_points: int = 1000) -> None:
    while store.upkeep.fold(most_points=most_points).more:
        pass


def roll_slice(store: Store, slice_series: int = 1) -> bool:
    return store.upkeep.roll(now_ms=2 * 86_400_000, delay_s=0, slice_series=slice_series)


def assert_exact(store: Store, batches: int = BATCHES) -> None:
    """By series, which the points give, and over all, which the sums give."""
    each = batches * EACH
    with store.snapshots.take() as snapshot:
        meter = store.registry.meter("main", "events")
        found = snapshot.read(Question(meter, by=("event",), step_s=3600))
        assert [row[:3] for row in found.rows()] == [(series, hour, each) for series in SERIES for hour in HOURS]
        found = snapshot.read(Question(meter, step_s=3600))
        assert [row[:2] for row in found.rows()] == [(hour, each * len(SERIES)) for hour in HOURS]


@pytest.mark.parametrize("slices", [1, 2])
def test_a_fold_goes_on_after_the_restart_of_its_keeper(make_stores: Callable[[int], Stores], slices: int) -> None:
    stores = make_stores(0)
    first = stores.open()
    filled(first)
    for _ in range(slices):
        first.upkeep.fold(most_points=1)
    assert_exact(first)
    first.close()
    again = stores.open()
    assert again.upkeep.marks().folded < again.snapshots.journal_end(), "nothing was left to fold"
    assert_exact(again)
    fold_all(again, most_points=1)
    assert again.upkeep.marks().folded == again.snapshots.journal_end()
    assert_exact(again)


@pytest.mark.parametrize("slices_before", [0, 1], ids=["at its beginning", "between two slices"])
@pytest.mark.parametrize("all_of_it", [True, False], ids=["folds all", "folds a slice"])
def test_another_keeper_that_folds_at_any_moment_of_a_fold_changes_no_count(
    make_stores: Callable[[int], Stores], slices_before: int, all_of_it: bool
) -> None:
    moment = met = 0
    while met == moment:
        moment += 1
        met = meet_at(make_stores(moment), moment, slices_before, all_of_it)
    assert moment > 5, "the two hardly met"


def meet_at(stores: Stores, moment: int, slices_before: int, all_of_it: bool) -> int:
    """Lets another keeper fold before this statement of a fold; how many statements the fold came to by then."""
    seen: list[None] = []
    watching = False

    def before() -> None:
        if watching and len(seen) < moment:
            seen.append(None)
            if len(seen) == moment:
                fold_all(other) if all_of_it else other.upkeep.fold(most_points=1)

    keeper, other = stores.open(before), stores.open()
    filled(keeper)
    for _ in range(slices_before):
        keeper.upkeep.fold(most_points=1)
    watching = True
    keeper.upkeep.fold(most_points=3)
    watching = False
    for store in (keeper, other):
        assert_exact(store)
    # Whoever met the other one is not stopped by it.
    fold_all(keeper)
    assert keeper.upkeep.marks().folded == keeper.snapshots.journal_end()
    for store in (keeper, other):
        assert_exact(store)
        store.close()
    return len(seen)


def test_a_fold_that_another_keeper_ends_takes_no_batch_that_came_later(make_stores: Callable[[int], Stores]) -> None:
    stores = make_stores(0)
    first, second = stores.open(), stores.open()
    filled(first)
    first.upkeep.fold(most_points=len(HOURS) + 1)
    apply_batch(first, BATCHES)
    fold_all(second)
    assert second.upkeep.marks().folded == BATCHES
    for folded in (BATCHES, BATCHES + 1):
        assert second.upkeep.marks().folded == folded
        assert_exact(second, BATCHES + 1)
        fold_all(second)


def test_no_hour_is_rolled_from_half_a_fold(make_stores: Callable[[int], Stores]) -> None:
    stores = make_stores(0)
    first, second = stores.open(), stores.open()
    filled(first)
    first.upkeep.fold(most_points=1)
    slices = 0
    while roll_slice(second):
        slices += 1
        for store in (first, second):
            assert_exact(store)
    assert slices > len(HOURS)
    fold_all(second)
    assert_exact(second)


@pytest.mark.parametrize("rolls", [False, True], ids=["folds", "folds and rolls"])
def test_another_keeper_at_work_at_any_moment_of_a_roll_changes_no_count(
    make_stores: Callable[[int], Stores], rolls: bool
) -> None:
    moment = met = 0
    while met == moment:
        moment += 1
        met = meet_a_roll_at(make_stores(moment), moment, rolls)
    assert moment > 2, "the two hardly met"


def meet_a_roll_at(stores: Stores, moment: int, rolls: bool) -> int:
    """Lets another keeper fold a late batch before this statement of a roll; how many the roll came to by then."""
    seen: list[None] = []
    watching = False

    def before() -> None:
        if watching and len(seen) < moment:
            seen.append(None)
            if len(seen) == moment:
                fold_all(other)
                while rolls and roll_slice(other, slice_series=1000):
                    pass

    keeper, other = stores.open(before), stores.open()
    filled(keeper)
    fold_all(keeper)
    apply_batch(keeper, BATCHES)
    watching = True
    while len(seen) < moment and roll_slice(keeper, slice_series=1000):
        pass
    watching = False
    fold_all(keeper)
    while roll_slice(keeper, slice_series=1000):
        assert_exact(keeper, BATCHES + 1)
    for store in (keeper, other):
        assert_exact(store, BATCHES + 1)
        store.close()
    return len(seen)
