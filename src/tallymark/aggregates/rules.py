"""Merge rules: how the rows of a group become one row, the same in Polars, in SQL and in plain Python.

Every rule is associative and commutative, so neither the order of batches nor how they were cut ever shows in a number.
All but `Oldest` ignore nulls. `tests/unit/aggregates` checks that for each column of the table, in all three languages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from tallymark.aggregates import exact, sketch

Row = Mapping[str, Any]
"""column -> number, or None"""


class Rule(Protocol):
    """How one column merges; some rules look at a second column."""

    def merged(self, name: str) -> pl.Expr:
        """Polars: over all rows of a group."""
        ...

    def merged_sql(self, name: str) -> str | None:
        """SQL: over all rows of a group; None if SQL has no function for it, so that Polars has to do it."""
        ...

    def added_sql(self, name: str) -> str:
        """SQL: the row that is there and the row `excluded`, in an upsert."""
        ...

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        """Python: over two rows. The plainest form, which the other two are tested against."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """Addition of numbers that are never null."""

    def merged(self, name: str) -> pl.Expr:
        return pl.col(name).sum()

    def merged_sql(self, name: str) -> str:
        return f"SUM({name})"

    def added_sql(self, name: str) -> str:
        return f"{name} + excluded.{name}"

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        return left[name] + right[name]


@dataclass(frozen=True, slots=True)
class Add:
    """Addition in which null + x = x: a sum of 0 would claim that there were values."""

    def merged(self, name: str) -> pl.Expr:
        return _null_if_all_are(name, pl.col(name).sum())

    def merged_sql(self, name: str) -> str:
        return f"SUM({name})"

    def added_sql(self, name: str) -> str:
        return f"COALESCE({name} + excluded.{name}, {name}, excluded.{name})"

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        return _either(left[name], right[name], lambda a, b: a + b)


@dataclass(frozen=True, slots=True)
class Least:
    def merged(self, name: str) -> pl.Expr:
        return pl.col(name).min()

    def merged_sql(self, name: str) -> str:
        return f"MIN({name})"

    def added_sql(self, name: str) -> str:
        return f"MIN(COALESCE({name}, excluded.{name}), COALESCE(excluded.{name}, {name}))"

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        return _either(left[name], right[name], min)


@dataclass(frozen=True, slots=True)
class Greatest:
    def merged(self, name: str) -> pl.Expr:
        return pl.col(name).max()

    def merged_sql(self, name: str) -> str:
        return f"MAX({name})"

    def added_sql(self, name: str) -> str:
        return f"MAX(COALESCE({name}, excluded.{name}), COALESCE(excluded.{name}, {name}))"

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        return _either(left[name], right[name], max)


@dataclass(frozen=True, slots=True)
class High:
    """The high part of an exact sum: what the low parts carry over is added to it."""

    low: str

    def merged(self, name: str) -> pl.Expr:
        return _null_if_all_are(name, pl.col(name).sum() + pl.col(self.low).sum() // exact.BASE)

    def merged_sql(self, name: str) -> str:
        return f"SUM({name}) + (SUM({self.low}) >> {exact.LOW_BITS})"

    def added_sql(self, name: str) -> str:
        carry = f"(({self.low} + excluded.{self.low}) >> {exact.LOW_BITS})"
        return f"COALESCE({name} + excluded.{name} + {carry}, {name}, excluded.{name})"

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        carry = (left[self.low] or 0) + (right[self.low] or 0) >> exact.LOW_BITS
        return _either(left[name], right[name], lambda a, b: a + b + carry)


@dataclass(frozen=True, slots=True)
class Low:
    """The low part of an exact sum, without what it carries over."""

    def merged(self, name: str) -> pl.Expr:
        return _null_if_all_are(name, pl.col(name).sum() % exact.BASE)

    def merged_sql(self, name: str) -> str:
        return f"SUM({name}) & {exact.BASE - 1}"

    def added_sql(self, name: str) -> str:
        return f"COALESCE(({name} + excluded.{name}) & {exact.BASE - 1}, {name}, excluded.{name})"

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        return _either(left[name], right[name], lambda a, b: (a + b) % exact.BASE)


@dataclass(frozen=True, slots=True)
class Latest:
    """The value of the row whose other column is greatest; of two that are equally late, the greater value."""

    by: str

    def merged(self, name: str) -> pl.Expr:
        return pl.col(name).filter(pl.col(self.by) == pl.col(self.by).max()).max()

    def merged_sql(self, name: str) -> None:
        return None

    def added_sql(self, name: str) -> str:
        later = f"excluded.{self.by} > {self.by} OR (excluded.{self.by} = {self.by} AND excluded.{name} > {name})"
        return f"CASE WHEN {self.by} IS NULL OR {later} THEN excluded.{name} ELSE {name} END"

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        if left[self.by] is None or right[self.by] is None:
            return left[name] if right[self.by] is None else right[name]
        return max((left[self.by], left[name]), (right[self.by], right[name]))[1]


@dataclass(frozen=True, slots=True)
class Oldest:
    """The least, but null is less than anything. A row without events has none, and changes nothing."""

    events: str
    """the column that counts them"""

    def merged(self, name: str) -> pl.Expr:
        is_oldest = pl.col(name).is_null() & (pl.col(self.events) > 0)
        return pl.when(~is_oldest.any()).then(pl.col(name).min())

    def merged_sql(self, name: str) -> str:
        return f"CASE WHEN COUNT({name}) = SUM({self.events} > 0) THEN MIN({name}) END"

    def added_sql(self, name: str) -> str:
        # Of several arguments SQLite's MIN is null if any is.
        return (
            f"CASE WHEN excluded.{self.events} = 0 THEN {name} WHEN {self.events} = 0 THEN excluded.{name}"
            f" ELSE MIN({name}, excluded.{name}) END"
        )

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        found = [row[name] for row in (left, right) if row[self.events] > 0]
        return None if None in found else min(found, default=None)


@dataclass(frozen=True, slots=True)
class Sketch:
    """Slot by slot; Polars and SQL have no function for it, so `columns.merge` and the stores do it for many rows."""

    def merged(self, name: str) -> pl.Expr:
        raise TypeError(f"no expression merges {name}: `columns.merge` does, for many rows at once")

    def merged_sql(self, name: str) -> None:
        return None

    def added_sql(self, name: str) -> str:
        """The new one, which the store has merged with the one that is there."""
        return f"COALESCE(excluded.{name}, {name})"

    def of_two(self, name: str, left: Row, right: Row) -> Any:
        return _either(left[name], right[name], sketch.of_two)


def _null_if_all_are(name: str, total: pl.Expr) -> pl.Expr:
    # The sum of nothing is 0 to Polars.
    return pl.when(pl.col(name).count() > 0).then(total)


def _either(left: Any, right: Any, both: Callable[[Any, Any], Any]) -> Any:
    """null + x = x"""
    if left is None or right is None:
        return right if left is None else left
    return both(left, right)
