"""Deltas: what a stretch of the log adds to each (meter, series, bucket). Merging them is addition, in any order."""

from collections.abc import Iterable
from io import BytesIO

import polars as pl

from tallymark.store import exact

SCHEMA = pl.Schema(
    {
        "meter": pl.Int32,
        "series": pl.String,
        "bucket_s": pl.Int64,
        "n": pl.Int64,
        "n_value": pl.Int64,
        "sum": pl.Float64,
        "exact_high": pl.Int64,
        "exact_low": pl.Int64,
        "min": pl.Float64,
        "max": pl.Float64,
    }
)
KEYS = ("meter", "series", "bucket_s")
AGGREGATES = ("n", "n_value", "sum", *exact.PARTS, "min", "max")

SEPARATOR = "\0"
"""between the label values of a series; events with a NUL in a label are refused at the door"""


def empty() -> pl.DataFrame:
    return pl.DataFrame(schema=SCHEMA)


def encode(deltas: pl.DataFrame) -> bytes:
    """The deltas as one Arrow IPC stream (lz4); no bytes at all for no deltas."""
    if deltas.is_empty():
        return b""
    target = BytesIO()
    deltas.select(SCHEMA.names()).cast(SCHEMA).write_ipc_stream(target, compression="lz4")
    return target.getvalue()


def decode(payload: bytes) -> pl.DataFrame:
    if not payload:
        return empty()
    deltas = pl.read_ipc_stream(BytesIO(payload))
    if deltas.schema != SCHEMA:
        raise ValueError(
            f"deltas with columns {dict(deltas.schema)} instead of {dict(SCHEMA)}: written by another version"
        )
    return deltas


def merge(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """One row for each (meter, series, bucket_s) met in any of the frames."""
    filled = [frame for frame in frames if not frame.is_empty()]
    if not filled:
        return empty()
    return pl.concat(filled).group_by(KEYS).agg(merged()).select(SCHEMA.names())


def merged() -> list[pl.Expr]:
    """The aggregates of several rows as one row's: counts add, null + x = x, min and max ignore nulls."""
    high, low = exact.merged()
    return [
        pl.col("n").sum(),
        pl.col("n_value").sum(),
        _or_null("sum", pl.col("sum").sum()),
        _or_null("exact_high", high),
        _or_null("exact_low", low),
        pl.col("min").min(),
        pl.col("max").max(),
    ]


def sums(merged_deltas: pl.DataFrame) -> pl.DataFrame:
    """For each meter the sum over all its series (null), so that a question without labels reads one, not all."""
    totals = merged_deltas.group_by("meter", "bucket_s").agg(merged())
    return totals.with_columns(pl.lit(None, dtype=pl.String).alias("series")).select(SCHEMA.names())


def _or_null(name: str, total: pl.Expr) -> pl.Expr:
    # The sum of nothing is 0 to Polars; here it is null, because 0 would claim that there were values.
    return pl.when(pl.col(name).count() > 0).then(total).otherwise(None).alias(name)
