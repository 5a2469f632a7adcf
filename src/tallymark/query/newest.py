"""The newest part of the log, looked at in a few places: what `tail`, `seen` and previews are made from."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from tallymark.http import Problem
from tallymark.log.protocol import LogError, LogLost, LogReader, LogUnreachable, Record

MOST_WAIT_S = 5.0

Found = TypeVar("Found")
Ranges = Mapping[int, tuple[int, int]]
"""partition -> first offset, and the one after the last"""


class LogGlances:
    """A reader of the events for all who look at them, one at a time; opened when first needed."""

    def __init__(self, open_reader: Callable[[], LogReader]) -> None:
        self._open_reader = open_reader
        self._lock = threading.Lock()
        self._reader: LogReader | None = None

    def ask(self, question: Callable[[LogReader], Found], *, otherwise: Found) -> Found:
        """What the log says; `otherwise` if there is none yet. 503 if it does not answer."""
        if not self._lock.acquire(timeout=MOST_WAIT_S):
            raise Problem(503, "overloaded", "others are looking at the log; try again", headers={"retry-after": "1"})
        try:
            if self._reader is None:
                self._reader = self._open_reader()
            return question(self._reader)
        except LogUnreachable as error:
            self._close()
            detail = f"the log does not answer: {error}"
            raise Problem(503, "log_unreachable", detail, headers={"retry-after": "1"}) from None
        except LogLost:
            self._close()
            return otherwise
        except (LogError, OSError):
            self._close()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def no_log() -> LogReader:
    raise LogLost("there is no log")


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of the log one look may read. A record is read whole, so the last one may exceed it."""

    events: int
    size: int
    """bytes of records, compressed as they are in the log"""
    places: int
    """stretches that are read, over all partitions"""


@dataclass(slots=True)
class Sample:
    """Records from several places of a range, newest place first."""

    records: list[Record] = field(default_factory=list)
    events: int = 0
    size: int = 0
    of_records: int = 0
    """how many the range holds"""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out."""
        return len(self.records) == self.of_records

    @property
    def passed(self) -> int:
        """How many events the range holds, as far as the sample tells."""
        return round(self.events * self.of_records / len(self.records)) if self.records else 0


def sampled(log: LogReader, ranges: Ranges, budget: Budget) -> Sample:
    """As much of the ranges as the budget allows, spread evenly over them, with no more than a seek for each place."""
    ranges = {partition: (start, end) for partition, (start, end) in ranges.items() if start < end}
    sample = Sample(of_records=sum(end - start for start, end in ranges.values()))
    places = list(_places(ranges, budget.places))
    for number, (partition, start, end) in enumerate(places):
        left = len(places) - number
        events, size = budget.events - sample.events, budget.size - sample.size
        if events <= 0 or size <= 0:
            break
        # Retention may have been faster.
        with suppress(LogLost):
            found = log.glance(partition, start, end, max_events=-(-events // left), max_bytes=-(-size // left))
            sample.records += found
            sample.events += sum(record.events for record in found)
            sample.size += sum(len(record.payload) for record in found)
    return sample


def _places(ranges: Ranges, most: int) -> Iterator[tuple[int, int, int]]:
    """(partition, start, end) of parts that together are the ranges, or of some of them, newest first."""
    if not ranges:
        return
    chosen = sorted(ranges, key=lambda partition: ranges[partition][1] - ranges[partition][0], reverse=True)[:most]
    parts = most // len(chosen)
    borders = {partition: _borders(*ranges[partition], parts) for partition in chosen}
    for place in range(parts):
        for partition in chosen:
            if place < len(borders[partition]):
                yield partition, *borders[partition][place]


def _borders(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    parts = min(parts, end - start)
    at = [start + (end - start) * part // parts for part in range(parts + 1)]
    return list(pairwise(at))[::-1]


def since(log: LogReader, from_ms: int) -> Ranges:
    """What was appended from this moment of the wall clock on."""
    return {
        partition: (log.offset_at(partition, from_ms + at.clock_ahead_ms), at.synced)
        for partition, at in log.positions().items()
    }
