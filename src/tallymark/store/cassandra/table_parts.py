"""Parts of tables: a partition each, and one partition with the names of all, to find those that nobody names."""

from collections.abc import Collection

from tallymark.store.cassandra.connection import Ask, Link
from tallymark.store.table_parts import cut, joined

_NAME = "INSERT INTO table_part_names (store, part, written_ms) VALUES (?, ?, ?)"
_WRITE = "INSERT INTO table_parts (store, part, chunk, body) VALUES (?, ?, ?, ?)"
_READ = "SELECT body FROM table_parts WHERE store = ? AND part = ?"
_DELETE = "DELETE FROM table_parts WHERE store = ? AND part = ?"
_FORGET = "DELETE FROM table_part_names WHERE store = ? AND part = ?"
_NAMES = "SELECT part, written_ms FROM table_part_names WHERE store = ?"


class CassandraTableParts:
    def __init__(self, link: Link, store: str) -> None:
        self._link, self._store = link, store

    def write(self, body: bytes, *, now_ms: int) -> str:
        part, chunks = cut(body)
        self._link.rows(_NAME, self._store, part, now_ms)
        asks: list[Ask] = [(_WRITE, (self._store, part, number, chunk)) for number, chunk in enumerate(chunks)]
        self._link.write([ask] for ask in asks)
        return part

    def read(self, part: str) -> bytes | None:
        return joined(part, [body for (body,) in self._link.rows(_READ, self._store, part)])

    def delete(self, parts: Collection[str]) -> None:
        for part in parts:
            self._link.rows(_DELETE, self._store, part)
            self._link.rows(_FORGET, self._store, part)

    def written_before(self, at_ms: int) -> list[str]:
        return [part for part, written_ms in self._link.rows(_NAMES, self._store) if written_ms < at_ms]
