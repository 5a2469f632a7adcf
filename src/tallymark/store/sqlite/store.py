"""The store of one machine: every part of it in one file, open to several processes."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from tallymark.meters.model import Meter
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
from tallymark.store.sqlite import connection as connections
from tallymark.store.sqlite import journal, letters, positions, roll, schema, upkeep
from tallymark.store.sqlite.fold import Fold
from tallymark.store.sqlite.heartbeats import SqliteHeartbeats
from tallymark.store.sqlite.labels import LabelTables
from tallymark.store.sqlite.marks import read_mark, read_marks
from tallymark.store.sqlite.reading import SqliteSnapshot
from tallymark.store.sqlite.registry import SqliteRegistry
from tallymark.store.sqlite.sink import SqliteSink
from tallymark.store.tail import Tail


class AlwaysHeld:
    """A lease on one machine: there a lock on the data folder already lets one process play a role."""

    def take(self) -> bool:
        return True

    def release(self) -> None:
        pass


class SqliteStore:
    """See `store.protocol`: Registry, Sink and Upkeep, answered by the modules of this package."""

    def __init__(self, path: Path, *, connect: connections.Connect = connections.connect) -> None:
        self.path = path
        self._connections = schema.open_connections(path, connect)
        self._registry = SqliteRegistry(self._connections)
        self._sink = SqliteSink(self._connections)
        self._heartbeats = SqliteHeartbeats(self._connections)
        self._fold = Fold()
        self._tail = Tail()
        self._labels = LabelTables()

    def close(self) -> None:
        self._connections.close()

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
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        with self._connections.spare() as connection, connections.reading(connection):
            yield SqliteSnapshot(connection, read_marks(connection), self._tail, self._labels)

    def lease(self, role: str, holder: str, *, lease_s: float) -> AlwaysHeld:
        return AlwaysHeld()

    def journal_since(self, sequence: int) -> list[tuple[int, pl.DataFrame]]:
        return list(journal.entries(self._connection, after=sequence))

    def journal_end(self) -> int:
        return read_mark(self._connection, "journal_end")

    def dead_letters(self, *, limit: int = 100) -> list[tuple[int, DeadLetter]]:
        return letters.newest_letters(self._connection, limit=limit)

    def list_dead_letters(
        self, *, hops: Collection[str] = (), reasons: Collection[str] = (), limit: int = 100
    ) -> list[LetterSummary]:
        return letters.list_letters(self._connection, hops=hops, reasons=reasons, limit=limit)

    def dead_letter(self, letter_id: int) -> DeadLetter | None:
        return letters.letter(self._connection, letter_id)

    def dead_letter_counts(self) -> dict[tuple[str, str], int]:
        return letters.letter_counts(self._connection)

    def last_dead_letters_ms(self) -> dict[tuple[str, str], int]:
        return letters.last_letters_ms(self._connection)

    def beat(self, role: str, facts: Mapping[str, Any], *, now_ms: int) -> None:
        self._heartbeats.beat(role, facts, now_ms=now_ms)

    def beats(self) -> dict[str, tuple[int, dict[str, Any]]]:
        return self._heartbeats.beats()

    # Upkeep

    def marks(self) -> Marks:
        return read_marks(self._connection)

    def fold(self, *, most_points: int) -> Folded:
        return self._fold.fold(self._connection, most_points=most_points)

    def roll(self, *, now_ms: int, delay_s: int, slice_series: int) -> bool:
        return roll.roll(self._connection, now_s=now_ms // 1000, delay_s=delay_s, slice_series=slice_series)

    def letters_position(self, log_identity: str) -> int:
        positions.check_log(self._connection, positions.DEAD, log_identity)
        return positions.read_positions(self._connection, positions.DEAD).get(0, 0)

    def add_letters(self, log_identity: str, stretch: Stretch, found: Sequence[DeadLetter]) -> bool:
        with connections.writing(self._connection):
            fresh = positions.advance(self._connection, positions.DEAD, log_identity, stretch)
            if fresh:
                letters.add_letters(self._connection, found)
        return fresh

    def prune(self, *, now_ms: int, journal_keep_ms: int, letter_bytes: int) -> Pruned:
        return upkeep.prune(self._connection, now_ms=now_ms, journal_keep_ms=journal_keep_ms, letter_bytes=letter_bytes)

    def checkpoint(self) -> bool:
        """Truncates the write-ahead log once it is larger than it ought to be."""
        log_file = self.path.with_name(f"{self.path.name}-wal")
        oversized = log_file.exists() and log_file.stat().st_size > connections.WAL_LIMIT_BYTES
        return upkeep.checkpoint(self._connection, truncate=oversized)

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._connections.mine()
