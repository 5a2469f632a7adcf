"""The functions that users ask for: which columns each needs, its values, and how series are ranked by it.

No Polars at import: the collector and the command line want only the names.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Context as DecimalContext
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

Value = int | float | Decimal | None

# Wide enough for any exact sum (`aggregates.exact`: 29 digits).
_EXACT = DecimalContext(prec=60)
_EXACT_SUM = ("exact_high", "exact_low")
VERSION_COLUMN = "version"
"""the column that says which versions of a meter counted, where several share their points"""
_SKETCH = "sketch"
HISTOGRAM, REGISTERS = f"{_SKETCH}.histogram", f"{_SKETCH}.registers"
"""what a sketch may hold: for percentiles, and for distinct counts"""


# Canonical: p5 and p99.9, not p05 nor p99.90, so that a percentile has one name.
_PERCENTILE = re.compile(r"p(?!0$)(?:0|[1-9][0-9]?)(?:\.[0-9]{0,2}[1-9])?")


def is_percentile(name: str) -> bool:
    """Whether this is the name of a percentile: `p` and a number over 0 and under 100, at most three decimals."""
    return _PERCENTILE.fullmatch(name) is not None


def percentile_name(number: float | Decimal) -> str:
    """`p99.9` of 99.9; ValueError if there is no such percentile."""
    given = Decimal(str(number))
    if not given.is_finite() or not 0 < given < 100 or given != round(given, 3):
        raise ValueError(f"a percentile is over 0 and under 100, with at most 3 decimals, not {number}")
    return f"p{round(given, 3):f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Context:
    """What the value of a row depends on besides its columns."""

    decimals: int | None = None
    """the meter's: with it sums are exact, and kept in other columns"""
    seconds: Sequence[float] | None = None
    """the time that each row covers; None if the question has no bounds"""


@dataclass(frozen=True, slots=True)
class Function:
    kept: Callable[[int | None], Sequence[str]]
    """what must be kept for it, given the meter's decimals: columns, and of a sketch HISTOGRAM or REGISTERS"""
    values: "Callable[[pl.DataFrame, Context], list[Value]]"
    """one a row of a frame that has the columns; of no events count, sum, rate and distinct are 0, all else is null"""
    ranks: "Callable[[int | None], Sequence[pl.Expr]]"
    """what a top is sorted by, falling; several where one number could not hold it"""
    relative_error: float = 0.0
    """of |value - true| / |true|: 0 is exact; the bound for percentiles, one standard error for distinct counts"""

    def columns(self, decimals: int | None) -> Sequence[str]:
        """Those it is computed from."""
        return tuple(part.split(".")[0] for part in self.kept(decimals))

    @property
    def approximate(self) -> bool:
        return self.relative_error > 0


def function(name: str) -> Function:
    """The function of this name; KeyError if there is none."""
    return FUNCTIONS[name] if name in FUNCTIONS else _percentile(name)


def columns_for(functions: Iterable[str], *, decimals: int | None) -> frozenset[str]:
    """The columns that these functions need. Reading fewer halves the time of a wide question."""
    return frozenset(column for name in functions for column in function(name).columns(decimals))


def kept_for(functions: Iterable[str], *, decimals: int | None) -> frozenset[str]:
    """What a meter that computes these keeps; in finer parts than columns, since a sketch may hold one or the other."""
    return frozenset(part for name in ("count", *functions) for part in function(name).kept(decimals))


def can_ask(compute: Iterable[str], decimals: int | None, name: str) -> bool:
    """Whether a meter that computes some functions can answer this one: all that it needs is kept for them."""
    return kept_for([name], decimals=decimals) <= kept_for(compute, decimals=decimals)


def _plain(name: str, *needed: str) -> Function:
    """A function that is a column."""

    def values(rows: "pl.DataFrame", context: Context) -> list[Value]:
        return rows[name].to_list()

    def ranks(decimals: int | None) -> "Sequence[pl.Expr]":
        import polars as pl

        return [pl.col(name)]

    return Function(lambda _: needed, values, ranks)


def _sum_columns(decimals: int | None) -> Sequence[str]:
    return ("n", "n_value", *(("sum",) if decimals is None else _EXACT_SUM))


