"""Admission: which series a meter with `max_series` has, decided in the order in which they were counted.

A series is admitted in the first batch that has it, if there is room then; within a batch in the order of their texts.
One that is not counts as the series whose labels are all `__other__`, for ever: there is never room again. So whether a
batch's series are admitted depends on the journal alone, and may be found out with any list that has at least those
admitted before that batch and at most those that are ever admitted. That is why the store's list of series will do at
any moment: while a fold is under way, after one that was broken off, and for a reader that is behind.
"""

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import polars as pl

from tallymark.store.folding import Batch
from tallymark.store.point_sets import Limit


def admit(known: AbstractSet[str], batches: Iterable[pl.Series], most: int) -> list[str]:
    """The series that these batches add to those known, in order; each batch is the series that it has."""
    admitted: dict[str, None] = {}
    for series in batches:
        room = most - len(known) - len(admitted)
        if room <= 0:
            break
        fresh = (each for each in series.unique().sort() if each not in known and each not in admitted)
        admitted |= dict.fromkeys(islice(fresh, room))
    return list(admitted)


@dataclass(frozen=True, slots=True)
class Source:
    """What a store knows at one moment."""

    folded: int
    """its points have the batches up to this one"""
    limits: Callable[[Collection[int]], Mapping[int, Limit]]
    """those of at least these sets, as far as they have one"""
    series: Callable[[int], Iterable[str]]
    """of a set, all that its points have, perhaps some that were admitted since"""
    batches: Callable[[int, int], Iterable[Batch]]
    """those after one sequence up to another, as they were counted"""


@dataclass(slots=True)
class _Known:
    series: set[str] = field(default_factory=set)
    """without `__other__`"""
    through: int = -1
    """they are at least those that were admitted up to this batch"""


class Admission:
    """Remembers who was admitted, for all readers of a process; costs meters without a limit nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}

    def applied(self, batches: Generator[Batch], source: Source) -> Generator[Batch]:
        """The same batches, in order, in which series that were not admitted go by the other name."""
        with closing(batches):
            for sequence, frame in batches:
                yield sequence, self._renamed(sequence, frame, source)

    def _renamed(self, sequence: int, frame: pl.DataFrame, source: Source) -> pl.DataFrame:
        sets = np.unique(frame["meter"].to_numpy()).tolist()
        limits = source.limits(sets)
        for set_id in sets:
            if set_id in limits:
                refused = self._refused(
                    sequence, _series(frame, set_id, limits[set_id]), set_id, limits[set_id], source
                )
                is_other = (pl.col("meter") == set_id) & pl.col("series").is_in(refused)
                other = pl.lit(limits[set_id].other)
                frame = frame.with_columns(pl.when(is_other).then(other).otherwise("series").alias("series"))
        return frame

    def _refused(self, sequence: int, series: pl.Series, set_id: int, limit: Limit, source: Source) -> list[str]:
        with self._lock:
            known = self._known.setdefault(set_id, _Known())
            _catch_up(known, sequence - 1, set_id, limit, source)
            known.series.update(admit(known.series, [series], limit.most))
            known.through = max(known.through, sequence)
            return [each for each in series if each not in known.series]


def _catch_up(known: _Known, through: int, set_id: int, limit: Limit, source: Source) -> None:
    """Until those that were admitted up to this batch are among them, or there is no room anyway."""
    if len(known.series) < limit.most and known.through < min(through, source.folded):
        known.series.update(each for each in source.series(set_id) if each != limit.other)
        known.through = source.folded
    if known.through < through and len(known.series) < limit.most:
        missed = (_series(frame, set_id, limit) for _, frame in source.batches(known.through, through))
        known.series.update(admit(known.series, missed, limit.most))
    known.through = max(known.through, through)


def _series(frame: pl.DataFrame, set_id: int, limit: Limit) -> pl.Series:
    return frame.filter((pl.col("meter") == set_id) & (pl.col("series") != limit.other))["series"].unique()
