"""The store of a cluster: every part of it in one keyspace, open to many processes on many machines."""

import time
from collections.abc import Callable

from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra import bootstrap, connection, fold
from tallymark.store.cassandra.book import EVENTS, POINTS, Book
from tallymark.store.cassandra.dead_letters import CassandraDeadLetters
from tallymark.store.cassandra.documents import CassandraDocuments
from tallymark.store.cassandra.fold import Fold
from tallymark.store.cassandra.heartbeats import CassandraHeartbeats
from tallymark.store.cassandra.lease import CassandraLease
from tallymark.store.cassandra.reading import CassandraSnapshots, Reader
from tallymark.store.cassandra.registry import CassandraRegistry
from tallymark.store.cassandra.sink import CassandraSink
from tallymark.store.cassandra.table_parts import CassandraTableParts
from tallymark.store.cassandra.upkeep import CassandraUpkeep
from tallymark.store.protocol import StoreError


class CassandraStore:
    """See `store.protocol.Store`."""

    def __init__(
        self,
        address: CassandraAddress,
        *,
        connect: connection.Connect = connection.connect,
        pause_s: float = fold.MIN_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._clock = clock
        self._link = connection.Link(address, connect)
        facts = bootstrap.prepare(self._link, address)
        reader = Reader(self._link, address.name, facts.shards)
        self._fold = Fold(reader, pause_s=pause_s, clock=clock)
        self.registry = CassandraRegistry(self._link, address.name)
        self.sink = CassandraSink(self._link, address.name)
        self.snapshots = CassandraSnapshots(reader)
        self.dead_letters = CassandraDeadLetters(self._link, address.name)
        self.documents = CassandraDocuments(self._link, address.name)
        self.table_parts = CassandraTableParts(self._link, address.name)
        self.heartbeats = CassandraHeartbeats(self._link, address.name)
        self.upkeep = CassandraUpkeep(reader, self._fold, self.registry, self.dead_letters, clock=clock)

    def lease(self, role: str, holder: str, *, lease_s: float) -> CassandraLease:
        """Of `pipeline` (apply and begin) or `keeper` (fold and roll)."""
        if role == "pipeline":
            book, term, taken = EVENTS, self.sink.term, self.sink.forget
        elif role == "keeper":
            book, term, taken = POINTS, self._fold.term, self._fold.forget
        else:
            raise StoreError(f"there is no lease for the role {role}; there are pipeline and keeper")
        return CassandraLease(
            Book(self._link, self.address.name, book), term, holder, lease_s=lease_s, taken=taken, clock=self._clock
        )

    def close(self) -> None:
        self._link.close()
