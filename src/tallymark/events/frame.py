"""The frame codec: events that were committed together for one partition, as one Arrow IPC stream.

Version 1 has no column `histogram`. A frame that needs one is of version 2, because a reader of version 1 takes an
unknown column for damage and buries the frame, but stops at a newer version.

FrameError
├── UnknownFrameVersion   written by a newer Tallymark
└── FrameDamaged          not a frame, or not a whole one
"""

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

from tallymark.events.columns import FIXED, HISTOGRAM, PROP, PROP_TYPES, REST, VALUES
from tallymark.events.cutting import compact, cuts
from tallymark.events.tenants import MAIN

VERSION, VERSION_2 = b"1", b"2"
_VERSIONS = (VERSION, VERSION_2)
MAX_FRAME_EVENTS = 65_536
MAX_FRAME_BYTES = 1_000_000

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_FRAME_EVENTS",
    "PROP",
    "VERSION",
    "FrameDamaged",
    "FrameError",
    "UnknownFrameVersion",
    "decode",
    "encode",
    "frames",
]

_KEY = b"tallymark.frame"
_NULLS = b"tallymark.nulls"
# Columns that nearly always hold nothing. A frame says if they do, and then a reader of some columns leaves them out:
# 2 of the 20 ms that 200 frames of 1,000 events take. Frames that say nothing were written before, and are read whole.
_SPARSE = ("resent", "rest")
# Without threads: handing a frame's small buffers to a pool costs four times what compressing them does.
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)
_PROP_TYPES = set(PROP_TYPES.values())
# What pyarrow raises for bytes that are not what they should be; a made-up length makes it ask for absurd memory.
_UNREADABLE = (pa.ArrowException, OSError, MemoryError, ValueError, TypeError, KeyError, IndexError, OverflowError)


class FrameError(ValueError):
    """A payload that does not give events."""


class UnknownFrameVersion(FrameError):
    """A frame of a version this release does not know."""


class FrameDamaged(FrameError):
    """Not a frame, or cut, or changed."""


def encode(batch: pa.RecordBatch) -> bytes:
    """One frame. `frames` splits what is too large for one."""
    stream = pa.BufferOutputStream()
    version = VERSION if _is_plain(batch) else VERSION_2
    batch = batch.replace_schema_metadata({_KEY: version, _NULLS: _empty(batch)})
    with pa.ipc.new_stream(stream, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    return bytes(stream.getvalue())


def _is_plain(batch: pa.RecordBatch) -> bool:
    """Whether the versions of Tallymark that know nothing but version 1 would count these events rightly."""
    tenants: Any = batch.column("tenant")
    return "histogram" not in batch.schema.names and tenants.dictionary.to_pylist() in ([], [MAIN])


def frames(batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    """(events, payload) of as many frames as the limits ask for, in order, each with just the names that it uses.

    Only the frame of a single event can be larger than the limit; the caller decides what becomes of it.
    """
    if batch.num_rows > MAX_FRAME_EVENTS:
        rows = -(-batch.num_rows // (batch.num_rows // MAX_FRAME_EVENTS + 1))
        for start in range(0, batch.num_rows, rows):
            yield from frames(batch.slice(start, rows))
        return
    payload = encode(compact(batch))
    if len(payload) <= MAX_FRAME_BYTES or batch.num_rows == 1:
        yield batch.num_rows, payload
        return
    # Cut by weight, and never into single events at once: a piece that is still too large, because it compresses worse
    # than the others, is cut again, so everything is encoded a few times at most.
    for start, rows in cuts(batch, len(payload) // (MAX_FRAME_BYTES * 9 // 10) + 1):
        yield from frames(batch.slice(start, rows))


def decode(payload: bytes, *, only: Collection[str] | None = None) -> pa.RecordBatch:
    """The events of a frame, or just the columns named in `only`; raises UnknownFrameVersion or FrameDamaged.

    Of the columns `resent` and `rest` in `only`, one without any value may be missing, and `tenant` if all events are
    those of `main`.
    """
    try:
        with pa.ipc.open_stream(payload, options=_READ_OPTIONS) as reader:
            schema = reader.schema
        _check_columns(schema, _version(schema.metadata))
        with pa.ipc.open_stream(payload, options=_read_options(schema, only)) as reader:
            batch = reader.read_next_batch()
            # Offsets that point outside their buffer would crash a later reader.
            batch.validate(full=True)
            _read_to_the_end(reader)
    except FrameError:
        raise
    except StopIteration:
        raise FrameDamaged("a frame without a record batch") from None
    except _UNREADABLE as error:
        raise FrameDamaged(f"{len(payload):,} bytes are not a frame: {error}") from error
    return batch


def _read_options(schema: pa.Schema, only: Collection[str] | None) -> pa.ipc.IpcReadOptions:
    """Without threads: for buffers this small handing them to Arrow's pool costs five times the decompression."""
    if only is None:
        return pa.ipc.IpcReadOptions(use_threads=False)
    metadata = schema.metadata or {}
    said = metadata.get(_NULLS, b"").split(b",")
    left_out = {name for name in _SPARSE if name.encode() in said}
    if metadata.get(_KEY) == VERSION:
        left_out.add("tenant")
    included = [number for number, name in enumerate(schema.names) if name in only and name not in left_out]
    return pa.ipc.IpcReadOptions(use_threads=False, included_fields=included)


def _empty(batch: pa.RecordBatch) -> bytes:
    names = [name for name in _SPARSE if name in batch.schema.names]
    return ",".join(name for name in names if batch.column(name).null_count == batch.num_rows).encode()


def _version(metadata: dict[bytes, bytes] | None) -> bytes:
    version = (metadata or {}).get(_KEY)
    if version is None:
        raise FrameDamaged("an Arrow stream, but not a frame: its metadata lacks tallymark.frame")
    if version not in _VERSIONS:
        known = " and ".join(map(repr, _VERSIONS))
        raise UnknownFrameVersion(f"frame version {version!r}; this release reads {known}: upgrade it")
    return version


def _check_columns(schema: pa.Schema, version: bytes) -> None:
    names = schema.names
    types = dict(zip(names, schema.types, strict=True))
    if len(types) != len(names):
        raise FrameDamaged("a frame with two columns of one name")
    for name, wanted in (FIXED | REST).items():
        if types.pop(name, None) != wanted:
            raise FrameDamaged(f"a frame without column {name} of type {wanted}")
    if types.pop("values", VALUES) != VALUES:
        raise FrameDamaged(f"a frame whose column values is not of type {VALUES}")
    if version == VERSION_2 and types.pop("histogram", HISTOGRAM) != HISTOGRAM:
        raise FrameDamaged(f"a frame whose column histogram is not of type {HISTOGRAM}")
    for name, found in types.items():
        if not name.startswith(PROP) or found not in _PROP_TYPES:
            raise FrameDamaged(f"a frame with an unknown column {name} of type {found}")


def _read_to_the_end(reader: pa.ipc.RecordBatchStreamReader) -> None:
    try:
        reader.read_next_batch()
    except StopIteration:
        return
    raise FrameDamaged("a frame with more than one record batch")
