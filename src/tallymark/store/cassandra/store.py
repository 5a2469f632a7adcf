"""The store of a cluster: every part of it in one keyspace, open to many processes on many machines."""

import time
from collections.abc import Callable
from functools import partial

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
from tallymark.store.cassandra.windows import CassandraWindows
from tallymark.store.protocol import StoreError
from tallymark.store.windows import SHARES


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
        self.windows = CassandraWindows(self._link, address.name)
        self.table_parts = CassandraTableParts(self._link, address.name)
        self.heartbeats = CassandraHeartbeats(self._link, address.name)
        self.upkeep = CassandraUpkeep(reader, self._fold, self.registry, self.dead_letters, clock=clock)

    def lease(self, role: str, holder: str, *, lease_s: float) -> CassandraLease:
        """Of `pipeline` (apply and begin), `keeper` (fold and roll) or `share/3` (windows of that share)."""
        holding = partial(CassandraLease, lease_s=lease_s, clock=self._clock)
        part, _, number = role.partition("/")
        if part == "share" and number.isdecimal() and int(number) < SHARES:
            book = self.windows.book(int(number))
            book.make()
            return holding(book, self.windows.term(int(number)), holder, taken=lambda: None)
        if role == "pipeline":
            events = Book(self._link, self.address.name, EVENTS)
            return holding(events, self.sink.term, holder, taken=self.sink.forget)
        if role == "keeper":
            points = Book(self._link, self.address.name, POINTS)
            return holding(points, self._fold.term, holder, taken=self._fold.forget)
        raise StoreError(f"there is no lease for the role {role}; there are pipeline, keeper and share/0 to share/15")

    def close(self) -> None:
        self._link.close()
