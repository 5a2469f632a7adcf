"""Upkeep: what the keeper does to the file."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from tallymark.store.model import Folded, Marks, Pruned
from tallymark.store.sqlite.connection import BUSY_TIMEOUT_MS, WAL_LIMIT_BYTES, Connections, writing
from tallymark.store.sqlite.dead_letters import drop_oldest_letters
from tallymark.store.sqlite.fold import Fold
from tallymark.store.sqlite.journal import drop_folded
from tallymark.store.sqlite.marks import read_mark, read_marks
from tallymark.store.sqlite.roll import roll
from tallymark.store.sqlite.series import SeriesCounts

KEEP_LAGS_MS = 3_600_000
KEEP_HEARTBEATS_MS = 86_400_000


class SqliteUpkeep:
    def __init__(self, connections: Connections, path: Path) -> None:
        self._connections = connections
        self._path = path
        self._fold = Fold()
        self._series = SeriesCounts()

    def marks(self) -> Marks:
        return read_marks(self._connections.mine())

    def fold(self, *, most_points: int) -> Folded:
        return self._fold.fold(self._connections.mine(), most_points=most_points)

    def roll(self, *, now_ms: int, delay_s: int, slice_series: int) -> bool:
        return roll(self._connections.mine(), now_s=now_ms // 1000, delay_s=delay_s, slice_series=slice_series)

    def series(self) -> Mapping[int, int]:
        return self._series.of(self._connections.mine())

    def prune(self, *, now_ms: int, journal_keep_ms: int, letter_bytes: int, keep_after: int | None = None) -> Pruned:
        connection = self._connections.mine()
        before_ms = now_ms - journal_keep_ms
        return prune(connection, now_ms=now_ms, before_ms=before_ms, letter_bytes=letter_bytes, keep_after=keep_after)

    def checkpoint(self) -> bool:
        """Truncates the write-ahead log once it is larger than it ought to be."""
        log_file = self._path.with_name(f"{self._path.name}-wal")
        oversized = log_file.exists() and log_file.stat().st_size > WAL_LIMIT_BYTES
        return checkpoint(self._connections.mine(), truncate=oversized)


def prune(
    connection: sqlite3.Connection, *, now_ms: int, before_ms: int, letter_bytes: int, keep_after: int | None
) -> Pruned:
    """Deletes what nobody needs any more, in short transactions."""
    entries = letters = 0
    while True:
        with writing(connection):
            folded = read_mark(connection, "folded")
            through = folded if keep_after is None else min(folded, keep_after)
            gone = drop_folded(connection, folded=through, before_ms=before_ms)
        entries += gone
        if not gone:
            break
    while True:
        with writing(connection):
            gone = drop_oldest_letters(connection, keep_bytes=letter_bytes)
        letters += gone
        if not gone:
            break
    with writing(connection):
        connection.execute("DELETE FROM lags WHERE at_ms < ?", (now_ms - KEEP_LAGS_MS,))
        connection.execute("DELETE FROM beats WHERE at_ms < ?", (now_ms - KEEP_HEARTBEATS_MS,))
    return Pruned(entries, letters)


def checkpoint(connection: sqlite3.Connection, *, truncate: bool) -> bool:
    """Moves the write-ahead log into the file and makes it durable there; True if all of it was moved.

    Truncating waits for readers while holding off writers, so it waits only a moment; the next one may succeed.
    """
    if not truncate:
        _, pages, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(pages == moved)
    connection.execute("PRAGMA busy_timeout = 100")
    try:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return not busy
