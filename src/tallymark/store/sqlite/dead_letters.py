"""Dead letters: kept with their reason, counted for ever, the oldest dropped when they need too much room."""

import sqlite3
from collections.abc import Collection, Iterable, Sequence

from tallymark.store.model import DeadLetter, LetterSummary, Stretch
from tallymark.store.sqlite import positions
from tallymark.store.sqlite.connection import Connections, writing
from tallymark.store.sqlite.marks import add_to_mark, read_mark

_COLUMNS = "hop, reason, detail, events, raw, at_ms, partition, offset, tenant"
_NEWEST = "ORDER BY letter_id DESC LIMIT ?"


class SqliteDeadLetters:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def newest(self, *, limit: int = 100) -> list[tuple[int, DeadLetter]]:
        rows = self._connections.mine().execute(f"SELECT letter_id, {_COLUMNS} FROM letters {_NEWEST}", (limit,))
        return [(letter_id, DeadLetter(*fields)) for letter_id, *fields in rows]

    def search(
        self,
        *,
        tenant: str | None,
        hops: Collection[str] = (),
        reasons: Collection[str] = (),
        limit: int = 100,
    ) -> list[LetterSummary]:
        """`raw` is not read: SQLite passes over what lies on a row's further pages."""
        connection = self._connections.mine()
        if tenant is None and not hops and not reasons:
            found = connection.execute(f"SELECT letter_id FROM letters {_NEWEST}", (limit,))
            ids = [letter_id for (letter_id,) in found]
        else:
            kinds = [
                (of, hop, reason)
                for of, hop, reason in connection.execute("SELECT tenant, hop, reason FROM letter_counts").fetchall()
                if (tenant is None or of == tenant) and (not hops or hop in hops) and (not reasons or reason in reasons)
            ]
            ids = [
                letter_id
                for kind in kinds  # each from the index, so that a rare kind does not read all the others
                for (letter_id,) in connection.execute(
                    f"SELECT letter_id FROM letters WHERE tenant = ? AND hop = ? AND reason = ? {_NEWEST}",
                    (*kind, limit),
                )
            ]
            ids = sorted(ids, reverse=True)[:limit]
        rows = connection.execute(
            "SELECT letter_id, hop, reason, detail, events, at_ms, partition, offset, LENGTH(raw), tenant FROM letters"
            f" WHERE letter_id IN ({','.join('?' * len(ids))}) ORDER BY letter_id DESC",
            ids,
        )
        return [LetterSummary(*row) for row in rows]

    def get(self, letter_id: int) -> DeadLetter | None:
        found = self._connections.mine().execute(f"SELECT {_COLUMNS} FROM letters WHERE letter_id = ?", (letter_id,))
        row = found.fetchone()
        return None if row is None else DeadLetter(*row)

    def counts(self, *, tenant: str | None) -> dict[tuple[str, str], int]:
        return self._by_kind("SUM(events)", tenant)

    def counts_by_tenant(self) -> dict[str, dict[tuple[str, str], int]]:
        rows = self._connections.mine().execute(
            "SELECT tenant, hop, reason, events FROM letter_counts ORDER BY tenant, hop, reason"
        )
        found: dict[str, dict[tuple[str, str], int]] = {}
        for tenant, hop, reason, events in rows:
            found.setdefault(tenant, {})[hop, reason] = events
        return found

    def last_ms(self, *, tenant: str | None) -> dict[tuple[str, str], int]:
        return self._by_kind("MAX(last_ms)", tenant)

    def position(self, log_identity: str) -> int:
        connection = self._connections.mine()
        positions.check_log(connection, positions.DEAD, log_identity)
        return positions.read_positions(connection, positions.DEAD).get(0, 0)

    def take_in(self, log_identity: str, stretch: Stretch, found: Sequence[DeadLetter]) -> bool:
        connection = self._connections.mine()
        with writing(connection):
            fresh = positions.advance(connection, positions.DEAD, log_identity, stretch)
            if fresh:
                add_letters(connection, found)
        return fresh

    def _by_kind(self, number: str, tenant: str | None) -> dict[tuple[str, str], int]:
        rows = self._connections.mine().execute(
            f"SELECT hop, reason, {number} FROM letter_counts WHERE ?1 IS NULL OR tenant = ?1"
            " GROUP BY hop, reason ORDER BY hop, reason",
            (tenant,),
        )
        return {(hop, reason): found for hop, reason, found in rows}


def add_letters(connection: sqlite3.Connection, letters: Iterable[DeadLetter], *, now_ms: int | None = None) -> None:
    """Within a transaction that moves the position they came from, which is what makes this happen once.

    `now_ms` is when they were found to be dead, if that was later than what the letters say: after a long backlog.
    """
    for letter in letters:
        connection.execute(
            f"INSERT INTO letters ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                letter.hop,
                letter.reason,
                letter.detail,
                letter.events,
                letter.raw,
                letter.at_ms,
                letter.partition,
                letter.offset,
                letter.tenant,
            ),
        )
        connection.execute(
            "INSERT INTO letter_counts VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " events = events + excluded.events, last_ms = MAX(last_ms, excluded.last_ms)",
            (letter.tenant, letter.hop, letter.reason, letter.events, letter.at_ms if now_ms is None else now_ms),
        )
        add_to_mark(connection, "letter_bytes", len(letter.raw))


def drop_oldest_letters(connection: sqlite3.Connection, *, keep_bytes: int, most: int = 500) -> int:
    """Within a transaction: deletes at most this many of the oldest while they take more room than allowed."""
    surplus = read_mark(connection, "letter_bytes") - keep_bytes
    if surplus <= 0:
        return 0
    going: list[tuple[int]] = []
    freed = 0
    for letter_id, size in connection.execute(
        "SELECT letter_id, LENGTH(raw) FROM letters ORDER BY letter_id LIMIT ?", (most,)
    ).fetchall():
        if freed >= surplus:
            break
        going.append((letter_id,))
        freed += size
    connection.executemany("DELETE FROM letters WHERE letter_id = ?", going)
    add_to_mark(connection, "letter_bytes", -freed)
    return len(going)
