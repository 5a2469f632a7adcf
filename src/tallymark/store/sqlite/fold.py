"""Folding: the journal's oldest entries, merged, become points, in slices of series, each a short transaction.

While a fold is under way its entries are in the points for some series and in the journal for the others. The row in
`folding` says where the border is, and moves with every slice; readers take each series from the one side or the other.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass

import polars as pl

from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S
from tallymark.store.model import Folded, Folding
from tallymark.store.sqlite.connection import writing
from tallymark.store.sqlite.journal import entries
from tallymark.store.sqlite.marks import read_folding, read_mark, read_marks, set_folding, set_mark
from tallymark.store.sqlite.points import add_points, coarser
from tallymark.store.sqlite.series import SeriesKey, SeriesNumbers
from tallymark.store.tail import beyond

# Deltas merged in one fold: the more batches it spans, the fewer times a point is written.
MOST_BYTES = 80_000_000


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
        self._rest: _Rest | None = None

    def fold(self, connection: sqlite3.Connection, *, most_points: int) -> Folded:
        """Writes the next slice: at most about this many points, but at least one series."""
        rest = self._next(connection)
        if rest is None:
            return Folded()
        points, left = _cut(rest.points, most_points)
        border = None if left.is_empty() else Folding(rest.through, *points.select("meter", "series").row(-1))
        written = _numbered(connection, self._series, pl.concat([rest.sums, points]))
        with writing(connection):
            if (read_mark(connection, "folded"), read_folding(connection)) != (rest.folded, rest.folding):
                return Folded()  # another keeper is at it
            add_points(connection, MINUTE_S, written)
            _add_to_rolled(connection, written)
            _widen(connection, written)
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
        waiting, cut_short = _gather(connection, after=folded, through=folding.through if folding else None)
        if not waiting:
            return None
        merged = deltas.merge(frame for _, frame in waiting)
        sums = deltas.sums(merged)
        if folding is not None:
            merged, sums = merged.filter(beyond(folding)), sums.clear()
        through = waiting[-1][0]
        rows = sum(frame.height for _, frame in waiting)
        return _Rest(folded, folding, through, merged.sort("meter", "series"), sums, rows, cut_short)


def _cut(points: pl.DataFrame, most: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The next slice and what is left; all points of a series stay together."""
    if points.height <= most:
        return points, points.clear()
    meter, series = points.select("meter", "series").row(most - 1)
    end = points.height - points.filter(beyond(Folding(0, meter, series))).height
    return points[:end], points[end:]


def _gather(
    connection: sqlite3.Connection, *, after: int, through: int | None
) -> tuple[list[tuple[int, pl.DataFrame]], bool]:
    """The entries of a fold; True beside them if more were waiting than one fold takes."""
    gathered: list[tuple[int, pl.DataFrame]] = []
    size = 0.0
    # Closed by name: a statement left open would hold an old snapshot into the transaction that follows.
    with closing(entries(connection, after=after, through=through)) as waiting:
        for sequence, frame in waiting:
            # A fold under way is taken whole, whatever its size: its border was drawn over all of it.
            if through is None and gathered and size + frame.estimated_size() > MOST_BYTES:
                return gathered, True
            gathered.append((sequence, frame))
            size += frame.estimated_size()
    return gathered, False


def _numbered(connection: sqlite3.Connection, series: SeriesNumbers, merged: pl.DataFrame) -> pl.DataFrame:
    keys = merged.select("meter", "series").unique(maintain_order=True)
    pairs: list[SeriesKey] = keys.rows()
    numbers = pl.Series("series_id", series.of(connection, pairs), dtype=pl.Int64)
    return merged.join(keys.with_columns(numbers), on=["meter", "series"], nulls_equal=True)


def _add_to_rolled(connection: sqlite3.Connection, points: pl.DataFrame) -> None:
    """Late points also go where their hour or day is rolled already; the others leave word that it is still to do."""
    marks = read_marks(connection)
    in_hours = _is_rolled(connection, HOUR_S, marks.rolled[HOUR_S])
    in_days = _is_rolled(connection, DAY_S, marks.rolled[DAY_S])
    _mark_unrolled(connection, HOUR_S, points, marks.rolled[HOUR_S])
    late = points.filter(in_hours)
    if not late.is_empty():
        add_points(connection, HOUR_S, coarser(late, HOUR_S))
        _mark_unrolled(connection, DAY_S, late, marks.rolled[DAY_S])
        add_points(connection, DAY_S, coarser(late.filter(in_days), DAY_S))


def _widen(connection: sqlite3.Connection, points: pl.DataFrame) -> None:
    """Moves the marks of the earliest and latest minute, which spare readers the grains that hold nothing."""
    if not points.is_empty():
        first, last = points.select(first=pl.col("bucket_s").min(), last=pl.col("bucket_s").max()).row(0)
        connection.execute("UPDATE marks SET value = MIN(value, ?) WHERE name = 'first_s'", (first,))
        connection.execute("UPDATE marks SET value = MAX(value, ?) WHERE name = 'last_s'", (last,))


def _is_rolled(connection: sqlite3.Connection, grain_s: int, through: int) -> pl.Expr:
    """Below the mark, or in the bucket now being rolled and in a series that its slices have passed."""
    bucket = pl.col("bucket_s") // grain_s * grain_s
    rolled = bucket < through
    progress = connection.execute(
        "SELECT bucket_s, through_series FROM rolling WHERE grain_s = ?", (grain_s,)
    ).fetchone()
    if progress is None:
        return rolled
    in_progress, through_series = int(progress[0]), int(progress[1])
    return rolled | ((bucket == in_progress) & (pl.col("series_id") <= through_series))


def _mark_unrolled(connection: sqlite3.Connection, grain_s: int, points: pl.DataFrame, through: int) -> None:
    buckets = (points["bucket_s"] // grain_s * grain_s).unique()
    connection.executemany(
        "INSERT OR IGNORE INTO unrolled VALUES (?, ?)", [(grain_s, bucket) for bucket in buckets if bucket >= through]
    )
