"""Points: the aggregates of one series in one bucket of a grain, written by addition."""

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

import polars as pl

from tallymark.aggregates import columns
from tallymark.aggregates.functions import VERSION_COLUMN
from tallymark.store.sqlite.registry import any_share_points

# Of a roll in Polars: an hour of sketches of distinct values takes up to 490,000 bytes a series.
SERIES_AT_ONCE = 100

_KEY = ["series_id", "bucket_s"]
_COLUMNS = (*_KEY, *columns.NAMES)

_BY_NAME = {column.name: column for column in columns.COLUMNS}


def add_points(connection: sqlite3.Connection, grain_s: int, points: pl.DataFrame) -> None:
    """Within a transaction. Adds to what is there; in key order, so that neighbours share pages."""
    if not points.is_empty():
        rows = _with_merged_sketches(connection, grain_s, points.select(_COLUMNS).sort(_KEY))
        held = tuple(name for name in columns.NAMES if rows[name].null_count() < rows.height)
        # Null is the first version here, and wins.
        if VERSION_COLUMN not in held and any_share_points(connection):
            held = (*held, VERSION_COLUMN)
        connection.executemany(_upsert(grain_s, held), rows.select(*_KEY, *held).iter_rows())


@cache
def _upsert(grain_s: int, held: tuple[str, ...]) -> str:
    """Names only the columns that some of the rows have: binding nulls and merging them took a third of a fold."""
    names = (*_KEY, *held)
    added = ", ".join(f"{name} = {_BY_NAME[name].rule.added_sql(name)}" for name in held)
    return (
        f"INSERT INTO points_{grain_s} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        f" ON CONFLICT DO UPDATE SET {added}"
    )


def _with_merged_sketches(connection: sqlite3.Connection, grain_s: int, points: pl.DataFrame) -> pl.DataFrame:
    """Sketches are read, merged and written whole: many at once in Polars take less than one by one in a function that
    SQLite calls (64 against 81 us a point of 96 slots)."""
    has_sketch = pl.col(columns.SKETCH).is_not_null()
    fresh = points.filter(has_sketch).select(*_KEY, columns.SKETCH)
    if fresh.is_empty():
        return points
    read = f"SELECT series_id, bucket_s, sketch FROM points_{grain_s} WHERE series_id = ? AND bucket_s = ?"
    known = [row for key in fresh.select(_KEY).iter_rows() for row in connection.execute(read, key)]
    both = pl.concat([fresh, pl.DataFrame(known, schema=fresh.schema, orient="row")])
    merged = columns.merge(both, _KEY)
    return points.drop(columns.SKETCH).join(merged, on=_KEY, how="left", maintain_order="left").select(_COLUMNS)


@dataclass(frozen=True, slots=True)
class Slice:
    """Some series of a bucket that is rolled."""

    bucket_s: int
    series: range
    sets: tuple[int, ...] | None
    """only those of these sets; None for all"""

    @property
    def is_in(self) -> str:
        """SQL: whether a row of `series` is in it."""
        chosen = f"series.series_id >= {self.series.start} AND series.series_id < {self.series.stop}"
        return chosen if self.sets is None else f"{chosen} AND series.set_id IN ({', '.join(map(str, self.sets))})"


def sum_up(connection: sqlite3.Connection, finer_s: int, grain_s: int, some: Slice, used: Collection[str]) -> None:
    """Within a transaction: the points of some series in one bucket, from those of the finer grain.

    `used` are the columns that any meter computes; the others are null in all rows, and summing them costs as much.
    """
    kept = [column.name for column in columns.COLUMNS if column.name in used or not column.may_be_null]
    # Of what SQL cannot merge it takes any one, as a sign for `_finish` that there is some.
    summed = ", ".join(_BY_NAME[name].rule.merged_sql(name) or f"MAX({name})" for name in kept)
    # From series to points: a seek for each series. The CROSS JOIN keeps SQLite from turning that round.
    connection.execute(
        f"INSERT INTO points_{grain_s} (series_id, bucket_s, {', '.join(kept)})"
        f" SELECT series.series_id, :bucket, {summed}"
        f" FROM series CROSS JOIN points_{finer_s} AS points ON points.series_id = series.series_id"
        f" AND points.bucket_s >= :bucket AND points.bucket_s < :bucket + {grain_s}"
        f" WHERE {some.is_in} GROUP BY series.series_id",
        {"bucket": some.bucket_s},
    )
    left = [name for name in kept if _BY_NAME[name].rule.merged_sql(name) is None]
    if left:
        _finish(connection, finer_s, grain_s, some, left)


def _finish(connection: sqlite3.Connection, finer_s: int, grain_s: int, some: Slice, left: list[str]) -> None:
    """Merges in Polars what SQL cannot, where there is any."""
    is_there = " OR ".join(f"points.{name} IS NOT NULL" for name in left)
    marked = connection.execute(
        f"SELECT series.series_id FROM series CROSS JOIN points_{grain_s} AS points"
        " ON points.series_id = series.series_id AND points.bucket_s = ?"
        f" WHERE {some.is_in} AND ({is_there})",
        (some.bucket_s,),
    ).fetchall()
    read = f"SELECT {', '.join(_COLUMNS)} FROM points_{finer_s} WHERE series_id = ? AND bucket_s >= ? AND bucket_s < ?"
    span = (some.bucket_s, some.bucket_s + grain_s)
    schema = dict.fromkeys(_KEY, pl.Int64()) | columns.TYPES
    settings = ", ".join(f"{name} = ?" for name in left)
    for first in range(0, len(marked), SERIES_AT_ONCE):
        few = marked[first : first + SERIES_AT_ONCE]
        found = [row for (number,) in few for row in connection.execute(read, (number, *span))]
        merged = coarser(pl.DataFrame(found, schema=schema, orient="row"), grain_s)
        connection.executemany(
            f"UPDATE points_{grain_s} SET {settings} WHERE series_id = ? AND bucket_s = ?",
            merged.select(*left, *_KEY).iter_rows(),
        )


def coarser(points: pl.DataFrame, grain_s: int) -> pl.DataFrame:
    """The same points in wider buckets."""
    bucket = pl.col("bucket_s") // grain_s * grain_s
    return columns.merge(points, ["series_id", bucket.alias("bucket_s")]).select(_COLUMNS)
