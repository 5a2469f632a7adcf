"""Both stores under one suite: what holds for one holds for the other."""

import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

import cassandras
from tallymark.store.address import CassandraAddress, SqliteAddress, StoreAddress
from tallymark.store.cassandra import connection as cassandra_connection
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.grains import GRAINS
from tallymark.store.protocol import Store
from tallymark.store.sqlite import connection as sqlite_connection
from tallymark.store.sqlite.store import SqliteStore

Prepare = Callable[[Store], None]


class Died(Exception):
    """The process would be gone here."""


@dataclass
class Fuse:
    """Burns down by one with each statement; at zero the statement fails, and with `lasting` all that follow."""

    left: int | None = None
    lasting: bool = True
    after: bool = False
    """die when the statement was carried out, before anyone knows"""
    blown: bool = False

    def light(self, left: int, *, lasting: bool = True, after: bool = False) -> None:
        self.left, self.lasting, self.after, self.blown = left, lasting, after, False

    def quench(self) -> None:
        self.left, self.blown = None, False

    def burn(self) -> bool:
        """True if this is the statement."""
        if self.blown and self.lasting:
            raise Died
        if self.left is None:
            return False
        self.left -= 1
        if self.left > 0:
            return False
        self.left, self.blown = None, True
        if not self.after:
            raise Died
        return True


class Stores(Protocol):
    """Stores of one kind, by name; opened again, a name is the same store seen by another process."""

    kind: str

    def open(self, name: str = "store", *, fuse: Fuse | None = None) -> Store: ...

    def address(self, name: str = "store") -> StoreAddress:
        """For other processes."""
        ...

    def make(self, name: str, prepare: Prepare) -> None:
        """A store in the state to which `prepare` brings one; the work is done once, then copied."""
        ...

    def close(self) -> None: ...


class SqliteStores:
    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[SqliteStore] = []

    def open(self, name: str = "store", *, fuse: Fuse | None = None) -> Store:
        connect = sqlite_connection.connect if fuse is None else _dying_sqlite(fuse)
        self._opened.append(SqliteStore(self._folder / f"{name}.db", connect=connect))
        return self._opened[-1]

    def address(self, name: str = "store") -> StoreAddress:
        return SqliteAddress(str(self._folder / f"{name}.db"))

    def make(self, name: str, prepare: Prepare) -> None:
        template = self._folder / f"{prepare.__name__}.template"
        if not template.exists():
            store = SqliteStore(template)
            prepare(store)
            store.close()
        shutil.copy(template, self._folder / f"{name}.db")

    def close(self) -> None:
        for store in self._opened:
            store.close()


class CassandraStores:
    kind = "cassandra"

    def __init__(self) -> None:
        self._port = cassandras.server().port
        self._run = uuid.uuid4().hex
        self._opened: list[CassandraStore] = []
        self._session = cassandra_connection.connect(self.address(""))

    def open(self, name: str = "store", *, fuse: Fuse | None = None) -> Store:
        connect = cassandra_connection.connect if fuse is None else _dying_cassandra(fuse)
        store = CassandraStore(self.address(name), connect=connect, pause_s=0)
        self._opened.append(store)
        return store

    def make(self, name: str, prepare: Prepare) -> None:
        if prepare not in _TEMPLATES:
            store = self.open(prepare.__name__)
            prepare(store)
            _TEMPLATES[prepare] = _copied(self._session, self.address(prepare.__name__).name)
        writing = [
            self._session.execute_async(self._session.prepare(cql).bind((self.address(name).name, *values)))
            for cql, values in _TEMPLATES[prepare]
        ]
        for each in writing:
            each.result()

    def close(self) -> None:
        for store in self._opened:
            store.close()
        self._session.close()

    def address(self, name: str = "store") -> CassandraAddress:
        return cassandras.address(self._port, name=f"{self._run}/{name}")


Writes = list[tuple[str, tuple[object, ...]]]
_TEMPLATES: dict[Prepare, Writes] = {}
# What a store has beside deposits and beats, and the timestamps that matter.
_COPIED = {
    "book": "book, kind, a, b, value, sequence, commit_token, identity, facts, epoch, holder, renewed",
    "letters": "book, block, number, found_ms, total, body",
    "series_by_label": "meter, label, value, series",
    **{f"points_{grain_s}": "meter, shard, window_s, series, bucket_s, state" for grain_s in GRAINS},
}


def _copied(session: cassandra_connection.Session, store: str) -> Writes:
    """The statements that make the same store under another name."""
    writes: Writes = []
    for table, columns in _COPIED.items():
        stamp = {"letters": "WRITETIME(body)"}.get(table, "WRITETIME(state)" if "state" in columns else "store")
        marks = ", ".join("?" * len(columns.split(",")))
        cql = f"INSERT INTO {table} (store, {columns}) VALUES (?, {marks}) USING TIMESTAMP ?"
        rows = session.execute(session.prepare(f"SELECT store, {columns}, {stamp} FROM {table}").bind(()))
        for found, *values, written in rows:
            if found == store:
                if table == "book" and values[1] is None:  # a book without rows: its single values alone
                    statics = "book, sequence, commit_token, identity, facts, epoch, holder, renewed"
                    alone = f"INSERT INTO book (store, {statics}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
                    writes.append((alone, (values[0], *values[5:], 1)))
                else:
                    writes.append((cql, (*values, written if isinstance(written, int) else 1)))
    return writes


def _dying_sqlite(fuse: Fuse) -> sqlite_connection.Connect:
    class Dying(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            dies = fuse.burn()
            cursor = super().execute(*arguments)
            if dies:
                cursor.close()
                raise Died
            return cursor

        def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:  # type: ignore[override]
            # Row by row, so that it can die between two of them.
            for row in rows:
                self.execute(sql, row)
            return self.cursor()

    return lambda path: sqlite_connection.connect(path, factory=Dying)


class _DyingSession:
    """Fails before a request is sent, or when it was carried out."""

    def __init__(self, session: cassandra_connection.Session, fuse: Fuse) -> None:
        self._session = session
        self._fuse = fuse
        self.prepare = session.prepare
        self.close = session.close

    def execute(self, statement: Any) -> Any:
        dies = self._fuse.burn()
        result = self._session.execute(statement)
        if dies:
            raise Died
        return result

    def execute_async(self, statement: Any) -> Any:
        dies = self._fuse.burn()
        future = self._session.execute_async(statement)
        if dies:
            future.result()
            raise Died
        return future


def _dying_cassandra(fuse: Fuse) -> cassandra_connection.Connect:
    return lambda address: _DyingSession(cassandra_connection.connect(address), fuse)


def open_stores(kind: str, folder: Path) -> Stores:
    return SqliteStores(folder) if kind == "sqlite" else CassandraStores()


@pytest.fixture(params=["sqlite", "cassandra"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    opened = open_stores(request.param, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores.open()


@pytest.fixture
def fuse() -> Fuse:
    return Fuse()


@pytest.fixture
def died() -> type[Died]:
    return Died
