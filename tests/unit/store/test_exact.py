"""Sums of money beyond 64 bits: those of Python's integers, in the journal, the points, every grain and answer."""

import random
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates import exact
from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.read_plan import Question
from tallymark.store.sqlite.store import SqliteStore

MIDNIGHT = 20_000 * DAY_S
MONEY = Meter("money", ("sale",), by=("shop",), compute=("count", "sum"), decimals=2)
LARGE = 9 * 10**15  # 90,000,000,000,000.00


@given(st.integers(-(2**95), 2**95 - 1))
def test_the_parts_are_the_whole(units: int) -> None:
    high, low = exact.split(units)
    assert (exact.whole(high, low), 0 <= low < 2**32, -(2**63) <= high < 2**63) == (units, True, True)


def sell(store: SqliteStore, amounts: list[tuple[int, int]], *, now_ms: int = 0) -> None:
    """Applies one batch of (seconds of the day, units), by two shops in turn."""
    meter = store.registry.meter("main", "money")
    start = store.sink.applied("log").get(0, 0)
    cells = [
        (meter.meter_id, f"shop {place % 2}", MIDNIGHT + time_s // 60 * 60, 1, 1, None, *exact.split(units), None, None)
        for place, (time_s, units) in enumerate(amounts)
    ]
    merged = deltas.merge([deltas.from_rows(cells)])
    ledger = Ledger(accepted=len(amounts), counted=len(amounts))
    stretch = Stretch(0, start, start + len(amounts))
    store.sink.apply([StretchResult(stretch, "log", 2, (1, 2), deltas.encode(merged), ledger)], now_ms=now_ms)


def answers(store: SqliteStore) -> set[int]:
    """The sum of everything: as one number, by shop, by minute, hour and day."""
    found = set()
    with store.snapshots.take() as snapshot:
        for step_s in (None, 60, HOUR_S, DAY_S):
            for by in ((), ("shop",)):
                answer = snapshot.read(Question(store.registry.meter("main", "money"), by=by, step_s=step_s)).select(
                    *exact.PARTS
                )
                found.add(sum(exact.whole(*row) or 0 for row in answer.rows()))
    return found


@pytest.mark.parametrize("signs", [(1,), (-1,), (1, 1, -1)], ids=["in", "out", "both"])
def test_five_thousand_of_the_largest_amounts_through_fold_and_roll(store: SqliteStore, signs: tuple[int, ...]) -> None:
    store.registry.put_meter("main", MONEY, now_ms=0)
    chance = random.Random(7)
    sales = [(chance.randrange(3 * HOUR_S), chance.choice(signs) * (LARGE + n)) for n in range(5000)]
    expected = sum(units for _, units in sales)
    assert abs(expected) > 2**63
    for begin in range(0, 4000, 1000):
        sell(store, sales[begin : begin + 1000])
    while store.upkeep.fold(most_points=50).more:
        pass
    rolled = {"now_ms": (MIDNIGHT + 2 * DAY_S) * 1000, "delay_s": 0, "slice_series": 2}
    while store.upkeep.roll(**rolled):
        pass
    assert store.upkeep.marks().rolled[DAY_S] > MIDNIGHT
    sell(store, sales[4000:])  # late, beside what is rolled: in the journal first, then added to hours and days
    assert answers(store) == {expected}
    while store.upkeep.fold(most_points=50).more:
        pass
    assert answers(store) == {expected}
    with closing(sqlite3.connect(store.path)) as file:
        for grain_s in (MINUTE_S, HOUR_S, DAY_S):
            lows = file.execute(f"SELECT MIN(exact_low), MAX(exact_low), COUNT(*) FROM points_{grain_s}").fetchone()
            assert (lows[0] >= 0, lows[1] < 2**32, lows[2] > 0) == (True, True, True)  # carried, so it never fills up


def test_a_meter_of_huge_sums_does_not_keep_the_others_from_being_rolled(store: SqliteStore) -> None:
    store.registry.put_meter("main", MONEY, now_ms=0)
    for _ in range(3):
        sell(store, [(n % 3600, 2**53 - 1) for n in range(1200)])
        store.upkeep.fold(most_points=10_000)
    while store.upkeep.roll(now_ms=(MIDNIGHT + 2 * HOUR_S) * 1000, delay_s=0, slice_series=100):
        pass
    assert store.upkeep.marks().rolled[HOUR_S] == MIDNIGHT + 2 * HOUR_S
    assert answers(store) == {3600 * (2**53 - 1)}
