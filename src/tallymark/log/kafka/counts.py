"""How many events the records of a partition hold: Kafka keeps no such number, so it is read, and remembered."""

from collections.abc import Callable
from typing import Any

from tallymark.log.kafka.record import NotOurs, header_of

# What one question may read; a status page asks once a second.
MAX_RECORDS = 5_000
MAX_BYTES = 16_000_000
_AT_ONCE = 256

Fetch = Callable[[int, int, int], list[Any]]


def events_of(message: Any) -> int:
    """0 for a message that is not ours: it is not known to hold any."""
    try:
        return header_of(message).events
    except NotOurs:
        return 0


class EventCounts:
    """Sums of events up to each offset of one partition, for a range that moves forward."""

    def __init__(self, partition: int, fetch: Fetch) -> None:
        self._partition = partition
        self._fetch = fetch
        self._base = 0
        self._sums = [0]

    def between(self, start: int, end: int) -> int:
        """The events in start <= offset < end.

        Beyond `MAX_RECORDS` records or `MAX_BYTES` bytes that are new to it, the rest is taken to be like what was
        read; asked again it reads on, so that the answer becomes exact while the range stands still.
        """
        if start >= end:
            return 0
        if not self._base <= start <= self._known:
            self._base, self._sums = start, [0]
        self._forget_before(start)
        self._read(end)
        known = min(end, self._known)
        events = self._sums[known - self._base] - self._sums[start - self._base]
        if known == end:
            return events
        # `_read` got at least one record, so there is a mean.
        return events + round((end - known) * events / (known - start))

    @property
    def _known(self) -> int:
        return self._base + len(self._sums) - 1

    def _forget_before(self, start: int) -> None:
        # In steps, so that the list is not copied each time.
        if start - self._base > MAX_RECORDS:
            self._sums = self._sums[start - self._base :]
            self._base = start

    def _read(self, end: int) -> None:
        records = size = 0
        while self._known < end and records < MAX_RECORDS and size < MAX_BYTES:
            messages = self._fetch(self._partition, self._known, min(end - self._known, _AT_ONCE))
            for message in messages:
                self._sums.append(self._sums[-1] + events_of(message))
                size += len(message)
            records += len(messages)
