"""Rolling up: closed minutes are summed from seconds, hours from minutes and days from hours, some series at a time."""

import sqlite3

from tallymark.store.folding import LEVELS, Level, closed_through, left_to_roll, moves_to
from tallymark.store.point_sets import base_grains
from tallymark.store.sqlite.connection import writing
from tallymark.store.sqlite.marks import read_marks, set_rolled
from tallymark.store.sqlite.points import Slice, sum_up
from tallymark.store.sqlite.registry import all_sets, used_columns


def roll(connection: sqlite3.Connection, *, now_s: int, delay_s: int, slice_series: int) -> bool:
    """Does one slice of what is due, the finest grain first; False when nothing is.

    Rows of a bucket beyond the mark are not read yet, so a bucket may take many short transactions. The mark moves in
    the last of them.
    """
    return any(_roll_level(connection, level, time_s=now_s - delay_s, slice_series=slice_series) for level in LEVELS)


def _roll_level(connection: sqlite3.Connection, level: Level, *, time_s: int, slice_series: int) -> bool:
    # Looked at first without the right to write: an idle keeper must not hold up the sink.
    if _due(connection, level, time_s) is None:
        return False
    with writing(connection):
        due = _due(connection, level, time_s)
        if due is None:
            return False
        through, bucket = due
        # Nothing lies between the mark and this bucket. Moving the mark first keeps it so: what still comes in there
        # is late, and the bucket in progress stays the lowest.
        set_rolled(connection, level.grain_s, through)
        if bucket is not None and _roll_slice(connection, level, bucket, slice_series):
            _finish(connection, level, bucket)
    return True


def _due(connection: sqlite3.Connection, level: Level, time_s: int) -> tuple[int, int | None] | None:
    """Where the mark moves to now, and the bucket to roll, if there is one; None if nothing is due."""
    rolled = read_marks(connection).rolled
    closed = closed_through(level, rolled=rolled, time_s=time_s)
    if rolled[level.grain_s] >= closed:
        return None
    bucket = connection.execute(
        "SELECT MIN(bucket_s) FROM unrolled WHERE grain_s = ? AND bucket_s < ?", (level.grain_s, closed)
    ).fetchone()[0]
    through = moves_to(level, closed_s=closed, lowest_s=bucket)
    return None if bucket is None and through <= rolled[level.grain_s] else (through, bucket)


def _roll_slice(connection: sqlite3.Connection, level: Level, bucket: int, slice_series: int) -> bool:
    """Sums the next series of this bucket; True if this was the last slice."""
    progress = connection.execute(
        "SELECT through_series FROM rolling WHERE grain_s = ? AND bucket_s = ?", (level.grain_s, bucket)
    ).fetchone()
    after = int(progress[0]) if progress is not None else 0
    sources = _sources(connection, level)
    through, is_last = _next_series(connection, sources, after, slice_series)
    used = used_columns(connection)
    for source_s, sets in sources.items():
        some = Slice(bucket, range(after + 1, through + 1), sets)
        sum_up(connection, source_s, level.grain_s, some, used)
    connection.execute("INSERT OR REPLACE INTO rolling VALUES (?, ?, ?)", (level.grain_s, bucket, through))
    return is_last


def _sources(connection: sqlite3.Connection, level: Level) -> dict[int, tuple[int, ...] | None]:
    """Grain -> the sets that are rolled from it, None for all."""
    if not level.made_from_bases:
        return dict.fromkeys(level.sources_s)
    grains = base_grains(all_sets(connection))
    return {
        source_s: tuple(set_id for set_id, base_s in grains.items() if base_s == source_s)
        for source_s in level.sources_s
        if source_s in grains.values()
    }


def _next_series(
    connection: sqlite3.Connection, sources: dict[int, tuple[int, ...] | None], after: int, most: int
) -> tuple[int, bool]:
    """The last series of a slice of so many, and whether there are no more of these sets."""
    last = connection.execute("SELECT COALESCE(MAX(series_id), 0) FROM series").fetchone()[0]
    chosen = [set_id for sets in sources.values() if sets is not None for set_id in sets]
    if None in sources.values():
        return after + most, after + most >= int(last)
    found = connection.execute(
        f"SELECT series_id FROM series WHERE set_id IN ({', '.join(map(str, chosen))}) AND series_id > ?"
        " ORDER BY series_id LIMIT 1 OFFSET ?",
        (after, most - 1),
    ).fetchone()
    return (int(last), True) if found is None else (int(found[0]), False)


def _finish(connection: sqlite3.Connection, level: Level, bucket: int) -> None:
    connection.execute("DELETE FROM rolling WHERE grain_s = ?", (level.grain_s,))
    connection.execute("DELETE FROM unrolled WHERE grain_s = ? AND bucket_s = ?", (level.grain_s, bucket))
    set_rolled(connection, level.grain_s, bucket + level.grain_s)
    connection.executemany("INSERT OR IGNORE INTO unrolled VALUES (?, ?)", left_to_roll(level, bucket))