def _sums(rows: "pl.DataFrame", context: Context) -> list[Value]:
    if context.decimals is None:
        # By hand: for one row a Polars expression takes a hundred times as long.
        return [0.0 if total is None else total for total in rows["sum"].to_list()]
    from tallymark.aggregates import exact

    parts = rows.select(_EXACT_SUM).iter_rows()
    return [_EXACT.scaleb(Decimal(exact.whole(high, low) or 0), -context.decimals) for high, low in parts]


def _sum_ranks(decimals: int | None) -> "Sequence[pl.Expr]":
    import polars as pl

    # Both parts in turn: as one number they could be larger than a column holds.
    return [pl.col(name).fill_null(0) for name in (("sum",) if decimals is None else _EXACT_SUM)]


def _averages(rows: "pl.DataFrame", context: Context) -> list[Value]:
    pairs = zip(_sums(rows, context), rows["n_value"], strict=True)
    return [float(total / n) if n and total is not None else None for total, n in pairs]


def _average_ranks(decimals: int | None) -> "Sequence[pl.Expr]":
    import polars as pl

    from tallymark.aggregates import exact

    parts = _sum_ranks(decimals)
    total = parts[0] if decimals is None else parts[0] * float(exact.BASE) + parts[1]
    # Null where there is no value, also where a sum of 0 is divided by none.
    return [pl.when(pl.col("n_value") > 0).then(total / pl.col("n_value"))]


def _rates(rows: "pl.DataFrame", context: Context) -> list[Value]:
    if context.seconds is None:
        raise ValueError("a rate needs a question with bounds")
    return [n / seconds if seconds else None for n, seconds in zip(rows["n"], context.seconds, strict=True)]


def _distinct(rows: "pl.DataFrame", context: Context) -> list[Value]:
    from tallymark.aggregates import distinct, sketch

    parts = sketch.read_in_parts(rows[_SKETCH])
    return [each for slots, height in parts for each in distinct.estimates(slots, height)]


@lru_cache(maxsize=1_000)
def _percentile(name: str) -> Function:
    if not is_percentile(name):
        raise KeyError(name)
    # In thousandths, so that ranks are whole numbers.
    thousandths = int(Decimal(name[1:]) * 1_000)

    def values(rows: "pl.DataFrame", context: Context) -> list[Value]:
        from tallymark.aggregates import histogram, sketch

        parts = sketch.read_in_parts(rows[_SKETCH])
        return [each for slots, height in parts for each in histogram.percentiles(slots, height, thousandths)]

    return Function(lambda _: ("n", HISTOGRAM), values, _ranked_by(values), 0.0109)


def _ranked_by(
    values: "Callable[[pl.DataFrame, Context], list[Value]]",
) -> "Callable[[int | None], Sequence[pl.Expr]]":
    """By the values themselves, where no expression gives them."""

    def ranks(decimals: int | None) -> "Sequence[pl.Expr]":
        import polars as pl

        def ranked(sketches: pl.Series) -> pl.Series:
            found = values(sketches.to_frame(_SKETCH), Context(decimals))
            return pl.Series(found, dtype=pl.Float64)

        return [pl.col(_SKETCH).map_batches(ranked, return_dtype=pl.Float64, is_elementwise=False)]

    return ranks


FUNCTIONS = {
    "count": _plain("n", "n"),
    "sum": Function(_sum_columns, _sums, _sum_ranks),
    "min": _plain("min", "n", "n_value", "min"),
    "max": _plain("max", "n", "n_value", "max"),
    "avg": Function(_sum_columns, _averages, _average_ranks),
    # The value with the latest event time; of several at that moment the greatest.
    "last": _plain("last", "n", "n_value", "last_ms", "last"),
    # Events per second.
    "rate": Function(lambda _: ("n",), _rates, _plain("n", "n").ranks),
    "distinct": Function(lambda _: ("n", REGISTERS), _distinct, _ranked_by(_distinct), 0.0163),
}
NAMES = tuple(FUNCTIONS)
"""in the order in which definitions and answers have them; percentiles come after them"""
