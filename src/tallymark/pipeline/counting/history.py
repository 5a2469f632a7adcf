"""The past of one partition, as claims read it."""

import logging
from collections.abc import Iterator

import numpy as np

from tallymark.log.protocol import LogDamaged, LogReader, Record
from tallymark.pipeline.counting.claims import Ids
from tallymark.pipeline.counting.decode import ids_of

logger = logging.getLogger("tallymark.pipeline")

# Ids are merged in chunks of about this many events: large enough for numpy, small enough for memory.
CHUNK_EVENTS = 200_000


class LogHistory:
    """Implements `claims.History` over a log reader, without the records that were buried."""

    def __init__(self, log: LogReader, partition: int, *, skip: frozenset[int] = frozenset()) -> None:
        self._log = log
        self._partition = partition
        self._skip = sorted(skip)

    @property
    def identity(self) -> str:
        return self._log.identity

    @property
    def first(self) -> int:
        return self._log.positions()[self._partition].first

    @property
    def slack_ms(self) -> int:
        return self._log.slack_ms

    @property
    def has_wall_times(self) -> bool:
        return self._log.has_wall_times

    def append_ms(self, offset: int) -> int | None:
        at = self._log.positions()[self._partition]
        return self._log.append_ms(self._partition, offset) if at.first <= offset < at.synced else None

    def offset_at(self, append_ms: int) -> int:
        return self._log.offset_at(self._partition, append_ms)

    def ids(self, start: int, end: int) -> Iterator[Ids]:
        waiting: list[Ids] = []
        events = 0
        for ids in ids_of(self._records(start, end)):
            waiting.append(ids)
            events += len(ids.high)
            if events >= CHUNK_EVENTS:
                yield _joined(waiting)
                waiting, events = [], 0
        if waiting:
            yield _joined(waiting)

    def is_whole(self, start: int, end: int) -> bool:
        return not any(start <= offset < end for offset in self._skip)

    def _records(self, start: int, end: int) -> Iterator[Record]:
        for buried in [*(offset for offset in self._skip if start <= offset < end), end]:
            yield from self._readable(start, buried)
            start = buried + 1

    def _readable(self, start: int, end: int) -> Iterator[Record]:
        """Without records that are damaged by now: they were counted when they were whole, and must not stop the rest.

        Only their ids are lost, so a copy that is still to come would count again: that is said.
        """
        while start < end:
            try:
                for record in self._log.read(self._partition, start, end):
                    yield record
                    start = record.offset + 1
                return
            except LogDamaged as error:
                logger.error("a counted record is damaged; later copies of its events would count again: %s", error)
                start += 1


def _joined(parts: list[Ids]) -> Ids:
    return Ids(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
