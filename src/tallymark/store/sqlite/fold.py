"""Folding: the journal's oldest entries, merged, become points, and the mark moves, in one transaction."""

import sqlite3
from contextlib import closing

import polars as pl

from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S
from tallymark.store.model import Folded
from tallymark.store.sqlite.connection import writing
from tallymark.store.sqlite.journal import entries
from tallymark.store.sqlite.marks import read_mark, read_marks, set_mark
from tallymark.store.sqlite.points import add_points, coarser
from tallymark.store.sqlite.series import SeriesKey, SeriesNumbers

# Deltas decoded at once, as a multiple of the points wanted: entries of a busy while mostly hit the same points.
GATHER = 16


def fold(connection: sqlite3.Connection, series: SeriesNumbers, *, most_points: int) -> Folded:
    """Folds as many whole entries as give at most this many points, but at least one; all zero when none waits.

    A fold is one transaction, so a reader finds an entry either in the tail or in the points, never in both or neither.
    """
    mark = read_mark(connection, "folded")
    waiting = _gather(connection, after=mark, most_rows=GATHER * most_points)
    if not waiting:
        return Folded()
    merged = deltas.merge(frame for _, frame in waiting)
    while merged.height > most_points and len(waiting) > 1:
        waiting = waiting[: len(waiting) // 2]
        merged = deltas.merge(frame for _, frame in waiting)
    points = _numbered(connection, series, _with_sums(merged))
    with writing(connection):
        if read_mark(connection, "folded") != mark:
            return Folded()  # another keeper folded them meanwhile
        add_points(connection, MINUTE_S, points)
        _add_to_rolled(connection, points)
        _widen(connection, points)
        set_mark(connection, "folded", waiting[-1][0])
    return Folded(len(waiting), sum(frame.height for _, frame in waiting), points.height)


def _gather(connection: sqlite3.Connection, *, after: int, most_rows: int) -> list[tuple[int, pl.DataFrame]]:
    gathered: list[tuple[int, pl.DataFrame]] = []
    rows = 0
    # Closed by name: a statement left open would hold an old snapshot into the transaction that follows.
    with closing(entries(connection, after=after)) as waiting:
        for sequence, frame in waiting:
            if gathered and rows + frame.height > most_rows:
                break
            gathered.append((sequence, frame))
            rows += frame.height
    return gathered


def _with_sums(merged: pl.DataFrame) -> pl.DataFrame:
    """Adds to each meter the sum over all its series, so that a question without labels reads one series, not all."""
    sums = merged.group_by("meter", "bucket_s").agg(deltas.merged())
    nobody = pl.lit(None, dtype=pl.String).alias("series")
    return pl.concat([merged, sums.with_columns(nobody).select(merged.columns)])


def _numbered(connection: sqlite3.Connection, series: SeriesNumbers, merged: pl.DataFrame) -> pl.DataFrame:
    keys = merged.select("meter", "series").unique(maintain_order=True)
    pairs: list[SeriesKey] = keys.rows()
    numbers = pl.Series("series_id", series.of(connection, pairs), dtype=pl.Int64)
    return merged.join(keys.with_columns(numbers), on=["meter", "series"], nulls_equal=True)


def _add_to_rolled(connection: sqlite3.Connection, points: pl.DataFrame) -> None:
    """Late points also go where their hour or day is rolled already; the others leave word that it is still to do."""
    marks = read_marks(connection)
    in_hours = _is_rolled(connection, HOUR_S, marks.hours_through)
    in_days = _is_rolled(connection, DAY_S, marks.days_through)
    _leave_word(connection, HOUR_S, points, marks.hours_through)
    late = points.filter(in_hours)
    if not late.is_empty():
        add_points(connection, HOUR_S, coarser(late, HOUR_S))
        _leave_word(connection, DAY_S, late, marks.days_through)
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


def _leave_word(connection: sqlite3.Connection, grain_s: int, points: pl.DataFrame, through: int) -> None:
    buckets = (points["bucket_s"] // grain_s * grain_s).unique()
    connection.executemany(
        "INSERT OR IGNORE INTO unrolled VALUES (?, ?)", [(grain_s, bucket) for bucket in buckets if bucket >= through]
    )
