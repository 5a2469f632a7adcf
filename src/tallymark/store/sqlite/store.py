"""The store of one machine: every part of it in one file, open to several processes."""

from pathlib import Path

from tallymark.store.sqlite import connection, schema
from tallymark.store.sqlite.dead_letters import SqliteDeadLetters
from tallymark.store.sqlite.documents import SqliteDocuments
from tallymark.store.sqlite.heartbeats import SqliteHeartbeats
from tallymark.store.sqlite.reading import SqliteSnapshots
from tallymark.store.sqlite.registry import SqliteRegistry
from tallymark.store.sqlite.sink import SqliteSink
from tallymark.store.sqlite.table_parts import SqliteTableParts
from tallymark.store.sqlite.upkeep import SqliteUpkeep
from tallymark.store.sqlite.windows import SqliteWindows


class AlwaysHeld:
    """A lease on one machine: there a lock on the data folder already lets one process play a role."""

    def take(self) -> bool:
        return True

    def watch(self) -> None:
        pass

    def release(self) -> None:
        pass


class SqliteStore:
    """See `store.protocol.Store`."""

    def __init__(self, path: Path, *, connect: connection.Connect = connection.connect) -> None:
        self.path = path
        self._connections = schema.open_connections(path, connect)
        self.registry = SqliteRegistry(self._connections)
        self.sink = SqliteSink(self._connections)
        self.snapshots = SqliteSnapshots(self._connections)
        self.upkeep = SqliteUpkeep(self._connections, path)
        self.dead_letters = SqliteDeadLetters(self._connections)
        self.documents = SqliteDocuments(self._connections)
        self.windows = SqliteWindows(self._connections)
        self.table_parts = SqliteTableParts(self._connections)
        self.heartbeats = SqliteHeartbeats(self._connections)

    def lease(self, role: str, holder: str, *, lease_s: float) -> AlwaysHeld:
        return AlwaysHeld()

    def close(self) -> None:
        self._connections.close()
