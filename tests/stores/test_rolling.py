"""Late deltas and the marks: the corners where an hour or a day could be forgotten or rolled twice."""

from typing import Any

import pytest

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import Store
from tallymark.store.read_plan import Question

MIDNIGHT = 20_000 * DAY_S


def count(store: Store, *events: tuple[str, int]) -> None:
    """Applies and folds one event for each (series, time)."""
    start = store.sink.applied("log").get(0, 0)
    cells = [(1, series, time_s // 60 * 60, 1, 0, None, None, None, None, None) for series, time_s in events]
    frame = deltas.merge([deltas.from_rows(cells)])
    ledger = Ledger(accepted=len(events), counted=len(events))
    stretch = Stretch(0, start, start + len(events))
    store.sink.apply([StretchResult(stretch, "log", 1, (1,), deltas.encode(frame), ledger)], now_ms=0)
    store.upkeep.fold(most_points=1000)


def roll(store: Store, now_s: int, *, slices: int | None = None, slice_series: int = 1) -> None:
    done = 0
    while slices is None or done < slices:
        if not store.upkeep.roll(now_ms=now_s * 1000, delay_s=120, slice_series=slice_series):
            return
        done += 1


def sums(store: Store) -> list[int]:
    """Of minutes, hours, days and all time, over all series and series by series."""
    events = store.registry.meter("main", "events")
    with store.snapshots.take() as snapshot:
        return [
            snapshot.read(Question(events, by=by, step_s=step_s))["n"].sum()
            for step_s in (60, HOUR_S, DAY_S, None)
            for by in ((), ("event",))
        ]


def test_a_late_delta_into_an_empty_hour_before_the_one_in_progress(store: Store) -> None:
    #   8:00     9:00     10:00    11:00
    #   [ rolled )[ empty )[ half rolled )
    #                ^ late
    count(store, ("a", MIDNIGHT + 8 * HOUR_S))
    roll(store, MIDNIGHT + 9 * HOUR_S + 120)
    count(store, ("a", MIDNIGHT + 10 * HOUR_S), ("b", MIDNIGHT + 10 * HOUR_S))
    later = MIDNIGHT + 11 * HOUR_S + 120
    roll(store, later, slices=2)
    assert store.upkeep.marks().rolled[HOUR_S] == MIDNIGHT + 10 * HOUR_S
    count(store, ("a", MIDNIGHT + 9 * HOUR_S), ("b", MIDNIGHT + 9 * HOUR_S))
    assert sums(store) == [5] * 8
    roll(store, later)
    assert store.upkeep.marks().rolled[HOUR_S] == MIDNIGHT + 11 * HOUR_S
    assert sums(store) == [5] * 8


def test_a_late_delta_into_a_quiet_day_whose_hours_have_passed(store: Store) -> None:
    roll(store, MIDNIGHT + 10 * HOUR_S + 120)
    assert store.upkeep.marks().rolled[HOUR_S] == MIDNIGHT + 10 * HOUR_S
    count(store, ("a", MIDNIGHT + 8 * HOUR_S))
    roll(store, MIDNIGHT + 2 * DAY_S)
    assert store.upkeep.marks().rolled[DAY_S] > MIDNIGHT
    assert sums(store) == [1] * 8


def test_a_late_delta_into_a_rolled_day(store: Store) -> None:
    count(store, ("a", MIDNIGHT + 8 * HOUR_S))
    roll(store, MIDNIGHT + 2 * DAY_S)
    assert store.upkeep.marks().rolled[DAY_S] > MIDNIGHT
    for late in (("a", MIDNIGHT + 8 * HOUR_S), ("b", MIDNIGHT + 9 * HOUR_S)):
        count(store, late)
    assert sums(store) == [3] * 8


def test_a_series_made_while_its_hour_is_being_rolled(store: Store) -> None:
    count(store, ("a", MIDNIGHT), ("b", MIDNIGHT))
    roll(store, MIDNIGHT + HOUR_S + 120, slices=1, slice_series=2)  # of three: a, b and the sum
    count(store, ("c", MIDNIGHT), ("a", MIDNIGHT))
    roll(store, MIDNIGHT + HOUR_S + 120)
    assert store.upkeep.marks().rolled[HOUR_S] == MIDNIGHT + HOUR_S
    assert sums(store) == [4] * 8


@pytest.mark.parametrize("delay", [-1, 0])
def test_an_hour_is_rolled_when_its_delay_has_passed(store: Store, delay: int) -> None:
    count(store, ("a", MIDNIGHT))
    roll(store, MIDNIGHT + HOUR_S + 120 + delay)
    assert (store.upkeep.marks().rolled[HOUR_S] >= MIDNIGHT + HOUR_S) is (delay == 0)


def test_marks_never_go_back_with_the_clock(store: Store) -> None:
    count(store, ("a", MIDNIGHT))
    roll(store, MIDNIGHT + 5 * HOUR_S)
    marks = store.upkeep.marks()
    assert marks.rolled[HOUR_S] == MIDNIGHT + 4 * HOUR_S
    roll(store, MIDNIGHT)
    assert store.upkeep.marks() == marks


def test_an_event_from_the_future_waits_for_its_hour(store: Store) -> None:
    count(store, ("a", MIDNIGHT + 30 * DAY_S), ("a", MIDNIGHT))
    roll(store, MIDNIGHT + 2 * HOUR_S)
    assert store.upkeep.marks().rolled[HOUR_S] == MIDNIGHT + HOUR_S
    count(store, ("a", MIDNIGHT + HOUR_S))
    assert sums(store) == [3] * 8
    roll(store, MIDNIGHT + 40 * DAY_S)
    assert sums(store) == [3] * 8


@pytest.mark.parametrize("grain_s", [1, 10, 60])
def test_a_keeper_that_starts_anew_adds_to_the_points_that_are_there(stores: Any, grain_s: int) -> None:
    store = stores.open()
    meter = store.registry.put_meter("main", Meter("calls", ("call",), ("server",), grain_s=grain_s), now_ms=0)
    at_s = MIDNIGHT + 60
    for number in range(3):
        # The last one is late: the minute is rolled.
        keeper = stores.open()
        frame = deltas.from_rows([(meter.set_id, "web-1", at_s, 1), (meter.set_id, "web-1", at_s + 60, 1)])
        stretch, ledger = Stretch(0, number, number + 1), Ledger(accepted=1, counted=1)
        store.sink.apply([StretchResult(stretch, "log", 1, (1,), deltas.encode(frame), ledger)], now_ms=0)
        keeper.upkeep.fold(most_points=1000)
        if number == 1:
            roll(keeper, at_s + 60 + 120)
            assert keeper.upkeep.marks().rolled[MINUTE_S] == (MIDNIGHT if grain_s == 60 else at_s + 60)
        with store.snapshots.take() as snapshot:
            for step_s in (grain_s, MINUTE_S, HOUR_S, None):
                for by in ((), ("server",)):
                    found = snapshot.read(Question(meter, by=by, step_s=step_s))["n"].to_list()
                    assert found == ([number + 1] * 2 if step_s in (grain_s, MINUTE_S) else [2 * (number + 1)])


def test_no_mark_moves_while_an_hour_is_open_and_nothing_is_finer_than_a_minute(store: Store) -> None:
    count(store, ("a", MIDNIGHT + 60))
    roll(store, MIDNIGHT + 130)
    marks = store.upkeep.marks()
    assert not store.upkeep.roll(now_ms=(MIDNIGHT + HOUR_S + 119) * 1000, delay_s=120, slice_series=10)
    assert store.upkeep.marks() == marks
    assert marks.rolled[MINUTE_S] == MIDNIGHT
