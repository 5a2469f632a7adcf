"""Rolling up: closed hours are summed from minutes and closed days from hours, some series at a time."""

import sqlite3

from tallymark.store.folding import LEVELS, Level, closed_through, left_to_roll
from tallymark.store.sqlite.connection import writing
from tallymark.store.sqlite.marks import read_marks, set_rolled
from tallymark.store.sqlite.points import sum_up
from tallymark.store.sqlite.registry import used_columns


def roll(connection: sqlite3.Connection, *, now_s: int, delay_s: int, slice_series: int) -> bool:
    """Does one slice of what is due, hours before days; False when nothing is.

    Rows of a bucket beyond the mark are not read yet, so a bucket may take many short transactions. The mark moves in
    the last of them.
    """
    return any(
        _roll_level(connection, level, now_s=now_s, delay_s=delay_s, slice_series=slice_series) for level in LEVELS
    )


def _roll_level(connection: sqlite3.Connection, level: Level, *, now_s: int, delay_s: int, slice_series: int) -> bool:
    # Looked at first without the right to write: an idle keeper must not hold up the sink.
    marks = read_marks(connection)
    if marks.rolled[level.grain_s] >= closed_through(level, rolled=marks.rolled, time_s=now_s - delay_s):
        return False
    with writing(connection):
        marks = read_marks(connection)
        closed = closed_through(level, rolled=marks.rolled, time_s=now_s - delay_s)
        if marks.rolled[level.grain_s] >= closed:
            return False
        bucket = connection.execute(
            "SELECT MIN(bucket_s) FROM unrolled WHERE grain_s = ? AND bucket_s < ?", (level.grain_s, closed)
        ).fetchone()[0]
        # Nothing lies between the mark and this bucket. Moving the mark first keeps it so: what still comes in there
        # is late, and the bucket in progress stays the lowest.
        set_rolled(connection, level.grain_s, closed if bucket is None else int(bucket))
        if bucket is not None and _roll_slice(connection, level, int(bucket), slice_series):
            _finish(connection, level, int(bucket))
    return True


def _roll_slice(connection: sqlite3.Connection, level: Level, bucket: int, slice_series: int) -> bool:
    """Sums the next series of this bucket; True if this was the last slice."""
    progress = connection.execute(
        "SELECT through_series FROM rolling WHERE grain_s = ? AND bucket_s = ?", (level.grain_s, bucket)
    ).fetchone()
    after = int(progress[0]) if progress is not None else 0
    through = after + slice_series
    sum_up(connection, level.finer_s, level.grain_s, bucket, range(after + 1, through + 1), used_columns(connection))
    connection.execute("INSERT OR REPLACE INTO rolling VALUES (?, ?, ?)", (level.grain_s, bucket, through))
    last = connection.execute("SELECT COALESCE(MAX(series_id), 0) FROM series").fetchone()[0]
    return through >= int(last)


def _finish(connection: sqlite3.Connection, level: Level, bucket: int) -> None:
    connection.execute("DELETE FROM rolling WHERE grain_s = ?", (level.grain_s,))
    connection.execute("DELETE FROM unrolled WHERE grain_s = ? AND bucket_s = ?", (level.grain_s, bucket))
    set_rolled(connection, level.grain_s, bucket + level.grain_s)
    connection.executemany("INSERT OR IGNORE INTO unrolled VALUES (?, ?)", left_to_roll(level, bucket))
