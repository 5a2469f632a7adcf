"""Rows of the store as answers print them."""

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from tallymark.aggregates import columns
from tallymark.aggregates.functions import FUNCTIONS, Value
from tallymark.meters.model import Meter

Row = namedtuple("Row", columns.NAMES)  # type: ignore[misc]  # a field for each column of the table
NOTHING = Row(**columns.NOTHING)


def rows(frame: pl.DataFrame, keys: Sequence[str]) -> Iterable[tuple[tuple[Any, ...], Row]]:
    """(values of the key columns, aggregates) of each row."""
    width = len(keys)
    for row in frame.select(*keys, *columns.NAMES).iter_rows():
        yield row[:width], Row(*row[width:])


def largest(frame: pl.DataFrame, by: Sequence[str], function: str, meter: Meter, *, most: int) -> pl.DataFrame:
    """The first rows by one aggregate, ties by label; ranked in columns, since a meter may have a million series."""
    ranks = FUNCTIONS[function].ranks(meter.decimals)
    falling = [True] * len(ranks) + [False] * len(by)
    return frame.sort(*ranks, *by, descending=falling, nulls_last=falling).head(most)


def values(row: Row, functions: Sequence[str], meter: Meter) -> dict[str, Value]:
    """Name -> number. A sum of nothing is 0; min, max and avg of nothing are null."""
    return {function: FUNCTIONS[function].value(row, meter.decimals) for function in functions}


def unknown(functions: Sequence[str]) -> dict[str, Value]:
    return dict.fromkeys(functions)
