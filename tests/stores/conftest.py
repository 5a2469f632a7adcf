"""Both stores under one suite: what holds for one holds for the other."""

import copy
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

import cassandras
from stores import memory_cassandra
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
    error: Exception = field(default_factory=Died)
    blown: bool = False
    writes: list[int] = field(default_factory=list)
    """which of the statements since it was lit were writes, counted from 1"""
    _count: int = 0

    def light(self, left: int, *, lasting: bool = True, after: bool = False, error: Exception | None = None) -> None:
        self.left, self.lasting, self.after, self.error, self.blown = left, lasting, after, error or Died(), False
        self.writes, self._count = [], 0

    def quench(self) -> None:
        self.left, self.blown = None, False

    def burn(self, *, is_read: bool = False) -> bool:
        """True if this is the statement."""
        self._count += 1
        if not is_read:
            self.writes.append(self._count)
        if self.blown and self.lasting:
            raise self.error
        if self.left is None:
            return False
        self.left -= 1
        if self.left > 0:
            return False
        self.left, self.blown = None, True
        if not self.after:
            raise self.error
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


class MemoryStores:
    """Of Cassandra's store, on a server in memory: fast enough to fail at each of its statements."""

    kind = "memory"

    def __init__(self) -> None:
        self._servers: dict[str, memory_cassandra.Server] = {}

    def open(self, name: str = "store", *, fuse: Fuse | None = None) -> Store:
        server = self._servers.setdefault(name, memory_cassandra.Server())
        fuse = fuse or Fuse()
        session = _DyingSession(memory_cassandra.Session(server), fuse, memory_cassandra.is_read)
        return CassandraStore(self.address(name), connect=lambda address: session, pause_s=0)

    def address(self, name: str = "store") -> CassandraAddress:
        # Each has a server of its own, in which it goes by the same name: so one is the copy of another.
        return cassandras.address(0, name="store")

    def make(self, name: str, prepare: Prepare) -> None:
        if prepare.__name__ not in self._servers:
            prepare(self.open(prepare.__name__))
        self._servers[name] = copy.deepcopy(self._servers[prepare.__name__])

    def close(self) -> None:
        pass


Writes = list[tuple[str, tuple[object, ...]]]
_TEMPLATES: dict[Prepare, Writes] = {}
# What a store has beside deposits and beats, and the timestamps that matter.
_COPIED = {
    "book": "book, kind, a, b, value, sequence, commit_token, identity, facts, epoch, holder, renewed",
    "letters": "book, block, number, found_ms, total, body",
    "series_by_label": "meter, label, value, series",
    "series": "meter, shard, series",
    "windows": "lineage, group_s, start_s, body",
    **{f"points_{grain_s}": "meter, shard, window_s, series, bucket_s, state" for grain_s in GRAINS},
}


def _copied(session: cassandra_connection.Session, store: str) -> Writes:
    """The statements that make the same store under another name."""
    writes: Writes = []
    for table, columns in _COPIED.items():
        stamped = next((name for name in ("body", "state") if name in columns.split(", ")), None)
        stamp = f"WRITETIME({stamped})" if stamped else "store"
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

    def __init__(
        self,
        session: cassandra_connection.Session,
        fuse: Fuse,
        is_read: Callable[[Any], bool],
    ) -> None:
        self._session = session
        self._fuse = fuse
        self._is_read = is_read
        self.prepare = session.prepare
        self.close = session.close

    def execute(self, statement: Any) -> Any:
        dies = self._fuse.burn(is_read=self._is_read(statement))
        result = self._session.execute(statement)
        if dies:
            raise self._fuse.error
        return result

    def execute_async(self, statement: Any) -> Any:
        dies = self._fuse.burn(is_read=self._is_read(statement))
        future = self._session.execute_async(statement)
        if dies:
            future.result()
            raise self._fuse.error
        return future


def _dying_cassandra(fuse: Fuse) -> cassandra_connection.Connect:
    return lambda address: _DyingSession(cassandra_connection.connect(address), fuse, _is_select)


def _is_select(statement: Any) -> bool:
    prepared = getattr(statement, "prepared_statement", None)
    return prepared is not None and prepared.query_string.lstrip().upper().startswith("SELECT")


def open_stores(kind: str, folder: Path) -> Stores:
    if kind == "memory":
        return MemoryStores()
    return SqliteStores(folder) if kind == "sqlite" else CassandraStores()


@pytest.fixture(params=["sqlite", "memory", "cassandra"])
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
