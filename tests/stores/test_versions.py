"""A version that changes only what is computed goes on with the numbers of the one before it."""

from dataclasses import replace
from itertools import count
from typing import Any

import polars as pl
import pytest

from tallymark.aggregates import columns
from tallymark.evaluation.values import largest, values
from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S
from tallymark.store.model import Gap, Ledger, RegisteredMeter, Stretch, StretchResult, label_column
from tallymark.store.read_plan import Question

MIDNIGHT = 1_700_006_400
LEVEL = Meter("level", ("level",), ("tank",), ("count",))
NOW_MS = (MIDNIGHT + 3 * DAY_S) * 1000


class Counting:
    """Applies batches of (tank, second of the day, value) as a version of the meter counts them."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._batches = count()

    def apply(self, registered: RegisteredMeter, *events: tuple[str, int, float]) -> None:
        computes = set(registered.meter.compute)
        body = [
            {
                **columns.NOTHING,
                "meter": registered.set_id,
                "series": tank,
                "bucket_s": (MIDNIGHT + at) // MINUTE_S * MINUTE_S,
                "n": 1,
                "n_value": int(computes != {"count"}),
                "sum": value if computes & {"sum", "avg"} else None,
                "max": value if "max" in computes else None,
                "version": registered.counts_as,
            }
            for tank, at, value in events
        ]
        frame = deltas.merge([pl.DataFrame(body, schema=deltas.SCHEMA)])
        at = next(self._batches)
        ledger = Ledger(accepted=len(events), counted=len(events))
        self.store.sink.apply(
            [StretchResult(Stretch(0, at, at + 1), "log", 1, (registered.meter_id,), deltas.encode(frame), ledger)],
            now_ms=0,
        )

    def put(self, *compute: str, **changes: Any) -> RegisteredMeter:
        return self.store.registry.put_meter("main", replace(LEVEL, compute=compute, **changes), now_ms=0)

    def read(self, registered: RegisteredMeter, step_s: int | None = None, by: tuple[str, ...] = ()) -> dict[Any, Any]:
        with self.store.snapshots.take() as snapshot:
            frame = snapshot.read(Question(registered, by=by, step_s=step_s))
        keys = [*map(label_column, by), *(["bucket_s"] if step_s else [])]
        found = values(frame, registered.meter.compute, registered)
        of_rows = zip(frame.select(keys).rows() if keys else [()], found, strict=True)
        return {key[0] if len(key) == 1 else key: value for key, value in of_rows}

    def settle(self, how: str) -> None:
        if how in ("folded", "rolled"):
            while self.store.upkeep.fold(most_points=100).more:
                pass
        if how == "rolled":
            while self.store.upkeep.roll(now_ms=NOW_MS, delay_s=0, slice_series=100):
                pass


@pytest.fixture
def counting(store):
    return Counting(store)


def test_its_numbers_go_on_and_what_is_new_is_null_before_it(counting):
    first = counting.put("count")
    counting.apply(first, ("north", 10, 4.0), ("north", DAY_S, 8.0))
    second = counting.put("count", "sum")
    assert (second.version, second.set_id) == (2, first.meter_id)
    counting.apply(second, ("north", DAY_S + HOUR_S, 16.0), ("north", DAY_S + HOUR_S, 32.0))
    for how in ("waiting", "folded", "rolled"):
        counting.settle(how)
        assert counting.read(second) == {(): {"count": 4, "sum": None}}, how
        assert counting.read(second, DAY_S) == {
            MIDNIGHT: {"count": 1, "sum": None},
            MIDNIGHT + DAY_S: {"count": 3, "sum": None},
        }
        assert counting.read(second, HOUR_S)[MIDNIGHT + DAY_S + HOUR_S] == {"count": 2, "sum": 48.0}
        assert counting.read(second, HOUR_S)[MIDNIGHT + DAY_S] == {"count": 1, "sum": None}


@pytest.mark.parametrize("how", ["waiting", "folded", "rolled"])
@pytest.mark.parametrize("then", ["waiting", "folded", "rolled"])
def test_a_batch_of_the_old_version_that_comes_late_takes_from_its_bucket_what_it_lacks(counting, how, then):
    first, second = counting.put("count"), counting.put("count", "sum", "max")
    counting.apply(second, ("north", 10, 4.0), ("south", 20, 9.0))
    counting.settle(how)
    assert counting.read(second) == {(): {"count": 2, "sum": 13.0, "max": 9.0}}
    counting.apply(first, ("north", 30, 1.0))  # planned before there was a second one
    counting.settle(then)
    assert counting.read(second) == {(): {"count": 3, "sum": None, "max": None}}
    assert counting.read(second, by=("tank",)) == {
        "north": {"count": 2, "sum": None, "max": None},
        "south": {"count": 1, "sum": 9.0, "max": 9.0},
    }
    with counting.store.snapshots.take() as snapshot:
        frame = snapshot.read(Question(second, by=["tank"]))
    ranked = largest(frame, [label_column("tank")], "sum", second, most=2)
    assert ranked[label_column("tank")].to_list() == ["south", "north"]


def test_what_was_kept_all_along_is_not_new(counting):
    first = counting.put("sum")
    counting.apply(first, ("north", 10, 4.0))
    second = counting.put("count", "sum", "avg")
    assert second.added == {}
    assert counting.read(second) == {(): {"count": 1, "sum": 4.0, "avg": 4.0}}


def test_what_was_left_out_for_a_version_is_null_before_it_came_back(counting):
    counting.apply(counting.put("count", "sum", "max"), ("north", 10, 4.0))
    counting.apply(counting.put("count", "max"), ("north", 20, 5.0))
    third = counting.put("count", "sum", "max")
    counting.apply(third, ("south", 30, 6.0))
    assert (third.version, third.added) == (3, {"sum": (3, 0)})
    counting.settle("rolled")
    assert counting.read(third) == {(): {"count": 3, "sum": None, "max": 6.0}}
    assert counting.read(third, by=("tank",))["south"] == {"count": 1, "sum": 6.0, "max": 6.0}


@pytest.mark.parametrize(
    "changes",
    [{"events": ("depth",)}, {"by": ("site",)}, {"where": "x > 1"}, {"value": "x"}, {"decimals": 2}],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_changes_what_is_counted_begins_from_nothing(counting, changes):
    counting.apply(counting.put("count"), ("north", 10, 4.0))
    other = counting.put("count", **changes)
    assert (other.version, other.set_id) == (2, other.meter_id)
    assert counting.read(other) == {(): {"count": 0}}


def test_so_does_a_meter_that_was_deleted_in_between(counting):
    counting.apply(counting.put("count"), ("north", 10, 4.0))
    counting.store.registry.delete_meter("main", "level", now_ms=1)
    again = counting.put("count", "sum")
    assert (again.version, again.added) == (2, {})
    assert counting.read(again) == {(): {"count": 0, "sum": 0.0}}


def test_what_the_old_version_missed_is_missing_from_the_new_one_too(counting):
    first = counting.put("count")
    counting.apply(first, ("north", 10, 4.0))
    nothing = StretchResult(Stretch(1, 0, 3), "log", 1, (first.meter_id,), b"", Ledger(accepted=3, counted=3))
    counting.store.sink.apply([replace(nothing, broken={first.meter_id: "why"}, missed={first.meter_id: 3})], now_ms=0)
    second = counting.put("count", "sum")
    assert (second.broken, second.missed) == (None, 3)
    assert counting.store.registry.gaps(second.meter_id) == [Gap(1, 0, 3, 3)]
    third = counting.put("count", where="x > 1")
    assert (third.missed, counting.store.registry.gaps(third.meter_id)) == (0, [])


def test_where_nothing_was_counted_nothing_is_missing(counting):
    counting.put("count")
    assert counting.read(counting.put("count", "sum")) == {(): {"count": 0, "sum": 0.0}}


def test_versions_are_read_only_for_what_came_later(counting):
    counting.put("count", "max")
    second = counting.put("count", "max", "sum")
    read = {name: Question(second, functions=[name]).columns for name in ("count", "max", "rate", "sum", "avg")}
    assert {name for name, columns in read.items() if "version" in columns} == {"sum", "avg"}
