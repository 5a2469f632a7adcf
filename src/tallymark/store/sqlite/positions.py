"""Positions: how far each stream of the log was taken into the store. The only memory of what was applied."""

import sqlite3

from tallymark.store import positions
from tallymark.store.model import Stretch
from tallymark.store.positions import DEAD, EVENTS

__all__ = ["DEAD", "EVENTS", "advance", "begin_at", "check_log", "read_positions"]


def read_positions(connection: sqlite3.Connection, stream: str) -> dict[int, int]:
    rows = connection.execute("SELECT partition, next FROM positions WHERE stream = ? ORDER BY partition", (stream,))
    return dict(rows.fetchall())


def check_log(connection: sqlite3.Connection, stream: str, identity: str) -> None:
    """Raises WrongLog if the positions of this stream were taken from another log."""
    known = connection.execute("SELECT identity FROM logs WHERE stream = ?", (stream,)).fetchone()
    positions.check_log(stream, known and known[0], identity)


def begin_at(connection: sqlite3.Connection, stream: str, identity: str, partition: int, offset: int) -> None:
    """Records where a partition's first stretch starts; needed where the log has lost its oldest records."""
    _claim_log(connection, stream, identity)
    positions.check_beginning(stream, read_positions(connection, stream).get(partition), partition, offset)
    connection.execute("INSERT OR IGNORE INTO positions VALUES (?, ?, ?)", (stream, partition, offset))


def advance(connection: sqlite3.Connection, stream: str, identity: str, stretch: Stretch) -> bool:
    """Whether this stretch is new; if so the position is now its end. Raises if it neither follows nor lies before."""
    _claim_log(connection, stream, identity)
    if not positions.is_new(stream, read_positions(connection, stream).get(stretch.partition), stretch):
        return False
    connection.execute(
        "INSERT INTO positions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next",
        (stream, stretch.partition, stretch.end),
    )
    return True


def _claim_log(connection: sqlite3.Connection, stream: str, identity: str) -> None:
    check_log(connection, stream, identity)
    connection.execute("INSERT OR IGNORE INTO logs VALUES (?, ?)", (stream, identity))
