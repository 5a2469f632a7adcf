"""The partitioned log: one small protocol, with local segments or Kafka behind it."""

from tallymark.log.address import LogAddress, address
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
    LogUnreachable,
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
    "LogUnreachable",
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


def open_writer(settings: Settings, stream: str) -> LogWriter:
    """A writer of a stream, which is made if there is none; LogBusy if a local one has another writer."""
    if stream not in ("events", "dead"):
        raise ValueError(f"unknown stream {stream!r}; there are `events` and `dead`")
    if settings.log.kind == "kafka":
        # Here, not above: only who has a Kafka needs its library.
        from tallymark.log.kafka.writer import open_kafka_writer

        return open_kafka_writer(settings, stream)
    return _open_local_writer(settings, stream)


def _open_local_writer(settings: Settings, stream: str) -> LocalLogWriter:
    if stream == "events":
        partitions, partition_by, segment_bytes = (
            settings.log.partitions,
            settings.log.partition_by,
            settings.log.segment_bytes,
        )
    else:
        # Room is given back a segment at a time, so the dead letters' segments are an eighth of their room.
        partitions, partition_by = 1, "none"
        segment_bytes = max(4096, min(settings.log.segment_bytes, settings.log.dead_bytes // 8))
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
