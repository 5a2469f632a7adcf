"""The index beside a segment, one entry a record: offsets are found by multiplication, times by bisection."""

import os
import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tallymark.log.local.record import HEADER_BYTES

_ENTRY = struct.Struct("<QqQIIQ")
_COLUMNS = np.dtype(
    [
        ("position", "<u8"),
        ("append_ms", "<i8"),
        ("events_before", "<u8"),
        ("events", "<u4"),
        ("payload_bytes", "<u4"),
        ("check", "<u8"),
    ]
)
ENTRY_BYTES = _ENTRY.size

Entries = npt.NDArray[np.void]

# Odd, so that a flipped bit in any field changes the sum (mod 2**64); different, so that swapped fields do too.
_FACTORS = (
    0x9E3779B97F4A7C15,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0xD6E8FEB86659FD93,
    0xA0761D6478BD642F,
)
_OFFSET_FACTOR = 0xE7037ED1A0B428DB
_MASK = 2**64 - 1


class IndexDamaged(Exception):
    """Entries that are missing, cannot be read, or fail their check."""


class Entry(NamedTuple):
    """What the index knows of a record."""

    position: int
    append_ms: int
    events_before: int
    events: int
    payload_bytes: int

    @property
    def next_position(self) -> int:
        """Where the record after this one begins."""
        return self.position + HEADER_BYTES + self.payload_bytes


def pack(entry: Entry, *, offset: int, seed: int) -> bytes:
    return _ENTRY.pack(*entry, _check(entry, offset, seed))


def read_one(file: int, *, first: int, offset: int, seed: int) -> Entry:
    """The entry of an offset in the index of the segment that begins at `first`."""
    data = _read(file, ENTRY_BYTES, (offset - first) * ENTRY_BYTES)
    if len(data) != ENTRY_BYTES:
        raise IndexDamaged(f"no entry for offset {offset}")
    *fields, check = _ENTRY.unpack(data)
    entry = Entry(*fields)
    if check != _check(entry, offset, seed):
        raise IndexDamaged(f"the entry of offset {offset} fails its check")
    return entry


def read_many(file: int, *, first: int, start: int, end: int, seed: int) -> Entries:
    """The entries of start <= offset < end as columns."""
    wanted = (end - start) * ENTRY_BYTES
    data = _read(file, wanted, (start - first) * ENTRY_BYTES)
    if len(data) != wanted:
        raise IndexDamaged(f"no entry for offset {start + len(data) // ENTRY_BYTES}")
    entries = columns(data)
    wrong = np.flatnonzero(entries["check"] != _checks(entries, start, seed))
    if len(wrong):
        raise IndexDamaged(f"the entry of offset {start + int(wrong[0])} fails its check")
    return entries


def columns(data: bytes) -> Entries:
    """Packed entries as columns."""
    return np.frombuffer(data, _COLUMNS)


def _read(file: int, size: int, position: int) -> bytes:
    try:
        return os.pread(file, size, position)
    except OSError as error:
        raise IndexDamaged(f"byte {position:,} cannot be read ({error.strerror or error})") from error


def _check(entry: Entry, offset: int, seed: int) -> int:
    """A weighted sum rather than a crc32: the same can be computed over whole columns at once."""
    a, b, c, d, e = _FACTORS
    position, append_ms, before, events, payload = entry
    total = position * a + append_ms * b + before * c + events * d + payload * e
    return (total + offset * _OFFSET_FACTOR + seed) & _MASK


def _checks(entries: Entries, start: int, seed: int) -> npt.NDArray[np.uint64]:
    offsets = np.arange(start, start + len(entries), dtype=np.uint64)
    total = offsets * np.uint64(_OFFSET_FACTOR) + np.uint64(seed)
    for name, factor in zip(Entry._fields, _FACTORS, strict=True):
        total += entries[name].astype(np.uint64) * np.uint64(factor)
    return total
