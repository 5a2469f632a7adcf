"""Logs for tests: one in memory, and one that kills its readers."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tallymark.log.address import LogAddress
from tallymark.log.protocol import Appended, LogLost, LogReader, NotAppended, Outgoing, Positions, Record


class MemoryLog:
    """A log in memory, writer and reader at once.

    `refusing` says which partitions take nothing now, and why; `unsynced`, how many records are written, not durable.
    """

    def __init__(self, partitions: int = 2, *, clock: Callable[[], int] = lambda: 0) -> None:
        self.identity = "memory"
        self.slack_ms = 0
        self.has_wall_times = False
        self.clock_ahead_ms = 0
        self.refusing: dict[int, str] = {}
        self.unsynced: dict[int, int] = {}
        self.appends = 0
        self.closed = False
        self._clock = clock
        self._records: list[list[Record]] = [[] for _ in range(partitions)]

    @property
    def partitions(self) -> int:
        return len(self._records)

    def append(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
        self.appends += 1
        return [self._append(frame) for frame in frames]

    def _append(self, frame: Outgoing) -> Appended | NotAppended:
        if (reason := self.refusing.get(frame.partition)) is not None:
            return NotAppended(frame.partition, reason)
        records = self._records[frame.partition]
        offset, now = len(records), self._clock()
        records.append(Record(frame.partition, offset, now, frame.events, 1, offset, frame.payload))
        return Appended(frame.partition, offset, now)

    def positions(self) -> dict[int, Positions]:
        standings = {}
        for number, records in enumerate(self._records):
            synced = len(records) - self.unsynced.get(number, 0)
            events = sum(record.events for record in records[:synced])
            standings[number] = Positions(0, synced, len(records), events, self.clock_ahead_ms)
        return standings

    def sealed(self) -> dict[int, str]:
        return {}

    def read(self, partition: int, start: int, end: int) -> Iterator[Record]:
        records = self._records[partition]
        if not 0 <= start <= end <= len(records):
            raise LogLost(f"partition {partition} has 0 to {len(records)}, not {start} to {end}")
        yield from records[start:end]

    def glance(self, partition: int, start: int, end: int, *, max_events: int, max_bytes: int) -> list[Record]:
        return list(self.read(partition, start, self._within(partition, start, end, max_events, max_bytes)))

    def _within(self, partition: int, start: int, end: int, max_events: int, max_bytes: int) -> int:
        events = size = 0
        for record in self.read(partition, start, end):
            events, size = events + record.events, size + len(record.payload)
            if events >= max_events or size >= max_bytes:
                return record.offset + 1
        return end

    def bounded_end(self, partition: int, start: int, *, max_events: int, max_bytes: int) -> int:
        events = size = 0
        for record in self._records[partition][start:]:
            events, size = events + record.events, size + len(record.payload)
            if record.offset > start and (events > max_events or size > max_bytes):
                return record.offset
        return len(self._records[partition])

    def events_in(self, partition: int, start: int, end: int) -> int:
        return sum(record.events for record in self._records[partition][start:end])

    def append_ms(self, partition: int, offset: int) -> int:
        return self._records[partition][offset].append_ms

    def offset_at(self, partition: int, append_ms: int) -> int:
        records = self._records[partition]
        return next((record.offset for record in records if record.append_ms >= append_ms), len(records))

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class DeadlyLog:
    """The address of a log in which some records kill the process that reads them: (partition, offset)."""

    address: LogAddress
    deadly: frozenset[tuple[int, int]]

    def open_reader(self) -> "DeadlyReader":
        return DeadlyReader(self.address.open_reader(), self.deadly)


class DeadlyReader:
    def __init__(self, log: LogReader, deadly: frozenset[tuple[int, int]]) -> None:
        self._log = log
        self._deadly = deadly

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, partition: int, start: int, end: int) -> Iterator[Record]:
        for record in self._log.read(partition, start, end):
            if (partition, record.offset) in self._deadly:
                os._exit(3)
            yield record
