"""Rows of the store as answers print them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl

from tallymark.aggregates import columns
from tallymark.aggregates.functions import VERSION_COLUMN, Context, Value, function
from tallymark.events.moments import rfc3339_ms
from tallymark.meters.selection import METRIC
from tallymark.store.model import RegisteredMeter

RATE = "rate"
NOTHING = pl.select(column.left_out for column in columns.COLUMNS)
"""the one row of a question that met no events"""


def values(
    frame: pl.DataFrame,
    functions: Sequence[str],
    registered: RegisteredMeter,
    *,
    seconds: Sequence[float] | None = None,
) -> list[dict[str, Value]]:
    """Name -> number, for each row. A sum of nothing is 0; min, max and avg of nothing are null.

    What some of the events lack, because they were counted before the meter computed it, is null as well.
    """
    found = by_function(frame, functions, registered, seconds=seconds)
    return [dict(zip(functions, row, strict=True)) for row in zip(*found, strict=True)]


def by_function(
    frame: pl.DataFrame,
    functions: Sequence[str],
    registered: RegisteredMeter,
    *,
    seconds: Sequence[float] | None = None,
) -> list[list[Value]]:
    """As `values`: for each function a number for each row."""
    context = Context(registered.meter.decimals, seconds)
    return [_of_function(frame, name, registered, context) for name in functions]


def _of_function(frame: pl.DataFrame, name: str, registered: RegisteredMeter, context: Context) -> list[Value]:
    if name == RATE and context.seconds is None:
        return [None] * frame.height
    found = function(name).values(frame, context)
    is_whole = _is_whole(name, registered)
    if is_whole is None:
        return found
    whole = frame.select(is_whole).to_series()
    return [value if has_all else None for value, has_all in zip(found, whole, strict=True)]


def _is_whole(name: str, registered: RegisteredMeter) -> pl.Expr | None:
    """Whether a row has what the function needs of all its events; None if every row has."""
    added = registered.added_for(name)
    if added is None:
        return None
    return (pl.col("n") == 0) | (pl.col(VERSION_COLUMN) >= added.version).fill_null(False)


def largest(
    frame: pl.DataFrame, by: Sequence[str], name: str, registered: RegisteredMeter, *, most: int
) -> pl.DataFrame:
    """The first rows by one aggregate, ties by label; ranked in columns, since a meter may have a million series."""
    ranks = function(name).ranks(registered.meter.decimals)
    is_whole = _is_whole(name, registered)
    if is_whole is not None:
        ranks = [pl.when(is_whole).then(rank) for rank in ranks]
    if frame.height > 10 * most:
        # Few can come first: sorting 10,000 labels takes longer than all the rest of a top.
        first = frame.select(ranks[0].alias("rank")).to_series()
        frame = frame.filter((first >= first.top_k(most).min()).fill_null(first.count() < most))
    falling = [True] * len(ranks) + [False] * len(by)
    return frame.sort(*ranks, *by, descending=falling, nulls_last=falling).head(most)


def lacking(frame: pl.DataFrame, functions: Sequence[str], registered: RegisteredMeter) -> list[str]:
    """The functions that are null in one of these rows because the meter did not compute them from the beginning."""
    judged = [(name, _is_whole(name, registered)) for name in functions]
    return [name for name, is_whole in judged if is_whole is not None and not frame.select(is_whole.all()).item()]


def since(registered: RegisteredMeter, functions: Collection[str]) -> dict[str, Any]:
    """`{"since": {"sum": when it was first computed}}` for those of the functions that a later version added, if any.

    The moment is null for a built-in meter: its versions come with those of Tallymark.
    """
    moments = {
        name: rfc3339_ms(added.at_ms) if added.at_ms else None
        for name in functions
        if (added := registered.added_for(name)) is not None
    }
    return {"since": moments} if moments else {}


def kept_since(registered: RegisteredMeter, where: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """`{"kept_since": {"cpu": since when it is stored}}` for the metrics asked for, of a meter with `keep: queried`.

    The moment is null for one that is not stored now; of a built-in meter, what was stored from the beginning is left
    out.
    """
    kept = registered.kept
    if kept is None or METRIC not in where:
        return {}
    moments = {metric: kept.since_ms.get(metric, kept.every_since_ms) for metric in where[METRIC]}
    told = {metric: None if at is None else rfc3339_ms(at) for metric, at in moments.items() if at != 0}
    return {"kept_since": told} if told else {}


def unknown(functions: Sequence[str]) -> dict[str, Value]:
    return dict.fromkeys(functions)
