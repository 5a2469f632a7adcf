"""The table of columns: every number that is kept for a series and a bucket, with its type and its merge rule.

The schema of deltas, their merge, the SQL of the points, Cassandra's cells and the memory budgets all follow from it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tallymark.aggregates import exact, sketch
from tallymark.aggregates.functions import VERSION_COLUMN
from tallymark.aggregates.rules import Add, Count, Greatest, High, Latest, Least, Low, Oldest, Row, Rule, Sketch

_SQL_TYPES: dict[pl.DataType, str] = {pl.Int64(): "INTEGER", pl.Float64(): "REAL", pl.Binary(): "BLOB"}
_NUMPY_TYPES: dict[pl.DataType, str] = {pl.Int64(): "<i8", pl.Float64(): "<f8"}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: pl.DataType
    rule: Rule
    counted: pl.Expr
    """what the events of one series and bucket add; see `of_events` for the columns it may use"""
    nothing: int | None = None
    """what a row has where there were no events, or where a meter does not compute the column"""
    since: int = 2
    """the version of the store's format that first had it (`store.format`); what is older lacks it"""

    @property
    def sql_type(self) -> str:
        kind = _SQL_TYPES[self.type]
        return kind if self.nothing is None else f"{kind} NOT NULL"

    @property
    def numpy_type(self) -> str:
        """Little-endian, eight bytes."""
        return _NUMPY_TYPES[self.type]

    @property
    def is_sketch(self) -> bool:
        return isinstance(self.rule, Sketch)

    @property
    def may_be_null(self) -> bool:
        return self.nothing is None

    @property
    def left_out(self) -> pl.Expr:
        return _LEFT_OUT[self.name]


SKETCH = "sketch"
"""the column of percentiles and distinct counts; see `aggregates.sketch`"""

_ROW = "_row"

_NUMBER, _UNITS, _TIME = pl.col("number"), pl.col("units"), pl.col("time")
_LAST_MS = _TIME.filter(_NUMBER.is_not_null()).max()

# Events and values are counted apart: a missing value must not poison min, max or avg.
COLUMNS = (
    Column("n", pl.Int64(), Count(), pl.len().cast(pl.Int64), nothing=0),
    Column("n_value", pl.Int64(), Count(), _NUMBER.count().cast(pl.Int64), nothing=0),
    Column("sum", pl.Float64(), Add(), pl.when(_NUMBER.count() > 0).then(_NUMBER.sum())),
    Column(exact.HIGH, pl.Int64(), High(exact.LOW), pl.when(_UNITS.count() > 0).then(exact.high_of_sum(_UNITS))),
    Column(exact.LOW, pl.Int64(), Low(), pl.when(_UNITS.count() > 0).then(exact.low_of_sum(_UNITS))),
    Column("min", pl.Float64(), Least(), _NUMBER.min()),
    Column("max", pl.Float64(), Greatest(), _NUMBER.max()),
    Column(SKETCH, pl.Binary(), Sketch(), pl.lit(None, pl.Binary), since=3),
    Column("last_ms", pl.Int64(), Greatest(), _LAST_MS, since=4),
    Column("last", pl.Float64(), Latest("last_ms"), _NUMBER.filter(_TIME == _LAST_MS).max(), since=4),
    # The oldest version of the meter among those that counted the events; null is the first that has these points.
    Column(VERSION_COLUMN, pl.Int64(), Oldest("n"), pl.lit(None, pl.Int64), since=5),
)
"""in the order of the tables of SQLite: new ones come last"""
# Made once: an expression takes 30 us, and a question needs dozens.
_LEFT_OUT = {column.name: pl.lit(column.nothing, column.type).alias(column.name) for column in COLUMNS}
NAMES = tuple(column.name for column in COLUMNS)
TYPES = {column.name: column.type for column in COLUMNS}
NOTHING: Row = {column.name: column.nothing for column in COLUMNS}


def of_events(needed: Collection[str]) -> list[pl.Expr]:
    """What the events of a group add to each column; those that are not needed cost nothing.

    The events have the columns `number` (the value, null where it is unusable), `units` if sums are exact, and `time`
    (ms) where `uses_time` says so.
    """
    return [column.counted.alias(column.name) if column.name in needed else column.left_out for column in COLUMNS]


def uses_time(needed: Collection[str]) -> bool:
    return any("time" in column.counted.meta.root_names() for column in COLUMNS if column.name in needed)


def merge(rows: pl.DataFrame, keys: Sequence[str | pl.Expr]) -> pl.DataFrame:
    """One row for each combination of the keys; without keys one row in any case. Merges the columns that there are.

    Columns in which all rows are null cost nothing: most meters compute few.
    """
    there = set(rows.columns)
    present = [column for column in COLUMNS if column.name in there]
    has_sketches = SKETCH in there and not _is_null(rows, SKETCH)
    exprs = [
        column.left_out
        if column.is_sketch or _is_null(rows, column.name)
        else column.rule.merged(column.name).alias(column.name)
        for column in present
    ]
    if not has_sketches:
        return rows.group_by(keys).agg(exprs) if keys else rows.select(exprs)
    if not keys:
        together = np.zeros(rows.height, np.int64)
        return rows.select(exprs).with_columns(sketch.merge_blobs(rows[SKETCH], together, 1))
    merged = rows.with_columns(pl.int_range(pl.len()).alias(_ROW)).group_by(keys).agg(*exprs, pl.col(_ROW))
    order = merged[_ROW].explode().to_numpy()
    group = np.repeat(np.arange(merged.height), merged[_ROW].list.len().to_numpy())
    return merged.drop(_ROW).with_columns(sketch.merge_blobs(rows[SKETCH][order], group, merged.height))


def _is_null(rows: pl.DataFrame, name: str) -> bool:
    return rows[name].null_count() == rows.height


def of_two(left: Row, right: Row) -> Row:
    """Two rows as one, in plain Python."""
    return {column.name: column.rule.of_two(column.name, left, right) for column in COLUMNS}
