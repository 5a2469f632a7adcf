"""Points: the aggregates of one series in one bucket of a grain, written by addition."""

import sqlite3
from collections.abc import Iterable

import polars as pl

from tallymark.aggregates import columns
from tallymark.store.grains import GRAINS

_KEY = ("series_id", "bucket_s")
_COLUMNS = (*_KEY, *columns.NAMES)

SUMMED = ", ".join(column.rule.merged_sql(column.name) or "NULL" for column in columns.COLUMNS)
"""in the order of `columns.NAMES`"""

_ADDED = ", ".join(f"{column.name} = {column.rule.added_sql(column.name)}" for column in columns.COLUMNS)
_ADD = {
    grain_s: f"INSERT INTO points_{grain_s} VALUES ({', '.join('?' * len(_COLUMNS))})"
    f" ON CONFLICT DO UPDATE SET {_ADDED}"
    for grain_s in GRAINS
}


def table(grain_s: int) -> str:
    """A table a grain: an upsert takes 4-16 % less CPU than with the grain in the key (four runs of each)."""
    aggregates = ", ".join(f"{column.name} {column.sql_type}" for column in columns.COLUMNS)
    return (
        f"CREATE TABLE points_{grain_s} (series_id INTEGER, bucket_s INTEGER, {aggregates},"
        " PRIMARY KEY (series_id, bucket_s)) WITHOUT ROWID"
    )


def add_points(connection: sqlite3.Connection, grain_s: int, points: pl.DataFrame) -> None:
    """Adds to what is there; in key order, so that neighbours share pages."""
    if not points.is_empty():
        rows: Iterable[tuple[object, ...]] = points.select(_COLUMNS).sort(_KEY).iter_rows()
        connection.executemany(_ADD[grain_s], rows)


def coarser(points: pl.DataFrame, grain_s: int) -> pl.DataFrame:
    """The same points in wider buckets."""
    bucket = pl.col("bucket_s") // grain_s * grain_s
    return points.group_by("series_id", bucket.alias("bucket_s")).agg(columns.merged()).select(_COLUMNS)
