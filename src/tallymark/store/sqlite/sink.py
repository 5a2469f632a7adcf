"""The sink: takes the results of a batch into the store in one transaction of constant cost."""

import sqlite3
from collections.abc import Sequence

from tallymark.store.lags import lag_of
from tallymark.store.model import StretchResult
from tallymark.store.sqlite import positions
from tallymark.store.sqlite.connection import Connections, writing
from tallymark.store.sqlite.dead_letters import add_letters
from tallymark.store.sqlite.ledger import add_to_ledger
from tallymark.store.sqlite.marks import add_to_mark, read_mark


class SqliteSink:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        # (meter_id, partition) whose live-from position is committed: saves writing it again with every batch.
        self._known_live: set[tuple[int, int]] = set()

    def applied(self, log_identity: str) -> dict[int, int]:
        connection = self._connections.mine()
        positions.check_log(connection, positions.EVENTS, log_identity)
        return positions.read_positions(connection, positions.EVENTS)

    def begin(self, log_identity: str, partition: int, offset: int) -> None:
        connection = self._connections.mine()
        with writing(connection):
            positions.begin_at(connection, positions.EVENTS, log_identity, partition, offset)

    def apply(self, results: Sequence[StretchResult], *, now_ms: int) -> list[StretchResult]:
        connection = self._connections.mine()
        in_order = sorted(results, key=lambda result: (result.stretch.partition, result.stretch.start))
        with writing(connection):
            fresh = [
                result
                for result in in_order
                if positions.advance(connection, positions.EVENTS, result.log_identity, result.stretch)
            ]
            if fresh:
                self._write(connection, fresh, now_ms=now_ms)
        for result in fresh:
            self._known_live.update((meter_id, result.stretch.partition) for meter_id in result.meter_ids)
        return fresh

    def buried(self, partition: int) -> list[int]:
        rows = self._connections.mine().execute("SELECT offset FROM buried WHERE partition = ?", (partition,))
        return [offset for (offset,) in rows]

    def _write(self, connection: sqlite3.Connection, fresh: Sequence[StretchResult], *, now_ms: int) -> None:
        add_to_mark(connection, "journal_end", 1)
        sequence = read_mark(connection, "journal_end")
        for result in fresh:
            stretch = result.stretch
            connection.execute(
                "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)",
                (stretch.partition, stretch.start, stretch.end, sequence, now_ms, result.deltas),
            )
            add_to_ledger(connection, stretch.partition, result.ledgers)
            add_letters(connection, result.dead, now_ms=now_ms)
            self._note_live(connection, result)
            _note_broken(connection, result)
            _note_missed(connection, result)
            if result.buried:
                connection.execute("INSERT OR IGNORE INTO buried VALUES (?, ?)", (stretch.partition, stretch.start))
        lag = lag_of((result.received for result in fresh), now_ms=now_ms)
        if lag is not None:
            connection.execute(
                "INSERT INTO lags VALUES (?, ?, ?, ?, ?, ?, ?)",
                (sequence, lag.at_ms, lag.events, lag.p50, lag.p95, lag.p99, lag.highest),
            )

    def _note_live(self, connection: sqlite3.Connection, result: StretchResult) -> None:
        partition, start = result.stretch.partition, result.stretch.start
        for meter_id in result.meter_ids:
            if (meter_id, partition) not in self._known_live:
                connection.execute("INSERT OR IGNORE INTO live_from VALUES (?, ?, ?)", (meter_id, partition, start))


def _note_broken(connection: sqlite3.Connection, result: StretchResult) -> None:
    for meter_id, reason in result.broken.items():
        inserted = connection.execute(
            "INSERT OR IGNORE INTO broken VALUES (?, ?, ?, ?)",
            (meter_id, result.stretch.partition, result.stretch.start, reason),
        )
        if inserted.rowcount > 0:
            add_to_mark(connection, "revision", 1)


def _note_missed(connection: sqlite3.Connection, result: StretchResult) -> None:
    """Lengthens the gap that ends where the stretch begins or holds the break, or begins one: at the break, if any."""
    partition, start, end = result.stretch.partition, result.stretch.start, result.stretch.end
    for meter_id, missed in result.missed.items():
        broken = connection.execute(
            "SELECT offset FROM broken WHERE meter_id = ? AND partition = ?", (meter_id, partition)
        ).fetchone()
        first = start if broken is None else broken[0]
        lengthened = connection.execute(
            "UPDATE gaps SET end = ?, missed = missed + ?"
            " WHERE meter_id = ? AND partition = ? AND (end = ? OR end > ?)",
            (end, missed, meter_id, partition, start, first),
        )
        if lengthened.rowcount == 0:
            connection.execute("INSERT INTO gaps VALUES (?, ?, ?, ?, ?)", (meter_id, partition, first, end, missed))
