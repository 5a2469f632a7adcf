"""Parts of tables: a row for each chunk, and one for each part, by which those that nobody names are found."""

from collections.abc import Collection

from tallymark.store.sqlite.connection import Connections, writing
from tallymark.store.table_parts import cut, joined

TABLES = (
    "CREATE TABLE table_parts (part TEXT, chunk INTEGER, body BLOB NOT NULL, PRIMARY KEY (part, chunk))",
    "CREATE TABLE table_part_names (part TEXT PRIMARY KEY, written_ms INTEGER NOT NULL) WITHOUT ROWID",
)


class SqliteTableParts:
    """Not durable by itself: the document that names a part is, and so is all that was written before it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def write(self, body: bytes, *, now_ms: int) -> str:
        part, chunks = cut(body)
        connection = self._connections.mine()
        with writing(connection):
            connection.execute("INSERT INTO table_part_names VALUES (?, ?)", (part, now_ms))
        for number, chunk in enumerate(chunks):
            with writing(connection):
                connection.execute("INSERT INTO table_parts VALUES (?, ?, ?)", (part, number, chunk))
        return part

    def read(self, part: str) -> bytes | None:
        rows = self._connections.mine().execute("SELECT body FROM table_parts WHERE part = ? ORDER BY chunk", (part,))
        return joined(part, [body for (body,) in rows.fetchall()])

    def delete(self, parts: Collection[str]) -> None:
        connection = self._connections.mine()
        for part in parts:
            while True:
                with writing(connection):
                    gone = connection.execute(
                        "DELETE FROM table_parts WHERE rowid IN (SELECT rowid FROM table_parts WHERE part = ? LIMIT 4)",
                        (part,),
                    )
                    if gone.rowcount < 1:
                        connection.execute("DELETE FROM table_part_names WHERE part = ?", (part,))
                        break

    def written_before(self, at_ms: int) -> list[str]:
        rows = self._connections.mine().execute("SELECT part FROM table_part_names WHERE written_ms < ?", (at_ms,))
        return [part for (part,) in rows.fetchall()]
