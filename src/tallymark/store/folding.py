"""Folding and rolling as pure plans: what goes where. Each store has a writer that carries them out.

A fold takes batches of the journal into the points, each set's into those of its base grain. A roll sums closed buckets
of one grain into the next coarser one. A mark never lies beyond that of the finer grain which feeds it.
A late point goes into every grain whose bucket is rolled already; the other buckets are noted as still to roll.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S, SECOND_S, TEN_SECONDS_S, floor

MOST_BYTES = 80_000_000
"""of deltas merged in one fold: the more batches it spans, the fewer times a point is written"""

Batch = tuple[int, pl.DataFrame]
"""(sequence, deltas)"""
Bucket = tuple[int, int]
"""(grain, start in epoch seconds)"""


@dataclass(frozen=True, slots=True)
class Level:
    """A grain that is made from finer ones."""

    grain_s: int
    sources_s: tuple[int, ...]
    """a set has points of one of them"""
    moves_by_s: int
    """how far its mark moves while there is nothing to roll: that of minutes only when an hour wants to close, since
    most stores have no meter that is counted by the second, and a mark costs a write"""

    @property
    def made_from_bases(self) -> bool:
        """Whether each set has points of the source that is its base, and a set of this grain has none."""
        return self.grain_s == MINUTE_S

    def source_of(self, base_s: int) -> int | None:
        """The grain that a set with this base is rolled from; None if it has these points from the fold."""
        if not self.made_from_bases:
            return self.sources_s[0]
        return base_s if base_s in self.sources_s else None


LEVELS = (
    Level(MINUTE_S, (SECOND_S, TEN_SECONDS_S), moves_by_s=HOUR_S),
    Level(HOUR_S, (MINUTE_S,), moves_by_s=HOUR_S),
    Level(DAY_S, (HOUR_S,), moves_by_s=DAY_S),
)
"""finer ones first"""


class Part(NamedTuple):
    """Points to add to those of one grain; no two parts of a plan have the same series."""

    grain_s: int
    rows: pl.DataFrame
    is_base: bool
    """they were counted in this grain; the others are late, and their grain is rolled already"""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A bucket being rolled: the rows for which `is_passed` holds are in the coarser grain already."""

    bucket_s: int
    is_passed: pl.Expr


@dataclass(frozen=True, slots=True)
class FoldPlan:
    parts: tuple[Part, ...]
    """none of them empty"""
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


def by_base(points: pl.DataFrame, grains: Mapping[int, int]) -> dict[int, pl.DataFrame]:
    """Base grain -> the points of the sets that have it; `grains` has the base of each set that is not of minutes."""
    fine = [(meter, grains[meter]) for meter in points["meter"].unique() if meter in grains]
    if not fine:
        return {MINUTE_S: points}
    found = {
        base_s: points.filter(pl.col("meter").is_in([meter for meter, each in fine if each == base_s]))
        for base_s in {each for _, each in fine}
    }
    return found | {MINUTE_S: points.filter(~pl.col("meter").is_in([meter for meter, _ in fine]))}


def plan_fold(
    points: Mapping[int, pl.DataFrame],
    *,
    rolled: Mapping[int, int],
    under_way: Mapping[int, UnderWay],
    first_s: int,
    last_s: int,
    coarser: Callable[[pl.DataFrame, int], pl.DataFrame],
) -> FoldPlan:
    """For these points by base grain. `rolled` and the bounds are those of `Marks`, `under_way` is by grain."""
    filled = {base_s: rows for base_s, rows in sorted(points.items()) if not rows.is_empty()}
    if not filled:
        return FoldPlan((), frozenset(), first_s, last_s)
    parts = [Part(base_s, rows, is_base=True) for base_s, rows in filled.items()]
    unrolled: set[Bucket] = set()
    late: list[pl.DataFrame] = []
    for level in LEVELS:
        feeding = late + [rows for base_s, rows in filled.items() if base_s in level.sources_s]
        if not feeding:
            continue
        arrived = pl.concat(feeding)
        through = rolled[level.grain_s]
        unrolled |= _to_roll(arrived, level.grain_s, through)
        passed = arrived.filter(_is_rolled(level.grain_s, through, under_way.get(level.grain_s)))
        late = [] if passed.is_empty() else [passed]
        if late:
            parts.append(Part(level.grain_s, coarser(passed, level.grain_s), is_base=False))
    bounds = pl.concat(
        [rows.select(first=pl.col("bucket_s").min(), last=pl.col("bucket_s").max()) for rows in filled.values()]
    )
    first, last = bounds.select(pl.col("first").min(), pl.col("last").max()).row(0)
    return FoldPlan(tuple(parts), frozenset(unrolled), min(first_s, first), max(last_s, last))


def closed_through(level: Level, *, rolled: Mapping[int, int], time_s: int) -> int:
    """Buckets before this may be rolled: their end has passed, and all that they are made from is rolled itself."""
    return floor(time_s if level.made_from_bases else rolled[level.sources_s[0]], level.grain_s)


def moves_to(level: Level, *, closed_s: int, lowest_s: int | None) -> int:
    """Where the mark goes before the next bucket is rolled, `lowest_s`; None if there is nothing to roll."""
    return floor(closed_s, level.moves_by_s) if lowest_s is None else lowest_s


def left_to_roll(level: Level, bucket_s: int) -> frozenset[Bucket]:
    """The coarser bucket that is to be rolled once this one is done."""
    return frozenset(
        (each.grain_s, floor(bucket_s, each.grain_s)) for each in LEVELS if level.grain_s in each.sources_s
    )


def _is_rolled(grain_s: int, through: int, under_way: UnderWay | None) -> pl.Expr:
    """Below the mark, or in the bucket now being rolled and already passed there."""
    bucket = pl.col("bucket_s") // grain_s * grain_s
    rolled = bucket < through
    return rolled if under_way is None else rolled | ((bucket == under_way.bucket_s) & under_way.is_passed)


def _to_roll(points: pl.DataFrame, grain_s: int, through: int) -> set[Bucket]:
    buckets = (points["bucket_s"] // grain_s * grain_s).unique()
    return {(grain_s, bucket) for bucket in buckets if bucket >= through}
