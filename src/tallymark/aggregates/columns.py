"""The table of columns: every number that is kept for a series and a bucket, with its type and its merge rule.

The schema of deltas, their merge, the SQL of the points, Cassandra's cells and the memory budgets all follow from it.
"""

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from tallymark.aggregates import exact
from tallymark.aggregates.rules import Add, Count, Greatest, High, Least, Low, Row, Rule

_SQL_TYPES: dict[pl.DataType, str] = {pl.Int64(): "INTEGER", pl.Float64(): "REAL"}
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

    @property
    def sql_type(self) -> str:
        kind = _SQL_TYPES[self.type]
        return kind if self.nothing is None else f"{kind} NOT NULL"

    @property
    def numpy_type(self) -> str:
        """Little-endian, eight bytes."""
        return _NUMPY_TYPES[self.type]

    @property
    def may_be_null(self) -> bool:
        return self.nothing is None

    @property
    def left_out(self) -> pl.Expr:
        return pl.lit(self.nothing, self.type).alias(self.name)


_NUMBER, _UNITS = pl.col("number"), pl.col("units")

# Events and values are counted apart: a missing value must not poison min, max or avg.
COLUMNS = (
    Column("n", pl.Int64(), Count(), pl.len().cast(pl.Int64), nothing=0),
    Column("n_value", pl.Int64(), Count(), _NUMBER.count().cast(pl.Int64), nothing=0),
    Column("sum", pl.Float64(), Add(), pl.when(_NUMBER.count() > 0).then(_NUMBER.sum())),
    Column(exact.HIGH, pl.Int64(), High(exact.LOW), pl.when(_UNITS.count() > 0).then(exact.high_of_sum(_UNITS))),
    Column(exact.LOW, pl.Int64(), Low(), pl.when(_UNITS.count() > 0).then(exact.low_of_sum(_UNITS))),
    Column("min", pl.Float64(), Least(), _NUMBER.min()),
    Column("max", pl.Float64(), Greatest(), _NUMBER.max()),
)
NAMES = tuple(column.name for column in COLUMNS)
TYPES = {column.name: column.type for column in COLUMNS}
NOTHING: Row = {column.name: column.nothing for column in COLUMNS}


def of_events(needed: Collection[str]) -> list[pl.Expr]:
    """What the events of a group add to each column; those that are not needed cost nothing.

    The events have the columns `number` (the value, null where it is unusable), and `units` if sums are exact.
    """
    return [column.counted.alias(column.name) if column.name in needed else column.left_out for column in COLUMNS]


def merged() -> list[pl.Expr]:
    """The rows of a group as one row."""
    return [column.rule.merged(column.name).alias(column.name) for column in COLUMNS]


def of_two(left: Row, right: Row) -> Row:
    """Two rows as one, in plain Python."""
    return {column.name: column.rule.of_two(column.name, left, right) for column in COLUMNS}
