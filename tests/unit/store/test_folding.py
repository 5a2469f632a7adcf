"""The plan of a fold and of a roll, which both stores carry out."""

import polars as pl
import pytest

from tallymark.store import folding
from tallymark.store.folding import LEVELS, UnderWay, by_base, closed_through, gather, left_to_roll, moves_to, plan_fold
from tallymark.store.grains import DAY_S, EARLIEST_S, HOUR_S, LATEST_S, MINUTE_S, TEN_SECONDS_S

MINUTES, HOURS, DAYS = LEVELS
NOON = 43_200
"""of the day 0; so is everything below"""


def points(*found: tuple[int, int]) -> pl.DataFrame:
    """(series, bucket)"""
    return pl.DataFrame(found, schema={"series_id": pl.Int64, "bucket_s": pl.Int64}, orient="row")


def coarser(rows: pl.DataFrame, grain_s: int) -> pl.DataFrame:
    return rows.with_columns(pl.col("bucket_s") // grain_s * grain_s).unique(maintain_order=True)


def plan(
    *found: tuple[int, int], hours: int, days: int, minutes: int = 0, base_s: int = MINUTE_S, **under_way: UnderWay
) -> folding.FoldPlan:
    grains = {"minute": MINUTE_S, "hour": HOUR_S, "day": DAY_S}
    return plan_fold(
        {base_s: points(*found)},
        rolled={MINUTE_S: minutes, HOUR_S: hours, DAY_S: days},
        under_way={grains[name]: each for name, each in under_way.items()},
        first_s=NOON,
        last_s=NOON,
        coarser=coarser,
    )


def parts(planned: folding.FoldPlan) -> dict[int, list[tuple[int, ...]]]:
    return {part.grain_s: part.rows.rows() for part in planned.parts}


def test_a_point_of_an_open_hour_leaves_the_hour_to_be_rolled():
    planned = plan((1, NOON + 120), hours=NOON, days=0)
    assert parts(planned) == {MINUTE_S: [(1, NOON + 120)]}
    assert planned.unrolled == {(HOUR_S, NOON)}


def test_a_late_point_goes_where_its_hour_is_rolled_and_leaves_the_day():
    planned = plan((1, NOON - 60), (1, NOON + 60), hours=NOON, days=0)
    assert parts(planned) == {MINUTE_S: [(1, NOON - 60), (1, NOON + 60)], HOUR_S: [(1, NOON - HOUR_S)]}
    assert planned.unrolled == {(HOUR_S, NOON), (DAY_S, 0)}


def test_a_very_late_one_goes_into_the_day_too():
    planned = plan((1, 60), hours=NOON, days=DAY_S)
    assert parts(planned) == {MINUTE_S: [(1, 60)], HOUR_S: [(1, 0)], DAY_S: [(1, 0)]}
    assert planned.unrolled == set()


def test_in_a_bucket_being_rolled_only_what_its_slices_have_passed_is_late():
    passed = UnderWay(NOON, pl.col("series_id") <= 1)
    planned = plan((1, NOON), (2, NOON), hours=NOON, days=0, hour=passed)
    assert parts(planned) == {MINUTE_S: [(1, NOON), (2, NOON)], HOUR_S: [(1, NOON)]}
    assert planned.unrolled == {(HOUR_S, NOON), (DAY_S, 0)}


def test_the_bounds_are_widened_and_never_narrowed():
    planned = plan((1, NOON - 600), hours=0, days=0)
    assert (planned.first_s, planned.last_s) == (NOON - 600, NOON)
    planned = plan((1, NOON + 600), hours=0, days=0)
    assert (planned.first_s, planned.last_s) == (NOON, NOON + 600)


def test_nothing_to_fold_changes_nothing():
    planned = plan_fold(
        {MINUTE_S: points()}, rolled={}, under_way={}, first_s=LATEST_S, last_s=EARLIEST_S, coarser=coarser
    )
    assert (planned.parts, planned.unrolled, planned.first_s, planned.last_s) == ((), set(), LATEST_S, EARLIEST_S)


def test_a_second_of_an_open_minute_leaves_the_minute_and_nothing_coarser():
    planned = plan((1, NOON + 61), base_s=1, minutes=NOON, hours=NOON, days=0)
    assert parts(planned) == {1: [(1, NOON + 61)]}
    assert planned.unrolled == {(MINUTE_S, NOON + 60)}


def test_a_late_second_goes_into_its_minute_and_leaves_the_hour():
    planned = plan((1, NOON + 61), base_s=1, minutes=NOON + 120, hours=NOON, days=0)
    assert parts(planned) == {1: [(1, NOON + 61)], MINUTE_S: [(1, NOON + 60)]}
    assert planned.unrolled == {(HOUR_S, NOON)}


def test_a_very_late_second_goes_into_every_grain():
    planned = plan((1, 61), base_s=1, minutes=DAY_S, hours=DAY_S, days=DAY_S)
    assert parts(planned) == {1: [(1, 61)], MINUTE_S: [(1, 60)], HOUR_S: [(1, 0)], DAY_S: [(1, 0)]}
    assert planned.unrolled == set()


def test_sets_of_different_grains_meet_in_the_coarser_ones_and_never_in_one_part():
    both = {1: points((1, 61)), TEN_SECONDS_S: points((2, 70)), MINUTE_S: points((3, 120))}
    rolled = {MINUTE_S: HOUR_S, HOUR_S: HOUR_S, DAY_S: 0}
    planned = plan_fold(both, rolled=rolled, under_way={}, first_s=NOON, last_s=NOON, coarser=coarser)
    assert [(part.grain_s, part.is_base, part.rows.rows()) for part in planned.parts] == [
        (1, True, [(1, 61)]),
        (10, True, [(2, 70)]),
        (60, True, [(3, 120)]),
        (60, False, [(1, 60), (2, 60)]),
        (3600, False, [(1, 0), (2, 0), (3, 0)]),
    ]
    assert (planned.first_s, planned.last_s) == (61, NOON)


def test_points_are_split_by_the_grain_of_their_set():
    rows = pl.DataFrame({"meter": [1, 2, -2, 3], "bucket_s": [60, 1, 2, 10]})
    found = by_base(rows, {2: 1, -2: 1, 3: 10, 4: 1})
    assert {base_s: part["bucket_s"].to_list() for base_s, part in found.items()} == {1: [1, 2], 10: [10], 60: [60]}


def test_the_mark_of_minutes_moves_only_for_an_hour_or_a_bucket():
    assert moves_to(MINUTES, closed_s=NOON + 120, lowest_s=None) == NOON
    assert moves_to(MINUTES, closed_s=NOON + 120, lowest_s=NOON + 60) == NOON + 60
    assert moves_to(HOURS, closed_s=NOON, lowest_s=None) == NOON


def test_an_hour_is_closed_by_its_minutes_and_a_day_by_its_hours():
    rolled = {MINUTE_S: NOON + 3540, HOUR_S: DAY_S + HOUR_S, DAY_S: 0}
    assert closed_through(MINUTES, rolled=rolled, time_s=NOON + 119) == NOON + 60
    assert closed_through(HOURS, rolled=rolled, time_s=9 * DAY_S) == NOON
    assert closed_through(DAYS, rolled=rolled, time_s=9 * DAY_S) == DAY_S
    assert left_to_roll(MINUTES, NOON + 60) == {(HOUR_S, NOON)}
    assert left_to_roll(HOURS, DAY_S + NOON) == {(DAY_S, DAY_S)}
    assert left_to_roll(DAYS, DAY_S) == set()


@pytest.mark.parametrize("whole", [False, True])
def test_a_fold_takes_as_many_batches_as_it_has_room_for_unless_it_is_under_way(monkeypatch, whole):
    batches = [(number, pl.DataFrame({"n": [0] * 100})) for number in range(1, 6)]
    monkeypatch.setattr(folding, "MOST_BYTES", 2.5 * batches[0][1].estimated_size())
    gathered, cut_short = gather(iter(batches), whole=whole)
    assert [number for number, _ in gathered] == ([1, 2, 3, 4, 5] if whole else [1, 2])
    assert cut_short is not whole


def test_one_batch_is_taken_however_large_it_is(monkeypatch):
    monkeypatch.setattr(folding, "MOST_BYTES", 1)
    assert gather([(1, pl.DataFrame({"n": [0]}))], whole=False)[0]
    assert gather([], whole=False) == ([], False)
