"""A record on disk: a header under its own checksum, then the frame; and the one way to walk over records."""

import os
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

MAGIC = b"TMr1"
# magic, payload bytes, offset, append_ms, events before it in the partition, events, instance, sequence, payload crc32
_BODY = struct.Struct("<4sIQqQIQQI")
_WHOLE = struct.Struct("<4sIQqQIQQII")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _WHOLE.size

# Stays in the second-level cache: reads of 1 MB reach 3 GB/s here, reads of 16 MB two thirds of that.
_CHUNK_BYTES = 1 << 20


class Header(NamedTuple):
    """What a record says about itself. `events_before` makes every segment readable without the ones before it."""

    offset: int
    append_ms: int
    events_before: int
    events: int
    instance: int
    sequence: int


class Broken(Exception):
    """The first place at which a segment stops being whole records: its torn end, or damage; the caller knows which."""

    def __init__(self, position: int, offset: int, what: str) -> None:
        super().__init__(f"offset {offset} at byte {position}: {what}")
        self.position = position
        self.offset = offset
        self.what = what


def seed(identity: str, partition: int) -> int:
    """Starts every header checksum, so that a file from another log or partition does not pass for ours."""
    return zlib.crc32(f"{identity}/{partition}".encode())


def pack(header: Header, payload: bytes, *, seed: int) -> bytes:
    """The header's bytes as they stand in front of the payload."""
    body = _BODY.pack(MAGIC, len(payload), *header, zlib.crc32(payload))
    return body + _CHECKSUM.pack(zlib.crc32(body, seed))


def walk(
    file: int, *, seed: int, position: int, offset: int, end: int | None = None
) -> Iterator[tuple[int, Header, bytes]]:
    """Every record from `offset`, which stands at `position`, up to `end` or the end of the file; raises Broken.

    Reads ahead without knowing the synced mark. That is safe because nothing is kept between walks: bytes beyond
    `end`, which the writer may still take back, are thrown away unseen.
    """
    view = memoryview(bytearray(_CHUNK_BYTES))
    at = have = 0
    while end is None or offset < end:
        if have - at < HEADER_BYTES:
            view, have = _more(file, view, at, have, position, HEADER_BYTES)
            at = 0
            if not have and end is None:
                return
            if have < HEADER_BYTES:
                raise Broken(position, offset, f"the file ends {HEADER_BYTES - have} bytes short of a whole header")
        magic, length, found, append_ms, before, events, instance, sequence, crc, check = _WHOLE.unpack_from(view, at)
        if magic != MAGIC or zlib.crc32(view[at : at + HEADER_BYTES - 4], seed) != check:
            raise Broken(position, offset, "the header fails its checksum")
        if found != offset:
            raise Broken(position, offset, f"the record here has offset {found}")
        if have - at < HEADER_BYTES + length:
            view, have = _more(file, view, at, have, position, HEADER_BYTES + length)
            at = 0
            if have < HEADER_BYTES + length:
                raise Broken(position, offset, f"the file ends {HEADER_BYTES + length - have} bytes short of the frame")
        payload = bytes(view[at + HEADER_BYTES : at + HEADER_BYTES + length])
        if zlib.crc32(payload) != crc:
            raise Broken(position, offset, "the frame fails its checksum")
        yield position, Header(found, append_ms, before, events, instance, sequence), payload
        at += HEADER_BYTES + length
        position += HEADER_BYTES + length
        offset += 1


def walk_headers(file: int, *, seed: int, position: int, offset: int, end: int) -> Iterator[tuple[int, Header, int]]:
    """(position, header, payload bytes) of every record from `offset`, which stands at `position`; raises Broken.

    A frame is stepped over unread: what a header says is under its own checksum, also where the frame is damaged.
    """
    for number in range(offset, end):
        data = os.pread(file, HEADER_BYTES, position)
        if len(data) < HEADER_BYTES:
            raise Broken(position, number, f"the file ends {HEADER_BYTES - len(data)} bytes short of a whole header")
        magic, length, found, append_ms, before, events, instance, sequence, _, check = _WHOLE.unpack(data)
        if magic != MAGIC or zlib.crc32(data[:-4], seed) != check:
            raise Broken(position, number, "the header fails its checksum")
        if found != number:
            raise Broken(position, number, f"the record here has offset {found}")
        yield position, Header(found, append_ms, before, events, instance, sequence), length
        position += HEADER_BYTES + length


def _more(file: int, view: memoryview, at: int, have: int, position: int, need: int) -> tuple[memoryview, int]:
    """The unread rest moved to the front of the buffer and filled up from the file; grows for a larger frame."""
    rest = have - at
    larger = memoryview(bytearray(need)) if need > len(view) else view
    larger[:rest] = view[at:have]
    have = rest
    while have < need:
        got = os.preadv(file, [larger[have:]], position + have)
        if not got:
            break
        have += got
    return larger, have
