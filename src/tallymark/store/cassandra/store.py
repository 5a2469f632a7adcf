"""The store of a cluster: every part of it in one keyspace, open to many processes on many machines."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl

from tallymark.meters.model import Meter
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra import bootstrap, connection, fold
from tallymark.store.cassandra.book import EVENTS, POINTS, Book
from tallymark.store.cassandra.dead import DeadLetters
from tallymark.store.cassandra.fold import Fold
from tallymark.store.cassandra.heartbeats import CassandraHeartbeats
from tallymark.store.cassandra.lease import CassandraLease
from tallymark.store.cassandra.progress import progress
from tallymark.store.cassandra.reading import CassandraSnapshot, Reader
from tallymark.store.cassandra.registry import CassandraRegistry
from tallymark.store.cassandra.roll import Roller
from tallymark.store.cassandra.sink import CassandraSink
from tallymark.store.cassandra.upkeep import drop_lags
from tallymark.store.model import (
    DeadLetter,
    Folded,
    Gap,
    LetterSummary,
    LiveMeters,
    Marks,
    Pruned,
    RegisteredMeter,
    Stretch,
    StretchResult,
)
from tallymark.store.protocol import StoreError


class CassandraStore:
    """See `store.protocol`: Registry, Sink and Upkeep, answered by the modules of this package."""

    def __init__(
        self,
        address: CassandraAddress,
        *,
        connect: connection.Connect = connection.connect,
        pause_s: float = fold.MIN_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._clock = clock
        self._link = connection.Link(address, connect)
        facts = bootstrap.prepare(self._link, address)
        store = address.name
        self._registry = CassandraRegistry(self._link, store)
        self._sink = CassandraSink(self._link, store)
        self._reader = Reader(self._link, store, facts.shards)
        self._fold = Fold(self._reader, pause_s=pause_s, clock=clock)
        self._roller = Roller(self._reader, self._fold)
        self._dead = DeadLetters(self._link, store)
        self._heartbeats = CassandraHeartbeats(self._link, store)

    def close(self) -> None:
        self._link.close()

    # Registry

    def live_meters(self) -> LiveMeters:
        return self._registry.live_meters()

    def meters(self) -> list[RegisteredMeter]:
        return self._registry.meters()

    def meter(self, name: str) -> RegisteredMeter:
        return self._registry.meter(name)

    def put_meter(self, meter: Meter, *, now_ms: int) -> RegisteredMeter:
        return self._registry.put_meter(meter, now_ms=now_ms)

    def delete_meter(self, name: str, *, now_ms: int) -> None:
        self._registry.delete_meter(name, now_ms=now_ms)

    def live_from(self, meter_id: int) -> dict[int, int]:
        return self._registry.live_from(meter_id)

    def broken_since(self, meter_id: int) -> dict[int, tuple[int, str]]:
        return self._registry.broken_since(meter_id)

    def resume_meter(self, name: str) -> RegisteredMeter:
        return self._registry.resume_meter(name)

    def gaps(self, meter_id: int) -> list[Gap]:
        return self._registry.gaps(meter_id)

    # Sink

    def applied(self, log_identity: str) -> dict[int, int]:
        return self._sink.applied(log_identity)

    def begin(self, log_identity: str, partition: int, offset: int) -> None:
        self._sink.begin(log_identity, partition, offset)

    def apply(self, results: Sequence[StretchResult], *, now_ms: int) -> list[StretchResult]:
        return self._sink.apply(results, now_ms=now_ms)

    def buried(self, partition: int) -> list[int]:
        return self._sink.buried(partition)

    # Reading

    @contextmanager
    def snapshot(self) -> Iterator[CassandraSnapshot]:
        yield self._reader.snapshot()

    def lease(self, role: str, holder: str, *, lease_s: float) -> CassandraLease:
        """Of `pipeline` (apply and begin) or `keeper` (fold and roll)."""
        if role == "pipeline":
            book, term, taken = EVENTS, self._sink.term, self._sink.forget
        elif role == "keeper":
            book, term, taken = POINTS, self._fold.term, self._fold.forget
        else:
            raise StoreError(f"there is no lease for the role {role}; there are pipeline and keeper")
        return CassandraLease(
            Book(self._link, self.address.name, book), term, holder, lease_s=lease_s, taken=taken, clock=self._clock
        )

    def journal_since(self, sequence: int) -> list[tuple[int, pl.DataFrame]]:
        return self._reader.journal.unbroken(after=sequence, through=self.journal_end())

    def journal_end(self) -> int:
        return self._reader.events.head().sequence

    def dead_letters(self, *, limit: int = 100) -> list[tuple[int, DeadLetter]]:
        return self._dead.newest(limit)

    def list_dead_letters(
        self, *, hops: Collection[str] = (), reasons: Collection[str] = (), limit: int = 100
    ) -> list[LetterSummary]:
        return self._dead.listed(hops=hops, reasons=reasons, limit=limit)

    def dead_letter(self, letter_id: int) -> DeadLetter | None:
        return self._dead.letter(letter_id)

    def dead_letter_counts(self) -> dict[tuple[str, str], int]:
        return self._dead.counts()

    def last_dead_letters_ms(self) -> dict[tuple[str, str], int]:
        return self._dead.last_ms()

    def beat(self, role: str, facts: Mapping[str, Any], *, now_ms: int) -> None:
        self._heartbeats.beat(role, facts, now_ms=now_ms)

    def beats(self) -> dict[str, tuple[int, dict[str, Any]]]:
        return self._heartbeats.beats()

    # Upkeep

    def marks(self) -> Marks:
        # In this order, as a snapshot: so `folded` is never beyond `journal_end`.
        points = progress(self._reader.book.head())
        return Marks(
            self._registry.revision(),
            self.journal_end(),
            points.folded,
            points.rolled,
            points.first_s,
            points.last_s,
        )

    def fold(self, *, most_points: int) -> Folded:
        return self._fold.fold(most_points=most_points)

    def roll(self, *, now_ms: int, delay_s: int, slice_series: int) -> bool:
        return self._roller.roll(now_s=now_ms // 1000, delay_s=delay_s, slice_series=slice_series)

    def letters_position(self, log_identity: str) -> int:
        return self._dead.position(log_identity)

    def add_letters(self, log_identity: str, stretch: Stretch, found: Sequence[DeadLetter]) -> bool:
        return self._dead.take_in(log_identity, stretch, found)

    def prune(self, *, now_ms: int, journal_keep_ms: int, letter_bytes: int) -> Pruned:
        folded = progress(self._reader.book.head()).folded
        entries = self._reader.journal.prune(folded=folded, before_ms=now_ms - journal_keep_ms)
        drop_lags(self._link, self.address.name, now_ms=now_ms)
        return Pruned(entries, self._dead.drop_oldest(keep_bytes=letter_bytes))

    def checkpoint(self) -> bool:
        """What Cassandra has answered for it keeps by itself."""
        return True
