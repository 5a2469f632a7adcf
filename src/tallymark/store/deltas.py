"""Deltas: what a stretch of the log adds to each (meter, series, bucket). Merging them is addition, in any order."""

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import polars as pl
from pyarrow import ipc

from tallymark.aggregates import columns
from tallymark.store import numeric
from tallymark.store.format import VERSION, newer

KEY_TYPES = {"meter": pl.Int32(), "series": pl.String(), "bucket_s": pl.Int64()}
KEYS = tuple(KEY_TYPES)
SCHEMA = pl.Schema(KEY_TYPES | columns.TYPES)

# An Arrow stream begins with four bytes 0xFF. Until format 2 an entry was such a stream and nothing else.
_IPC_BEGINS = 0xFF
_UNVERSIONED = 2

SEPARATOR = "\0"
"""between the label values of a series; events with a NUL in a label are refused at the door"""


_EMPTY = pl.DataFrame(schema=SCHEMA)


def empty() -> pl.DataFrame:
    return _EMPTY


def from_rows(rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    """Rows in the order of `SCHEMA`; all may leave out the same last columns."""
    if not rows:
        return empty()
    given = dict(list(SCHEMA.items())[: len(rows[0])])
    missing = [column.left_out for column in columns.COLUMNS if column.name not in given]
    return pl.DataFrame(rows, schema=given, orient="row").with_columns(missing)


def encode(deltas: pl.DataFrame) -> bytes:
    """A version and an Arrow IPC stream (lz4) of the columns that hold something; no bytes at all for no deltas."""
    if deltas.is_empty():
        return b""
    kept = [name for name in SCHEMA.names() if deltas[name].null_count() < deltas.height]
    target = BytesIO(bytes([VERSION]))
    target.seek(1)
    deltas.select(kept).cast({name: SCHEMA[name] for name in kept}).write_ipc_stream(target, compression="lz4")
    return target.getvalue()


def decode(payload: bytes, *, sketches: bool = True) -> pl.DataFrame:
    """What `encode` of this or an older version made; columns that it left out hold nothing.

    Without sketches these hold nothing either, and are not even decompressed.
    """
    if not payload:
        return empty()
    version = _UNVERSIONED if payload[0] == _IPC_BEGINS else payload[0]
    if version > VERSION:
        raise ValueError(newer("a journal entry", version))
    found = _read_ipc(payload if payload[0] == _IPC_BEGINS else payload[1:], sketches=sketches)
    unknown = [name for name, kind in found.schema.items() if SCHEMA.get(name) != kind]
    if unknown or not set(KEYS) <= set(found.columns):
        raise ValueError(f"a journal entry with columns {dict(found.schema)}, but this version knows {SCHEMA}")
    # Put together by hand: with expressions that takes three times as long as reading it.
    there = set(found.columns)
    return pl.DataFrame(
        [found[name] if name in there else numeric.nothing(name, found.height) for name in SCHEMA.names()]
    )


def _read_ipc(stream: bytes, *, sketches: bool) -> pl.DataFrame:
    if sketches:
        return pl.read_ipc_stream(BytesIO(stream))
    with ipc.open_stream(stream) as reader:
        names = reader.schema.names
    if columns.SKETCH not in names:
        return pl.read_ipc_stream(BytesIO(stream))
    return pl.read_ipc_stream(BytesIO(stream), columns=[name for name in names if name != columns.SKETCH])


def touched(entries: Iterable[tuple[int, pl.DataFrame]]) -> dict[int, set[int]]:
    """Set -> the buckets that these batches added to."""
    found: dict[int, set[int]] = {}
    for _, frame in entries:
        for set_id, bucket_s in frame.select("meter", "bucket_s").unique().iter_rows():
            found.setdefault(set_id, set()).add(bucket_s)
    return found


def merge(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """One row for each (meter, series, bucket_s) met in any of the frames."""
    filled = [frame for frame in frames if not frame.is_empty()]
    if not filled:
        return empty()
    return columns.merge(pl.concat(filled), KEYS).select(SCHEMA.names())


def sums(merged_deltas: pl.DataFrame) -> pl.DataFrame:
    """For each meter the sum over all its series (null), so that a question without labels reads one, not all."""
    totals = columns.merge(merged_deltas, ["meter", "bucket_s"])
    return totals.with_columns(pl.lit(None, dtype=pl.String).alias("series")).select(SCHEMA.names())
