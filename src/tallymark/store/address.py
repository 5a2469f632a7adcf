"""Where the store is, in a form that travels to other processes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tallymark.settings import Settings, StoreSettings
from tallymark.store.protocol import Deposits, Heartbeats, Registry, Sink, Store

if TYPE_CHECKING:
    from tallymark.store.sqlite.connection import Connections


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """One file, by its absolute path, because other processes have other working folders."""

    is_shared: ClassVar[bool] = False
    """whether several machines may use it at once"""
    file: str

    def open_store(self) -> Store:
        # Here, not above, and so below: the collector needs positions and has no Polars.
        from tallymark.store.sqlite.store import SqliteStore

        return SqliteStore(Path(self.file))

    def open_sink(self) -> Sink:
        """Only the applied positions and what moves them, without Polars."""
        from tallymark.store.sqlite.sink import SqliteSink

        return SqliteSink(self._connections())

    def open_registry(self) -> Registry:
        """Only the meters, without Polars."""
        from tallymark.store.sqlite.registry import SqliteRegistry

        return SqliteRegistry(self._connections())

    def open_heartbeats(self) -> Heartbeats:
        """Only what says that a role is alive, without Polars."""
        from tallymark.store.sqlite.heartbeats import SqliteHeartbeats

        return SqliteHeartbeats(self._connections())

    def open_deposits(self) -> Deposits:
        """The results of tasks go through the driver."""
        from tallymark.store.deposits import InTheResult

        return InTheResult()

    def _connections(self) -> "Connections":
        from tallymark.store.sqlite import connection, schema

        return schema.open_connections(Path(self.file), connection.connect)


@dataclass(frozen=True, slots=True)
class CassandraAddress:
    """A named store in a keyspace of a cluster."""

    is_shared: ClassVar[bool] = True
    hosts: tuple[str, ...]
    port: int
    keyspace: str
    name: str
    replication: tuple[str, ...]
    data_center: str
    consistency: str
    shards: int
    timeout_s: float
    user: str
    password: str = field(repr=False)

    def open_store(self) -> Store:
        from tallymark.store.cassandra.store import CassandraStore

        return CassandraStore(self)

    def open_sink(self) -> Sink:
        from tallymark.store.cassandra.sink import open_sink

        return open_sink(self)

    def open_registry(self) -> Registry:
        from tallymark.store.cassandra.registry import open_registry

        return open_registry(self)

    def open_heartbeats(self) -> Heartbeats:
        from tallymark.store.cassandra.heartbeats import open_heartbeats

        return open_heartbeats(self)

    def open_deposits(self) -> Deposits:
        """Tasks write their deltas themselves: the driver would be the narrow place of a cluster."""
        from tallymark.store.cassandra.deposits import open_deposits

        return open_deposits(self)


StoreAddress = SqliteAddress | CassandraAddress


def address(settings: Settings) -> StoreAddress:
    if settings.store.kind == "sqlite":
        return SqliteAddress(str(settings.store_file.absolute()))
    return _cassandra(settings.store)


def _cassandra(store: StoreSettings) -> CassandraAddress:
    return CassandraAddress(
        tuple(store.hosts),
        store.port,
        store.keyspace,
        store.name,
        tuple(store.replication),
        store.data_center,
        store.consistency,
        store.shards,
        store.timeout_s,
        store.user,
        store.password,
    )
