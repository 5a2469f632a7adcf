"""Where a store of a fixture lives while it is tested: a file, a real Cassandra, or one in memory."""

import json
import lzma
import shutil
import sqlite3
import tarfile
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

import cassandras
from stores import memory_cassandra
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.store.address import CassandraAddress, StoreAddress
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.protocol import Store
from upgrades import keyspace

WRITTEN = Path(__file__).parent / "written"
STORE = "fixture"
"""the name of the store in Cassandra; it is part of every row"""
TABLES = "keyspace.json"


@dataclass(frozen=True)
class Fixture:
    """A data folder that some version wrote, and what that version answered."""

    name: str
    folder: Path = WRITTEN

    @property
    def archive(self) -> Path:
        return self.folder / f"{self.name}.tar.xz"

    @property
    def answers(self) -> Path:
        return self.folder / f"{self.name}.json.xz"

    def read_answers(self) -> dict[str, Any]:
        return dict(json.loads(lzma.decompress(self.answers.read_bytes())))

    def unpack(self, target: Path) -> Path:
        with tarfile.open(self.archive) as archive:
            archive.extractall(target, filter="data")
        return target


def fixtures() -> list[Fixture]:
    return [Fixture(path.name.removesuffix(".tar.xz")) for path in sorted(WRITTEN.glob("*.tar.xz"))]


class Home(Protocol):
    """A data folder and the store that belongs to it."""

    folder: Path
    deposits: StoreAddress | None
    """where tasks can bring deltas themselves"""

    def open(self) -> Store:
        """As another process would open it."""
        ...

    def contents(self) -> Any:
        """All that is stored, to see that nothing changed it."""
        ...

    def make_newer(self) -> None:
        """Says that a version wrote it that nobody knows yet."""
        ...

    def close(self) -> None: ...


class SqliteHome:
    deposits = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settings = Settings(data=str(folder))

    def open(self) -> Store:
        return open_store(self._settings)

    def contents(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}

    def make_newer(self) -> None:
        with closing(sqlite3.connect(self._settings.store_file)) as connection:
            connection.execute("PRAGMA user_version = 1000")

    def close(self) -> None:
        pass


class MemoryHome:
    """Cassandra's store on a server in memory."""

    deposits = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = memory_cassandra.Server()
        dumped = folder / TABLES
        if dumped.exists():
            self._fill(json.loads(dumped.read_bytes()))

    def open(self) -> Store:
        address = cassandras.address(0, name=STORE)
        return CassandraStore(address, connect=lambda _: memory_cassandra.Session(self.server), pause_s=0)

    def contents(self) -> str:
        return repr((self.server.rows, self.server.static))

    def make_newer(self) -> None:
        cells = self.server.static[STORE, "meters"]
        stamp, facts = cells["facts"]
        cells["facts"] = (stamp, _newer(facts))

    def close(self) -> None:
        pass

    def _fill(self, dumped: keyspace.Dump) -> None:
        stamps = [self.server.now]
        for name, table in dumped.items():
            place = [column for column, (kind, _) in table["columns"].items() if kind == "partition_key"]
            for key, cells, is_static in keyspace.cells(table):
                partition = tuple(key.pop(column) for column in place)
                found = {column: (stamp, value) for column, (value, stamp, _) in cells.items()}
                stamps += [stamp for stamp, _ in found.values()]
                if is_static:
                    self.server.static[partition] = found
                else:
                    inserted = max((stamp for stamp, _ in found.values()), default=1)
                    rows = self.server.rows.setdefault((name, partition), {})
                    rows[tuple(key.values())] = {memory_cassandra._INSERTED: (inserted, True), **found}
        # What is written next comes later than all that was.
        self.server.now = max(stamps) + 1


class CassandraHome:
    """A keyspace of its own in the run's Cassandra, which goes with the run."""

    def __init__(self, folder: Path) -> None:
        from cassandra.cluster import Cluster

        self.folder = folder
        self.keyspace = f"upgrade_{uuid.uuid4().hex}"
        port = cassandras.server().port
        self.deposits: CassandraAddress = cassandras.address(port, name=STORE, keyspace=self.keyspace)
        # Told of no changes: those of tables would still be looked at while it is shut down.
        self._cluster = Cluster(["127.0.0.1"], port=port, protocol_version=4, schema_event_refresh_window=-1)
        self._session = self._cluster.connect()
        self._session.default_timeout = 60
        dumped = folder / TABLES
        if dumped.exists():
            keyspace.restore(self._session, self.keyspace, json.loads(dumped.read_bytes()))

    def open(self) -> Store:
        return CassandraStore(self.deposits, pause_s=0)

    def dump(self) -> keyspace.Dump:
        return keyspace.dump(self._session, self.keyspace)

    def contents(self) -> list[Any]:
        # Without the time that cells have left to live, which passes by itself.
        return [
            (name, key, {column: cell[:2] for column, cell in cells.items()})
            for name, table in self.dump().items()
            for key, cells, _ in keyspace.cells(table)
        ]

    def make_newer(self) -> None:
        here = "WHERE store = %s AND book = 'meters'"
        (facts,) = self._session.execute(f"SELECT DISTINCT facts FROM {self.keyspace}.book {here}", (STORE,)).one()
        self._session.execute(f"UPDATE {self.keyspace}.book SET facts = %s {here}", (_newer(facts), STORE))

    def close(self) -> None:
        self._cluster.shutdown()


HOMES: dict[str, Callable[[Path], Home]] = {"sqlite": SqliteHome, "memory": MemoryHome, "cassandra": CassandraHome}


def pack(folder: Path, target: Path) -> None:
    """The folder without what only a running process needs; nothing of who packed it."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return None if member.name.endswith((".lock", "-wal", "-shm")) else member

    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name, filter=plain)


def copy(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target))


def _newer(facts: bytes) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.decode(facts) | {"schema": 1000})
