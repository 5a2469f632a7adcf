"""Rows of the store as answers print them."""

from collections import namedtuple
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import polars as pl

from tallymark.aggregates import columns
from tallymark.aggregates.functions import FUNCTIONS, VERSION_COLUMN, Value
from tallymark.events.moments import rfc3339_ms
from tallymark.store.model import RegisteredMeter

Row = namedtuple("Row", columns.NAMES)  # type: ignore[misc]  # a field for each column of the table
NOTHING = Row(**columns.NOTHING)


def rows(frame: pl.DataFrame, keys: Sequence[str]) -> Iterable[tuple[tuple[Any, ...], Row]]:
    """(values of the key columns, aggregates) of each row."""
    width = len(keys)
    for row in frame.select(*keys, *columns.NAMES).iter_rows():
        yield row[:width], Row(*row[width:])


def largest(
    frame: pl.DataFrame, by: Sequence[str], function: str, registered: RegisteredMeter, *, most: int
) -> pl.DataFrame:
    """The first rows by one aggregate, ties by label; ranked in columns, since a meter may have a million series."""
    ranks = FUNCTIONS[function].ranks(registered.meter.decimals)
    if (since := registered.added.get(function)) is not None:
        is_whole = (pl.col("n") == 0) | (pl.col(VERSION_COLUMN) >= since.version).fill_null(False)
        ranks = [pl.when(is_whole).then(rank) for rank in ranks]
    falling = [True] * len(ranks) + [False] * len(by)
    return frame.sort(*ranks, *by, descending=falling, nulls_last=falling).head(most)


def values(row: Any, functions: Sequence[str], registered: RegisteredMeter) -> dict[str, Value]:
    """Name -> number. A sum of nothing is 0; min, max and avg of nothing are null.

    What some of the events lack, because they were counted before the meter computed it, is null as well.
    """
    decimals = registered.meter.decimals
    return {
        function: FUNCTIONS[function].value(row, decimals)
        if not row.n or registered.is_whole(function, row.version)
        else None
        for function in functions
    }


def lacking(found: Iterable[Any], functions: Sequence[str], registered: RegisteredMeter) -> list[str]:
    """The functions that are null in one of these rows because the meter did not compute them from the beginning."""
    added = [function for function in functions if function in registered.added]
    if not added:
        return []
    versions = {row.version for row in found if row.n}
    return [function for function in added if not all(registered.is_whole(function, each) for each in versions)]


def since(registered: RegisteredMeter, functions: Collection[str]) -> dict[str, Any]:
    """`{"since": {"sum": when it was first computed}}` for those of the functions that a later version added, if any.

    The moment is null for a built-in meter: its versions come with those of Tallymark.
    """
    moments = {
        function: rfc3339_ms(added.at_ms) if added.at_ms else None
        for function, added in registered.added.items()
        if function in functions
    }
    return {"since": moments} if moments else {}


def unknown(functions: Sequence[str]) -> dict[str, Value]:
    return dict.fromkeys(functions)
