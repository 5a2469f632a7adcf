"""Points: the aggregates of one series in one bucket of a grain, written by addition."""

import sqlite3
from collections.abc import Iterable

import polars as pl

from tallymark.store import exact
from tallymark.store.deltas import AGGREGATES, merged
from tallymark.store.grains import GRAINS

COLUMNS = ("series_id", "bucket_s", *AGGREGATES)

SUMMED = f"SUM(n), SUM(n_value), SUM(sum), {exact.SUM_HIGH}, {exact.SUM_LOW}, MIN(min), MAX(max)"
"""in the order of `AGGREGATES`"""

_ADD = {
    grain_s: f"""
    INSERT INTO points_{grain_s} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        n = n + excluded.n,
        n_value = n_value + excluded.n_value,
        sum = COALESCE(sum + excluded.sum, sum, excluded.sum),
        exact_high = COALESCE(
            exact_high + excluded.exact_high + ((exact_low + excluded.exact_low) >> {exact.LOW_BITS}),
            exact_high, excluded.exact_high),
        exact_low = COALESCE(
            (exact_low + excluded.exact_low) & {(1 << exact.LOW_BITS) - 1}, exact_low, excluded.exact_low),
        min = MIN(COALESCE(min, excluded.min), COALESCE(excluded.min, min)),
        max = MAX(COALESCE(max, excluded.max), COALESCE(excluded.max, max))
    """
    for grain_s in GRAINS
}


def add_points(connection: sqlite3.Connection, grain_s: int, points: pl.DataFrame) -> None:
    """Adds to what is there; in key order, so that neighbours share pages."""
    if not points.is_empty():
        rows: Iterable[tuple[object, ...]] = points.select(COLUMNS).sort("series_id", "bucket_s").iter_rows()
        connection.executemany(_ADD[grain_s], rows)


def coarser(points: pl.DataFrame, grain_s: int) -> pl.DataFrame:
    """The same points in wider buckets."""
    bucket = pl.col("bucket_s") // grain_s * grain_s
    return points.group_by("series_id", bucket.alias("bucket_s")).agg(merged()).select(COLUMNS)
