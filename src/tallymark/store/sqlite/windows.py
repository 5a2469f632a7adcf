"""Stored windows: a row each; how far their queries have come is written in the same transaction."""

import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, fields

import msgspec

from tallymark.store.sqlite.connection import Connections, reading, writing
from tallymark.store.windows import Lineage, Share, ShareChange

TABLES = (
    "CREATE TABLE shares (share INTEGER PRIMARY KEY, sequence INTEGER NOT NULL)",
    "CREATE TABLE lineages (share INTEGER, lineage_id INTEGER, tenant TEXT NOT NULL, name TEXT NOT NULL,"
    " digest TEXT NOT NULL, group_s INTEGER NOT NULL, from_s INTEGER NOT NULL, next_s INTEGER NOT NULL,"
    " due_s INTEGER NOT NULL, through_s INTEGER NOT NULL, windows INTEGER NOT NULL, stale_s INTEGER NOT NULL,"
    " stale_until_s INTEGER NOT NULL, problem TEXT NOT NULL, dropped INTEGER NOT NULL,"
    " PRIMARY KEY (share, lineage_id)) WITHOUT ROWID",
    "CREATE TABLE windows (lineage_id INTEGER, start_s INTEGER, body BLOB NOT NULL,"
    " PRIMARY KEY (lineage_id, start_s)) WITHOUT ROWID",
)

_NAMES = [column.name for column in fields(Lineage)]
_COLUMNS = ", ".join(_NAMES)
_PUT = f"INSERT OR REPLACE INTO lineages (share, {_COLUMNS}) VALUES (?{', ?' * len(fields(Lineage))})"


class SqliteWindows:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def lineages(self, share: int | None = None) -> list[Lineage]:
        condition, values = ("", ()) if share is None else ("WHERE share = ? ", (share,))
        return _lineages(self._connections.mine(), f"{condition}ORDER BY tenant, name, lineage_id", *values)

    def share(self, share: int) -> Share:
        connection = self._connections.mine()
        with reading(connection):
            found = connection.execute("SELECT sequence FROM shares WHERE share = ?", (share,)).fetchone()
            return Share(0 if found is None else found[0], _lineages(connection, "WHERE share = ?", share))

    def evaluated(self) -> int | None:
        rows = self._connections.mine().execute(
            "SELECT MIN(sequence) FROM shares WHERE share IN (SELECT share FROM lineages WHERE NOT dropped)"
        )
        found: int | None = rows.fetchone()[0]
        return found

    def write(self, changes: Sequence[ShareChange]) -> None:
        connection = self._connections.mine()
        with writing(connection):
            for change in changes:
                _write(connection, change)

    def read(self, lineage: Lineage, start_s: int, end_s: int) -> list[tuple[int, bytes]]:
        rows = self._connections.mine().execute(
            "SELECT start_s, body FROM windows WHERE lineage_id = ? AND start_s >= ? AND start_s < ? ORDER BY start_s",
            (lineage.lineage_id, start_s, min(end_s, lineage.next_s)),
        )
        return rows.fetchall()

    def drop(self, lineage: Lineage, *, most: int) -> int | None:
        connection = self._connections.mine()
        with writing(connection):
            connection.execute(
                "DELETE FROM windows WHERE lineage_id = ? AND start_s IN"
                " (SELECT start_s FROM windows WHERE lineage_id = ? ORDER BY start_s LIMIT ?)",
                (lineage.lineage_id, lineage.lineage_id, most),
            )
            left = connection.execute(
                "SELECT MIN(start_s) FROM windows WHERE lineage_id = ?", (lineage.lineage_id,)
            ).fetchone()[0]
        return None if left is None else int(left)


def _write(connection: sqlite3.Connection, change: ShareChange) -> None:
    """Within a transaction."""
    if change.sequence is not None:
        connection.execute("INSERT OR REPLACE INTO shares VALUES (?, ?)", (change.share, change.sequence))
    connection.executemany(_PUT, [(change.share, *astuple(each)) for each in change.lineages])
    connection.executemany(
        "DELETE FROM lineages WHERE share = ? AND lineage_id = ?", [(change.share, each) for each in change.gone]
    )
    connection.executemany(
        "INSERT OR REPLACE INTO windows VALUES (?, ?, ?)",
        [(each.lineage.lineage_id, each.start_s, each.body) for each in change.windows],
    )


def _lineages(connection: sqlite3.Connection, condition: str, *values: int) -> list[Lineage]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM lineages {condition}", values).fetchall()
    return [msgspec.convert(dict(zip(_NAMES, row, strict=True)), Lineage, strict=False) for row in rows]
