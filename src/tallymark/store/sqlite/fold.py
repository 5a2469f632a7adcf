"""Folding: the journal's oldest entries, merged, become points, in slices of series, each a short transaction.

While a fold is under way its entries are in the points for some series and in the journal for the others. The row in
`folding` says where the border is, and moves with every slice; readers take each series from the one side or the other.
"""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import polars as pl

from tallymark.store import deltas
from tallymark.store.folding import UnderWay, by_base, gather, plan_fold
from tallymark.store.model import Folded, Folding
from tallymark.store.sqlite.connection import writing
from tallymark.store.sqlite.journal import entries
from tallymark.store.sqlite.limited import LimitedJournal
from tallymark.store.sqlite.marks import read_folding, read_mark, read_marks, set_folding, set_mark
from tallymark.store.sqlite.points import add_points, coarser
from tallymark.store.sqlite.series import SeriesKey, SeriesNumbers
from tallymark.store.tail import beyond


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left to write of the fold that `folded` and `folding` speak of."""

    folded: int
    folding: Folding | None
    through: int
    points: pl.DataFrame
    """in the order of (meter, series)"""
    sums: pl.DataFrame
    """over all series of each meter; they go with the first slice"""
    deltas: int
    cut_short: bool


class Fold:
    """Keeps the merged rest of a fold between its slices; one that was lost is merged again."""

    def __init__(self) -> None:
        self._series = SeriesNumbers()
        self._journal = LimitedJournal()
        self._rest: _Rest | None = None

    def fold(self, connection: sqlite3.Connection, *, most_points: int) -> Folded:
        """Writes the next slice: at most about this many points, but at least one series."""
        rest = self._next(connection)
        if rest is None:
            return Folded()
        points, left = _cut(rest.points, most_points)
        border = None if left.is_empty() else Folding(rest.through, *points.select("meter", "series").row(-1))
        written = _numbered(connection, self._series, pl.concat([rest.sums, points]))
        grains = self._journal.grains(connection, written["meter"].unique().to_list())
        with writing(connection):
            if (read_mark(connection, "folded"), read_folding(connection)) != (rest.folded, rest.folding):
                return Folded()  # another keeper is at it
            _add(connection, by_base(written, grains))
            set_folding(connection, border)
            if border is None:
                set_mark(connection, "folded", rest.through)
        if border is None:
            self._rest = None
            return Folded(rest.deltas, written.height, more=rest.cut_short)
        self._rest = _Rest(rest.folded, border, rest.through, left, rest.sums.clear(), rest.deltas, rest.cut_short)
        return Folded(0, written.height, more=True)

    def _next(self, connection: sqlite3.Connection) -> _Rest | None:
        folded, folding = read_mark(connection, "folded"), read_folding(connection)
        if self._rest is not None and (self._rest.folded, self._rest.folding) == (folded, folding):
            return self._rest
        through = folding.through if folding else None
        # Closed by name: a statement left open would hold an old snapshot into the transaction that follows.
        batches = entries(connection, after=folded, through=through)
        with closing(self._journal.applied(connection, batches, folded=folded)) as found:
            waiting, cut_short = gather(found, whole=folding is not None)
        if not waiting:
            return None
        merged = deltas.merge(frame for _, frame in waiting)
        sums = deltas.sums(merged)
        if folding is not None:
            merged, sums = merged.filter(beyond(folding)), sums.clear()
        rows = sum(frame.height for _, frame in waiting)
        return _Rest(folded, folding, waiting[-1][0], merged.sort("meter", "series"), sums, rows, cut_short)


def _cut(points: pl.DataFrame, most: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The next slice and what is left; all points of a series stay together."""
    if points.height <= most:
        return points, points.clear()
    meter, series = points.select("meter", "series").row(most - 1)
    end = points.height - points.filter(beyond(Folding(0, meter, series))).height
    return points[:end], points[end:]


def _numbered(connection: sqlite3.Connection, series: SeriesNumbers, merged: pl.DataFrame) -> pl.DataFrame:
    keys = merged.select("meter", "series").unique(maintain_order=True)
    pairs: list[SeriesKey] = keys.rows()
    numbers = pl.Series("series_id", series.of(connection, pairs), dtype=pl.Int64)
    return merged.join(keys.with_columns(numbers), on=["meter", "series"], nulls_equal=True)


def _add(connection: sqlite3.Connection, points: Mapping[int, pl.DataFrame]) -> None:
    """Within a transaction: points by base grain."""
    marks = read_marks(connection)
    plan = plan_fold(
        points,
        rolled=marks.rolled,
        under_way=_under_way(connection),
        first_s=marks.first_s,
        last_s=marks.last_s,
        coarser=coarser,
    )
    for part in plan.parts:
        add_points(connection, part.grain_s, part.rows)
    connection.executemany("INSERT OR IGNORE INTO unrolled VALUES (?, ?)", plan.unrolled)
    # They spare readers the grains that hold nothing.
    set_mark(connection, "first_s", plan.first_s)
    set_mark(connection, "last_s", plan.last_s)


def _under_way(connection: sqlite3.Connection) -> dict[int, UnderWay]:
    rows = connection.execute("SELECT grain_s, bucket_s, through_series FROM rolling")
    return {grain_s: UnderWay(bucket_s, pl.col("series_id") <= through) for grain_s, bucket_s, through in rows}
