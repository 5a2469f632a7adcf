"""Upkeep: what the keeper does to the file beside folding and rolling."""

import sqlite3

from tallymark.store.model import Pruned
from tallymark.store.sqlite.connection import BUSY_TIMEOUT_MS, writing
from tallymark.store.sqlite.journal import drop_folded
from tallymark.store.sqlite.letters import drop_oldest_letters
from tallymark.store.sqlite.marks import read_mark

KEEP_LAGS_MS = 3_600_000
KEEP_HEARTBEATS_MS = 86_400_000


def prune(connection: sqlite3.Connection, *, now_ms: int, journal_keep_ms: int, letter_bytes: int) -> Pruned:
    """Deletes what nobody needs any more, in short transactions."""
    entries = letters = 0
    while True:
        with writing(connection):
            folded = read_mark(connection, "folded")
            gone = drop_folded(connection, folded=folded, before_ms=now_ms - journal_keep_ms)
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
