"""The partitioned log: one small protocol, and the local log behind it."""

from tallymark.log.address import LogAddress
from tallymark.log.local.retention import drop_oldest, retain
from tallymark.log.local.writer import LocalLogWriter
from tallymark.log.protocol import (
    Appended,
    LayoutChanged,
    LogBusy,
    LogDamaged,
    LogError,
    LogLost,
    LogReader,
    LogWriter,
    NotAppended,
    Outgoing,
    Positions,
    Record,
)
from tallymark.settings import Settings

__all__ = [
    "Appended",
    "LayoutChanged",
    "LocalLogWriter",
    "LogAddress",
    "LogBusy",
    "LogDamaged",
    "LogError",
    "LogLost",
    "LogReader",
    "LogWriter",
    "NotAppended",
    "Outgoing",
    "Positions",
    "Record",
    "address",
    "drop_oldest",
    "open_reader",
    "open_writer",
    "retain",
]


def open_writer(settings: Settings, stream: str) -> LocalLogWriter:
    """The one writer of a stream, which is made if there is none; LogBusy if another process has it."""
    if stream == "events":
        partitions, partition_by, segment_bytes = (
            settings.log.partitions,
            settings.log.partition_by,
            settings.log.segment_bytes,
        )
    elif stream == "dead":
        # Room is given back a segment at a time, so the dead letters' segments are an eighth of their room.
        partitions, partition_by = 1, "none"
        segment_bytes = max(4096, min(settings.log.segment_bytes, settings.log.dead_bytes // 8))
    else:
        raise ValueError(f"unknown stream {stream!r}; there are `events` and `dead`")
    return LocalLogWriter(
        settings.log_folder,
        stream=stream,
        partitions=partitions,
        partition_by=partition_by,
        segment_bytes=segment_bytes,
        reserve_bytes=settings.log.reserve_bytes,
    )


def open_reader(settings: Settings, stream: str) -> LogReader:
    """A reader of a stream; LogLost if its writer has not made it yet."""
    return address(settings, stream).open_reader()


def address(settings: Settings, stream: str) -> LogAddress:
    """Where a stream is, for another process to open."""
    return LogAddress("local", str(settings.log_folder.absolute()), stream)
