"""Points: the aggregates of one series in one bucket of a grain, written by addition."""

import sqlite3

import polars as pl

from tallymark.aggregates import columns, sketch
from tallymark.store.grains import GRAINS

_KEY = ["series_id", "bucket_s"]
_COLUMNS = (*_KEY, *columns.NAMES)

SUMMED = ", ".join(column.rule.merged_sql(column.name) or f"MAX({column.name})" for column in columns.COLUMNS)
"""in the order of `columns.NAMES`; of what SQL cannot merge any one, as a sign for `finish_sums` that there is some"""

_ADDED = ", ".join(f"{column.name} = {column.rule.added_sql(column.name)}" for column in columns.COLUMNS)
_ADD = {
    grain_s: f"INSERT INTO points_{grain_s} ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
    f" ON CONFLICT DO UPDATE SET {_ADDED}"
    for grain_s in GRAINS
}
# Columns that SQL cannot merge over rows.
_LEFT_TO_POLARS = [column.name for column in columns.COLUMNS if column.rule.merged_sql(column.name) is None]


def add_points(connection: sqlite3.Connection, grain_s: int, points: pl.DataFrame) -> None:
    """Within a transaction. Adds to what is there; in key order, so that neighbours share pages."""
    if not points.is_empty():
        rows = _with_merged_sketches(connection, grain_s, points.select(_COLUMNS).sort(_KEY))
        connection.executemany(_ADD[grain_s], rows.iter_rows())


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
    slots = sketch.merge(sketch.decode(both, _KEY), _KEY)
    merged = sketch.encode(slots, _KEY)
    return points.drop(columns.SKETCH).join(merged, on=_KEY, how="left", maintain_order="left").select(_COLUMNS)


def finish_sums(connection: sqlite3.Connection, finer_s: int, grain_s: int, bucket_s: int, series: range) -> None:
    """Within a transaction: merges what `SUMMED` only took as a sign, for these series in one bucket of a grain."""
    is_there = " OR ".join(f"points.{name} IS NOT NULL" for name in _LEFT_TO_POLARS)
    marked = connection.execute(
        f"SELECT series.series_id FROM series CROSS JOIN points_{grain_s} AS points"
        " ON points.series_id = series.series_id AND points.bucket_s = ?"
        f" WHERE series.series_id >= ? AND series.series_id < ? AND ({is_there})",
        (bucket_s, series.start, series.stop),
    ).fetchall()
    if not marked:
        return
    read = f"SELECT {', '.join(_COLUMNS)} FROM points_{finer_s} WHERE series_id = ? AND bucket_s >= ? AND bucket_s < ?"
    found = [row for (number,) in marked for row in connection.execute(read, (number, bucket_s, bucket_s + grain_s))]
    schema = dict.fromkeys(_KEY, pl.Int64()) | columns.TYPES
    summed = coarser(pl.DataFrame(found, schema=schema, orient="row"), grain_s)
    settings = ", ".join(f"{name} = ?" for name in _LEFT_TO_POLARS)
    connection.executemany(
        f"UPDATE points_{grain_s} SET {settings} WHERE series_id = ? AND bucket_s = ?",
        summed.select(*_LEFT_TO_POLARS, *_KEY).iter_rows(),
    )


def coarser(points: pl.DataFrame, grain_s: int) -> pl.DataFrame:
    """The same points in wider buckets."""
    bucket = pl.col("bucket_s") // grain_s * grain_s
    return columns.merge(points, ["series_id", bucket.alias("bucket_s")]).select(_COLUMNS)
