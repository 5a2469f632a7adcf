"""Deltas: what a stretch of the log adds to each (meter, series, bucket). Merging them is addition, in any order."""

from collections.abc import Iterable
from io import BytesIO

import polars as pl

from tallymark.aggregates import columns

KEY_TYPES = {"meter": pl.Int32(), "series": pl.String(), "bucket_s": pl.Int64()}
KEYS = tuple(KEY_TYPES)
SCHEMA = pl.Schema(KEY_TYPES | columns.TYPES)

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
    return pl.concat(filled).group_by(KEYS).agg(columns.merged()).select(SCHEMA.names())


def sums(merged_deltas: pl.DataFrame) -> pl.DataFrame:
    """For each meter the sum over all its series (null), so that a question without labels reads one, not all."""
    totals = merged_deltas.group_by("meter", "bucket_s").agg(columns.merged())
    return totals.with_columns(pl.lit(None, dtype=pl.String).alias("series")).select(SCHEMA.names())
