"""Kafka's reader: in any process, any number of them. It joins no group and commits nothing."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from tallymark.log.address import KafkaAddress
from tallymark.log.kafka.client import PATIENCE_S, SLACK_MS
from tallymark.log.kafka.counts import EventCounts
from tallymark.log.kafka.fetch import Fetcher, OutOfRange, peeking_consumer, reading_consumer
from tallymark.log.kafka.layout import check_same
from tallymark.log.kafka.offsets import Offsets
from tallymark.log.kafka.record import record_of
from tallymark.log.kafka.stretch import fitting_end
from tallymark.log.kafka.topics import Topics
from tallymark.log.protocol import LogDamaged, LogError, LogLost, LogUnreachable, Positions, Record

_Told = TypeVar("_Told")

# A consumer with its threads and up to 20 MB for each partition that is being read here.
_OPEN_PARTITIONS = 3
# At most this many frames in hand at once, each up to 1.2 MB.
_AT_ONCE = 32
_GLANCED = 8
_FIRSTS_FOR_S = 1.0
_IDENTITY_FOR_S = 5.0
_TIMES_REMEMBERED = 4_096


class KafkaLogReader:
    """Reads a topic; LogLost if its writer has not made it yet. For one thread at a time.

    Whatever it asks of the brokers is answered within `client.PATIENCE_S`, or LogUnreachable.
    """

    def __init__(self, address: KafkaAddress) -> None:
        self._address = address
        self._topics = Topics(address.brokers, address.options)
        self._topic = self._topics.find(address.topic)
        self._identity_checked = time.monotonic()
        self._fetchers: OrderedDict[int, Fetcher] = OrderedDict()
        consumer = peeking_consumer(address.brokers, address.options)
        self._peeks = Fetcher(consumer, brokers=address.brokers, topic=address.topic)
        self._offsets = Offsets(
            consumer, brokers=address.brokers, topic=address.topic, partitions=self._topic.partitions
        )
        self._firsts: dict[int, int] = {}
        self._firsts_asked = 0.0
        self._ends: dict[int, int] = {}
        self._times: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._counts = [EventCounts(number, self._peek) for number in range(self.partitions)]

    @property
    def identity(self) -> str:
        """Of this log; positions taken from another log must not be used here."""
        return self._topic.identity

    @property
    def partitions(self) -> int:
        return self._topic.partitions

    @property
    def slack_ms(self) -> int:
        return SLACK_MS

    @property
    def has_wall_times(self) -> bool:
        return True  # of the brokers

    def positions(self) -> Mapping[int, Positions]:
        """`first` may be a second old; what retention deleted meanwhile shows when it is read.

        Of a partition without a leader it answers what it knew last, if it has seen it before.
        """
        self._check_identity()
        if time.monotonic() - self._firsts_asked > _FIRSTS_FOR_S:
            self._firsts, self._firsts_asked = self._offsets.firsts(), time.monotonic()
        ends = self._offsets.ends()
        for partition, end in ends.items():
            if end < self._ends.get(partition, 0):
                self._check_identity(now=True)
                raise LogLost(
                    f"{self._address.topic} partition {partition} ended at {self._ends[partition]} and now ends at "
                    f"{end}: Kafka lost its end; check Kafka's log before anything is counted again"
                )
        self._ends = ends
        return {
            partition: Positions(min(self._firsts[partition], end), end, end, None) for partition, end in ends.items()
        }

    def read(self, partition: int, start: int, end: int) -> Iterator[Record]:
        """Records start <= offset < end; raises LogLost or LogDamaged rather than leave one out.

        Stretches that follow one another are served from what was fetched ahead.
        """
        self._check(partition, start, end)
        return self._records(partition, start, end)

    def glance(self, partition: int, start: int, end: int, *, max_events: int, max_bytes: int) -> list[Record]:
        """Some of these records, in order from `start`: until a limit is reached; what cannot be read is left out."""
        self._check(partition, start, end)
        found: list[Record] = []
        events = size = 0
        if partition in self._offsets.leaderless:
            return found
        try:
            while start < end:
                messages, start = self._peek(partition, start, min(end - start, _GLANCED))
                for message in messages:
                    with suppress(LogDamaged):
                        found.append(record_of(message))
                        events, size = events + found[-1].events, size + len(found[-1].payload)
                    if events >= max_events or size >= max_bytes:
                        return found
        finally:
            self._peeks.release()
        return found

    def bounded_end(self, partition: int, start: int, *, max_events: int, max_bytes: int) -> int:
        """Where a stretch from `start` ends that stays within both limits (but has a record if there is one).

        What it looks at, and what it cannot see, says `stretch.fitting_end`. A partition without a leader has nothing
        to plan, so that the others go on.
        """
        end = self.positions()[partition].synced
        self._check(partition, start, end)
        if partition in self._offsets.leaderless:
            return start
        return fitting_end(partial(self._peek_all, partition), start, end, max_events=max_events, max_bytes=max_bytes)

    def events_in(self, partition: int, start: int, end: int) -> int:
        """How many events these records hold; messages of other programs and what cannot be read as none.

        Read from their headers and remembered; of more than `counts.MAX_RECORDS` that are new, the rest is estimated.
        """
        self._check(partition, start, end)
        try:
            return self._counts[partition].between(start, end)
        finally:
            self._peeks.release()

    def append_ms(self, partition: int, offset: int) -> int:
        """When the record at `offset` was appended; if it is missing or damaged, when the next one was.

        Without a next one, it is when one before it was: too early a time makes claims remember more, never less.
        """
        if (known := self._times.get((partition, offset))) is not None:
            return known
        self._check(partition, offset, offset + 1)
        fetcher = self._fetchers.get(partition)
        if fetcher is not None and fetcher.stands_at(partition, offset):
            message = self._first_from(fetcher, partition, offset)
        else:
            try:
                message = self._first_from(self._peeks, partition, offset)
            finally:
                self._peeks.release()
        if message is None:
            return self._earlier_ms(partition, offset)
        append_ms = int(message.timestamp()[1])
        self._times[partition, offset] = append_ms
        if len(self._times) > _TIMES_REMEMBERED:
            self._times.popitem(last=False)
        return append_ms

    def offset_at(self, partition: int, append_ms: int) -> int:
        """The first offset appended at or after this time (the synced end if none)."""
        at = self.positions()[partition]
        found = self._offsets.at(partition, append_ms)
        return at.synced if found is None else min(max(found, at.first), at.synced)

    def close(self) -> None:
        for fetcher in [*self._fetchers.values(), self._peeks]:
            fetcher.close()
        self._fetchers.clear()

    def _records(self, partition: int, start: int, end: int) -> Iterator[Record]:
        while start < end:
            # Asked for anew each time: another read may have moved the consumer, or closed it.
            fetcher = self._fetcher(partition)
            count = min(end - start, _AT_ONCE)
            for message in self._ask(partial(fetcher.fetch, partition, start, count), partition, start):
                yield record_of(message)
                start += 1

    def _fetcher(self, partition: int) -> Fetcher:
        fetcher = self._fetchers.get(partition)
        if fetcher is None:
            if len(self._fetchers) >= _OPEN_PARTITIONS:
                self._fetchers.popitem(last=False)[1].close()
            address = self._address
            consumer = reading_consumer(address.brokers, address.options)
            fetcher = self._fetchers[partition] = Fetcher(consumer, brokers=address.brokers, topic=address.topic)
        self._fetchers.move_to_end(partition)
        return fetcher

    def _earlier_ms(self, partition: int, offset: int) -> int:
        """When a record before `offset` was appended, none too far; now if there is none."""
        first, step = self._firsts[partition], 1
        try:
            while offset > first:
                start = max(first, offset - step)
                if (message := self._first_from(self._peeks, partition, start)) is not None:
                    return int(message.timestamp()[1])
                if start == first:
                    break
                step *= 2
        finally:
            self._peeks.release()
        return time.time_ns() // 1_000_000

    def _peek_all(self, partition: int, start: int, end: int) -> list[Any]:
        """The messages in start <= offset < end that can be read."""
        messages: list[Any] = []
        try:
            while start < end:
                found, start = self._peek(partition, start, end - start)
                messages += found
        finally:
            self._peeks.release()
        return messages

    def _peek(self, partition: int, start: int, count: int) -> tuple[list[Any], int]:
        return self._ask(partial(self._peeks.fetch_readable, partition, start, count), partition, start)

    def _first_from(self, fetcher: Fetcher, partition: int, start: int) -> Any:
        return self._ask(partial(fetcher.first_from, partition, start), partition, start)

    def _ask(self, question: Callable[[], _Told], partition: int, start: int) -> _Told:
        """An offset that its leader does not have is lost only if the positions say so, too."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return question()
            except OutOfRange as error:
                self._firsts_asked = 0.0
                self._check(partition, start, start + 1, positions=self.positions())
                if time.monotonic() > end:
                    raise LogUnreachable(
                        f"{self._address.topic} partition {partition}: the leader does not have offset {start}, which "
                        f"is in the log: {error}; nothing is lost, try again"
                    ) from error

    def _check(self, partition: int, start: int, end: int, *, positions: Mapping[int, Positions] | None = None) -> None:
        if positions is None:
            self._check_identity()
            if self._firsts.get(partition, end) <= start <= end <= self._ends.get(partition, -1):
                return
            positions = self.positions()
        at = positions[partition]
        where = f"{self._address.topic} partition {partition}"
        if start < at.first:
            raise LogLost(
                f"{where}: offset {start} is gone, the oldest kept is {at.first}; Kafka's retention deleted the rest; "
                "start there, or keep more (log.keep_s, and retention.ms of the topic)"
            )
        if end > max(at.synced, start):
            raise LogLost(f"{where}: offset {end - 1} was asked for, but the log ends before offset {at.synced}")
        if start > at.synced:
            raise LogLost(f"{where}: a read from offset {start} was asked for, but the log ends before {at.synced}")

    def _check_identity(self, *, now: bool = False) -> None:
        """LogLost if the topic was deleted, or made again, since this reader was opened; LayoutChanged if it grew."""
        if not now and time.monotonic() - self._identity_checked < _IDENTITY_FOR_S:
            return
        try:
            found = self._topics.find(self._address.topic)
        finally:
            self._identity_checked = time.monotonic()
        try:
            check_same(found, self._topic)
        except LogError:
            self._identity_checked = -math.inf  # it stays another, and the next question is told so, too
            raise
