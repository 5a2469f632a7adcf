"""Positions: how far each stream of the log was taken into the store. The only memory of what was applied."""

import sqlite3

from tallymark.store.model import Stretch
from tallymark.store.protocol import PositionConflict, WrongLog

EVENTS = "events"
DEAD = "dead"


def read_positions(connection: sqlite3.Connection, stream: str) -> dict[int, int]:
    rows = connection.execute("SELECT partition, next FROM positions WHERE stream = ? ORDER BY partition", (stream,))
    return dict(rows.fetchall())


def check_log(connection: sqlite3.Connection, stream: str, identity: str) -> None:
    """Raises WrongLog if the positions of this stream were taken from another log."""
    known = connection.execute("SELECT identity FROM logs WHERE stream = ?", (stream,)).fetchone()
    if known is not None and known[0] != identity:
        raise WrongLog(
            f"the store holds positions of log {known[0]} for the stream {stream}, this is log {identity}:"
            " put the store's log back, or begin with an empty store"
        )


def begin_at(connection: sqlite3.Connection, stream: str, identity: str, partition: int, offset: int) -> None:
    """Records where a partition's first stretch starts; needed where the log has lost its oldest records."""
    _claim_log(connection, stream, identity)
    known = read_positions(connection, stream).get(partition)
    if known is not None and known != offset:
        raise PositionConflict(
            f"{stream}/{partition} cannot begin at {offset}: the store has applied it up to {known}; go on from there"
        )
    connection.execute("INSERT OR IGNORE INTO positions VALUES (?, ?, ?)", (stream, partition, offset))


def advance(connection: sqlite3.Connection, stream: str, identity: str, stretch: Stretch) -> bool:
    """Whether this stretch is new; if so the position is now its end. Raises if it neither follows nor lies before."""
    _claim_log(connection, stream, identity)
    known = read_positions(connection, stream).get(stretch.partition)
    following = known if known is not None else 0
    if stretch.end <= following:
        return False
    if stretch.start != following or stretch.end < stretch.start:
        applied = f"up to {known}" if known is not None else "nothing"
        raise PositionConflict(
            f"stretch [{stretch.start}, {stretch.end}) of {stream}/{stretch.partition} does not follow: the store has"
            f" applied {applied}. Another driver is at work or a stretch was left out; go on from the store's positions"
        )
    connection.execute(
        "INSERT INTO positions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next",
        (stream, stretch.partition, stretch.end),
    )
    return True


def _claim_log(connection: sqlite3.Connection, stream: str, identity: str) -> None:
    check_log(connection, stream, identity)
    connection.execute("INSERT OR IGNORE INTO logs VALUES (?, ?)", (stream, identity))
