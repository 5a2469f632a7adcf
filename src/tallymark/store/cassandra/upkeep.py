"""Upkeep: what the keeper does to a keyspace."""

import time
from collections.abc import Callable, Mapping

from tallymark.store.cassandra.book import EVENTS
from tallymark.store.cassandra.dead_letters import CassandraDeadLetters
from tallymark.store.cassandra.fold import Fold
from tallymark.store.cassandra.progress import progress
from tallymark.store.cassandra.reading import Reader
from tallymark.store.cassandra.registry import CassandraRegistry
from tallymark.store.cassandra.roll import Roller
from tallymark.store.cassandra.sink import LAG
from tallymark.store.model import Folded, Marks, Pruned

KEEP_LAGS_MS = 3_600_000
COUNT_EVERY_S = 60.0

# As one range: a tombstone each time, not one for each batch.
_DROP_LAGS = "DELETE FROM book WHERE store = ? AND book = ? AND kind = ? AND a < ?"


class CassandraUpkeep:
    def __init__(
        self,
        reader: Reader,
        fold: Fold,
        registry: CassandraRegistry,
        dead_letters: CassandraDeadLetters,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader, self._fold, self._roller = reader, fold, Roller(reader, fold)
        self._registry, self._dead_letters = registry, dead_letters
        self._clock, self._count_at = clock, float("-inf")
        self._series: Mapping[int, int] = {}

    def marks(self) -> Marks:
        # In this order, as a snapshot: so `folded` is never beyond `journal_end`.
        points = progress(self._reader.book.head())
        return Marks(
            self._registry.revision(),
            self._reader.events.head().sequence,
            points.folded,
            points.rolled,
            points.first_s,
            points.last_s,
        )

    def fold(self, *, most_points: int) -> Folded:
        return self._fold.fold(most_points=most_points)

    def roll(self, *, now_ms: int, delay_s: int, slice_series: int) -> bool:
        return self._roller.roll(now_s=now_ms // 1000, delay_s=delay_s, slice_series=slice_series)

    def series(self) -> Mapping[int, int]:
        with self._fold.lock:
            if self._clock() >= self._count_at:
                self._count_at = self._clock() + COUNT_EVERY_S
                sets = progress(self._reader.book.head()).meters
                self._series = self._reader.index.counts(sets, self._reader.points.shards)
            return self._series

    def prune(self, *, now_ms: int, journal_keep_ms: int, letter_bytes: int, keep_after: int | None = None) -> Pruned:
        reader = self._reader
        folded = progress(reader.book.head()).folded
        if keep_after is not None:
            folded = min(folded, keep_after)
        entries = reader.journal.prune(folded=folded, before_ms=now_ms - journal_keep_ms)
        reader.link.rows(_DROP_LAGS, reader.store, EVENTS, LAG, now_ms - KEEP_LAGS_MS)
        return Pruned(entries, self._dead_letters.drop_oldest(keep_bytes=letter_bytes))

    def checkpoint(self) -> bool:
        """What Cassandra has answered for it keeps by itself."""
        return True
