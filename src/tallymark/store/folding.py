"""Folding and rolling as pure plans: what goes where. Each store has a writer that carries them out.

A fold takes batches of the journal into the points. A roll sums closed buckets of one grain into the next coarser one.
A late point goes into every grain whose bucket is rolled already; the other buckets are noted as still to roll.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S, ROLLED, floor

MOST_BYTES = 80_000_000
"""of deltas merged in one fold: the more batches it spans, the fewer times a point is written"""

Batch = tuple[int, pl.DataFrame]
"""(sequence, deltas)"""
Bucket = tuple[int, int]
"""(grain, start in epoch seconds)"""


@dataclass(frozen=True, slots=True)
class Level:
    """A grain that is made from a finer one."""

    grain_s: int
    finer_s: int


LEVELS = (Level(HOUR_S, MINUTE_S), Level(DAY_S, HOUR_S))
"""finer ones first"""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A bucket being rolled: the rows for which `is_passed` holds are in the coarser grain already."""

    bucket_s: int
    is_passed: pl.Expr


@dataclass(frozen=True, slots=True)
class FoldPlan:
    parts: tuple[tuple[int, pl.DataFrame], ...]
    """(grain, rows to add), the finest first; none of them empty"""
    unrolled: frozenset[Bucket]
    """coarse buckets that the rows leave to be rolled"""
    first_s: int
    """the earliest bucket that holds points, with these"""
    last_s: int


def gather(waiting: Iterable[Batch], *, whole: bool) -> tuple[list[Batch], bool]:
    """The batches of one fold; True beside them if more were waiting than one fold takes.

    A fold under way is taken `whole`, whatever its size: it was planned over all of it.
    """
    gathered: list[Batch] = []
    size = 0.0
    for sequence, frame in waiting:
        if not whole and gathered and size + frame.estimated_size() > MOST_BYTES:
            return gathered, True
        gathered.append((sequence, frame))
        size += frame.estimated_size()
    return gathered, False


def plan_fold(
    points: pl.DataFrame,
    *,
    rolled: Mapping[int, int],
    under_way: Mapping[int, UnderWay],
    first_s: int,
    last_s: int,
    coarser: Callable[[pl.DataFrame, int], pl.DataFrame],
) -> FoldPlan:
    """For these points of the finest grain. `rolled` and the bounds are those of `Marks`, `under_way` is by grain."""
    if points.is_empty():
        return FoldPlan((), frozenset(), first_s, last_s)
    parts = [(MINUTE_S, points)]
    unrolled: set[Bucket] = set()
    late = points
    for level in LEVELS:
        unrolled |= _to_roll(late, level.grain_s, rolled[level.grain_s])
        late = late.filter(_is_rolled(level.grain_s, rolled[level.grain_s], under_way.get(level.grain_s)))
        if late.is_empty():
            break
        parts.append((level.grain_s, coarser(late, level.grain_s)))
    first, last = points.select(first=pl.col("bucket_s").min(), last=pl.col("bucket_s").max()).row(0)
    return FoldPlan(tuple(parts), frozenset(unrolled), min(first_s, first), max(last_s, last))


def closed_through(level: Level, *, rolled: Mapping[int, int], time_s: int) -> int:
    """Buckets before this may be rolled: their end has passed, and all that they are made from is rolled itself."""
    return floor(rolled[level.finer_s] if level.finer_s in ROLLED else time_s, level.grain_s)


def left_to_roll(level: Level, bucket_s: int) -> frozenset[Bucket]:
    """The coarser bucket that is to be rolled once this one is done."""
    return frozenset((each.grain_s, floor(bucket_s, each.grain_s)) for each in LEVELS if each.finer_s == level.grain_s)


def _is_rolled(grain_s: int, through: int, under_way: UnderWay | None) -> pl.Expr:
    """Below the mark, or in the bucket now being rolled and already passed there."""
    bucket = pl.col("bucket_s") // grain_s * grain_s
    rolled = bucket < through
    return rolled if under_way is None else rolled | ((bucket == under_way.bucket_s) & under_way.is_passed)


def _to_roll(points: pl.DataFrame, grain_s: int, through: int) -> set[Bucket]:
    buckets = (points["bucket_s"] // grain_s * grain_s).unique()
    return {(grain_s, bucket) for bucket in buckets if bucket >= through}
