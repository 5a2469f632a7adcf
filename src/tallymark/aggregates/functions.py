"""The functions that users ask for: which columns each needs, its value, and how series are ranked by it.

No Polars at import: the collector and the command line want only the names.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

Value = int | float | Decimal | None

# Wide enough for any exact sum (`aggregates.exact`: 29 digits).
_EXACT = Context(prec=60)
_EXACT_SUM = ("exact_high", "exact_low")
VERSION_COLUMN = "version"
"""the column that says which versions of a meter counted, where several share their points"""


@dataclass(frozen=True, slots=True)
class Function:
    """`decimals` is the meter's: with it sums are exact, and kept in other columns."""

    columns: Callable[[int | None], Sequence[str]]
    """that must be kept for it"""
    value: Callable[[Any, int | None], Value]
    """of a row that has the columns as attributes; of no events a count and a sum are 0, all else is null"""
    ranks: Callable[[int | None], "Sequence[pl.Expr]"]
    """what a top is sorted by, falling; several where one number could not hold it"""
    relative_error: float = 0.0
    """bound of |value - true| / |true|; 0 is exact"""


def columns_for(functions: Iterable[str], *, decimals: int | None) -> frozenset[str]:
    """The columns that these functions need. Reading fewer halves the time of a wide question."""
    return frozenset(name for function in functions for name in FUNCTIONS[function].columns(decimals))


def _plain(name: str) -> "Callable[[int | None], Sequence[pl.Expr]]":
    def ranks(decimals: int | None) -> "Sequence[pl.Expr]":
        import polars as pl

        return [pl.col(name)]

    return ranks


def _sum_columns(decimals: int | None) -> Sequence[str]:
    return ("n", "n_value", *(("sum",) if decimals is None else _EXACT_SUM))


def _sum(row: Any, decimals: int | None) -> float | Decimal:
    if decimals is None:
        return 0.0 if row.sum is None else float(row.sum)
    from tallymark.aggregates import exact

    return _EXACT.scaleb(Decimal(exact.whole(row.exact_high, row.exact_low) or 0), -decimals)


def _sum_ranks(decimals: int | None) -> "Sequence[pl.Expr]":
    import polars as pl

    # Both parts in turn: as one number they could be larger than a column holds.
    return [pl.col(name).fill_null(0) for name in (("sum",) if decimals is None else _EXACT_SUM)]


def _average(row: Any, decimals: int | None) -> float | None:
    return float(_sum(row, decimals) / row.n_value) if row.n_value else None


def _average_ranks(decimals: int | None) -> "Sequence[pl.Expr]":
    import polars as pl

    from tallymark.aggregates import exact

    parts = _sum_ranks(decimals)
    total = parts[0] if decimals is None else parts[0] * float(exact.BASE) + parts[1]
    # Null where there is no value, also where a sum of 0 is divided by none.
    return [pl.when(pl.col("n_value") > 0).then(total / pl.col("n_value"))]


FUNCTIONS = {
    "count": Function(lambda _: ("n",), lambda row, _: row.n, _plain("n")),
    "sum": Function(_sum_columns, _sum, _sum_ranks),
    "min": Function(lambda _: ("n", "n_value", "min"), lambda row, _: row.min, _plain("min")),
    "max": Function(lambda _: ("n", "n_value", "max"), lambda row, _: row.max, _plain("max")),
    "avg": Function(_sum_columns, _average, _average_ranks),
    # The value with the latest event time; of several at that moment the greatest.
    "last": Function(lambda _: ("n", "n_value", "last_ms", "last"), lambda row, _: row.last, _plain("last")),
}
NAMES = tuple(FUNCTIONS)
"""in the order in which definitions and answers have them"""
