"""A frame as a Kafka message: the payload untouched as its value, and one header that says what it is."""

import struct
from typing import Any, NamedTuple

from tallymark.log.protocol import LogDamaged, Record

HEADER = "tallymark"
VERSION = 1
# version, events, instance, sequence, partitions; the name of the partitioning strategy follows.
_FIXED = struct.Struct(">BIQQI")


class Header(NamedTuple):
    """Who wrote a frame, and how its events were spread over the partitions."""

    events: int
    instance: int
    sequence: int
    partitions: int
    partition_by: str


class NotOurs(ValueError):
    """A message that no writer of this log has made, or one newer than this release."""


def encode(header: Header) -> bytes:
    fixed = _FIXED.pack(VERSION, header.events, header.instance, header.sequence, header.partitions)
    return fixed + header.partition_by.encode()


def decode(content: bytes) -> Header:
    if len(content) < _FIXED.size:
        raise NotOurs(f"its header {HEADER!r} has {len(content)} bytes, at least {_FIXED.size} are needed")
    version, events, instance, sequence, partitions = _FIXED.unpack_from(content)
    if version != VERSION:
        raise NotOurs(f"its header {HEADER!r} has version {version}; this release reads {VERSION}: upgrade it")
    return Header(events, instance, sequence, partitions, content[_FIXED.size :].decode("utf-8", "replace"))


def header_of(message: Any) -> Header:
    """The header of a Kafka message; NotOurs if it has none."""
    for name, content in message.headers() or ():
        if name == HEADER and isinstance(content, bytes):
            return decode(content)
    raise NotOurs(f"it has no header {HEADER!r}: another program wrote it")


def record_of(message: Any) -> Record:
    """The record in a Kafka message; LogDamaged, with its place, if it is not one of ours."""
    try:
        header = header_of(message)
    except NotOurs as error:
        raise LogDamaged(
            f"{message.topic()} partition {message.partition()}: offset {message.offset()} is not a frame: {error}"
        ) from error
    return Record(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        header.events,
        header.instance,
        header.sequence,
        # A null value, which only compacted topics know, is as empty as b"".
        message.value() or b"",
    )
