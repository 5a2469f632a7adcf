"""Aggregates as answers print them: count, sum, min, max, avg of one row that the store has merged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import polars as pl

from tallymark.meters.model import Meter

Value = int | float | Decimal | None

# Wide enough for any sum of 64-bit integers.
_EXACT = Context(prec=60)


@dataclass(slots=True)
class Sums:
    """What is known of some events; adding two gives what is known of both."""

    n: int = 0
    n_value: int = 0
    sum: float | None = None
    exact: int | None = None
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
    wanted = frame.select(*keys, "n", "n_value", "sum", "exact", "min", "max")
    for row in wanted.iter_rows():
        yield row[:width], Sums(*row[width:])


def largest(frame: pl.DataFrame, by: Sequence[str], function: str, meter: Meter, *, most: int) -> pl.DataFrame:
    """The first rows by one aggregate, ties by label; ranked in columns, since a meter may have a million series."""
    total = pl.col("sum" if meter.decimals is None else "exact").fill_null(0)
    # Null where there is no value, also where a sum of 0 is divided by none.
    average = pl.when(pl.col("n_value") > 0).then(total / pl.col("n_value"))
    rank = {"count": pl.col("n"), "sum": total, "avg": average}.get(function, pl.col(function))
    order = [False] * len(by)
    return frame.sort(rank, *by, descending=[True, *order], nulls_last=[True, *order]).head(most)


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


def ranking(value: Mapping[str, Value], function: str) -> float | Decimal:
    """What to sort by; nothing comes last."""
    number = value[function]
    return Decimal("-Infinity") if number is None else number
