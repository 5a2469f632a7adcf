"""How many events the records of a partition hold: Kafka keeps no such number, so it is read, and remembered."""

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from tallymark.log.kafka.record import NotOurs, header_of

# What one question may read; a status page asks once a second.
MAX_RECORDS = 5_000
MAX_BYTES = 16_000_000
# How many sums are remembered, some 0.7 MB: a pipeline that is down for days must not fill the memory of who asks.
MAX_SUMS = 2 * MAX_RECORDS
_AT_ONCE = 256

Fetch = Callable[[int, int, int], tuple[list[Any], int]]
"""The messages that can be read among `count` from an offset on, and where to go on, beyond that offset."""


def events_of(message: Any) -> int:
    """0 for a message that is not ours: it is not known to hold any."""
    try:
        return header_of(message).events
    except NotOurs:
        return 0


class EventCounts:
    """Sums of events up to the offsets of one partition, for a range that moves forward.

    Offsets that are missing or damaged hold none that are known.
    """

    def __init__(self, partition: int, fetch: Fetch) -> None:
        self._partition = partition
        self._fetch = fetch
        self._begin(0)

    def between(self, start: int, end: int) -> int:
        """The events in start <= offset < end.

        Beyond `MAX_RECORDS` records or `MAX_BYTES` bytes that are new to it, the rest is taken to be like what was
        read; asked again it reads on, so that the answer becomes exact while the range stands still. In a range of
        more than `MAX_SUMS` records, `start` may be off by the few records between two sums that are remembered.
        """
        if start >= end:
            return 0
        if not self._offsets[0] <= start <= self._known:
            self._begin(start)
        self._forget_before(start)
        self._read(end)
        known = min(end, self._known)
        events = self._sum_to(known) - self._sum_to(start)
        if known == end:
            return events
        # `_read` got further than `start`, so there is a mean.
        return events + round((end - known) * events / (known - start))

    @property
    def _known(self) -> int:
        return self._offsets[-1]

    def _begin(self, offset: int) -> None:
        self._offsets, self._sums = [offset], [0]

    def _sum_to(self, offset: int) -> int:
        """The events before `offset`, which lies within what is known."""
        place = bisect_right(self._offsets, offset) - 1
        before, events = self._offsets[place], self._sums[place]
        if before == offset:
            return events
        share = (offset - before) / (self._offsets[place + 1] - before)
        return events + round(share * (self._sums[place + 1] - events))

    def _forget_before(self, start: int) -> None:
        place = bisect_right(self._offsets, start) - 1
        # In steps, so that the lists are not copied each time.
        if place > MAX_RECORDS:
            del self._offsets[:place], self._sums[:place]

    def _read(self, end: int) -> None:
        records = size = 0
        while self._known < end and records < MAX_RECORDS and size < MAX_BYTES:
            asked = min(end - self._known, _AT_ONCE)
            messages, onward = self._fetch(self._partition, self._known, asked)
            for message in messages:
                if message.offset() > self._known:
                    self._remember(message.offset(), 0)
                self._remember(message.offset() + 1, events_of(message))
                size += len(message)
            if onward > self._known:
                self._remember(onward, 0)
            records += max(1, len(messages))
            if not messages:
                # Damage that Kafka's client does not get over by itself: the next question goes on behind it.
                break

    def _remember(self, offset: int, events: int) -> None:
        self._offsets.append(offset)
        self._sums.append(self._sums[-1] + events)
        if len(self._sums) > MAX_SUMS:
            # Every second one goes, but for the last.
            del self._offsets[1:-1:2], self._sums[1:-1:2]
