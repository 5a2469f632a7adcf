"""Aggregates as answers print them: count, sum, min, max, avg of one row that the store has merged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import polars as pl

from tallymark.meters.model import Meter
from tallymark.store import exact
from tallymark.store.deltas import AGGREGATES

Value = int | float | Decimal | None

# Wide enough for any exact sum (`store.exact`: 29 digits).
_EXACT = Context(prec=60)


@dataclass(slots=True)
class Sums:
    """What is known of some events; adding two gives what is known of both."""

    n: int = 0
    n_value: int = 0
    sum: float | None = None
    exact: int | None = None
    """in units; a Python integer, so it cannot be too large"""
    min: float | None = None
    max: float | None = None

    def add(self, other: "Sums") -> None:
        self.n += other.n
        self.n_value += other.n_value
        self.sum = _either(self.sum, other.sum, lambda a, b: a + b)
        self.exact = _either(self.exact, other.exact, lambda a, b: a + b)
        self.min = _either(self.min, other.min, min)
        self.max = _either(self.max, other.max, max)


def rows(frame: pl.DataFrame, keys: Sequence[str]) -> Iterable[tuple[tuple[Any, ...], Sums]]:
    """(values of the key columns, sums) of each row."""
    width = len(keys)
    for row in frame.select(*keys, *AGGREGATES).iter_rows():
        n, n_value, total, high, low, least, most = row[width:]
        yield row[:width], Sums(n, n_value, total, exact.whole(high, low), least, most)


def largest(frame: pl.DataFrame, by: Sequence[str], function: str, meter: Meter, *, most: int) -> pl.DataFrame:
    """The first rows by one aggregate, ties by label; ranked in columns, since a meter may have a million series."""
    if meter.decimals is None:
        sums = [pl.col("sum").fill_null(0)]
        total = sums[0]
    else:
        # Both parts in turn: as one number they could be larger than a column holds.
        sums = [pl.col(part).fill_null(0) for part in exact.PARTS]
        total = sums[0] * float(1 << exact.LOW_BITS) + sums[1]
    # Null where there is no value, also where a sum of 0 is divided by none.
    average = pl.when(pl.col("n_value") > 0).then(total / pl.col("n_value"))
    known: dict[str, list[pl.Expr]] = {"count": [pl.col("n")], "sum": sums, "avg": [average]}
    ranks = known.get(function) or [pl.col(function)]
    falling = [True] * len(ranks) + [False] * len(by)
    return frame.sort(*ranks, *by, descending=falling, nulls_last=falling).head(most)


def values(sums: Sums, functions: Sequence[str], meter: Meter) -> dict[str, Value]:
    """Name -> number. A sum of nothing is 0; min, max and avg of nothing are null."""
    return {function: _value(sums, function, meter) for function in functions}


def unknown(functions: Sequence[str]) -> dict[str, Value]:
    return dict.fromkeys(functions)


def _value(sums: Sums, function: str, meter: Meter) -> Value:
    match function:
        case "count":
            return sums.n
        case "sum":
            return _sum(sums, meter)
        case "min":
            return sums.min
        case "max":
            return sums.max
        case "avg":
            return float(_sum(sums, meter) / sums.n_value) if sums.n_value else None
    raise ValueError(f"{function} cannot be computed here")


def _sum(sums: Sums, meter: Meter) -> float | Decimal:
    if meter.decimals is None:
        return sums.sum if sums.sum is not None else 0.0
    return _EXACT.scaleb(Decimal(sums.exact or 0), -meter.decimals)


def _either(mine: Any, others: Any, both: Any) -> Any:
    if mine is None or others is None:
        return others if mine is None else mine
    return both(mine, others)
