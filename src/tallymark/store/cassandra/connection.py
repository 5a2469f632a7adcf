"""One session a process and cluster, shared by all stores it opens there, and the ways to ask over it."""

import copy
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, tuple_factory

from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra import failures, schema
from tallymark.store.cassandra.failures import FAILED, TRANSIENT, patiently
from tallymark.store.protocol import StoreError

# The one that Cassandra 3, 4 and 5 all speak; left open, the driver tries newer ones first and warns about each.
_PROTOCOL = 4
_LEVELS = {
    "one": ConsistencyLevel.ONE,
    "local_quorum": ConsistencyLevel.LOCAL_QUORUM,
    "quorum": ConsistencyLevel.QUORUM,
    "all": ConsistencyLevel.ALL,
}
# What is written, and read to be written again, meets in a majority whatever is set for questions: a fold that read a
# point from a copy that lacks the last fold would lose that for good.
_FIRM = {
    "one": ConsistencyLevel.LOCAL_QUORUM,
    "local_quorum": ConsistencyLevel.LOCAL_QUORUM,
    "quorum": ConsistencyLevel.QUORUM,
    "all": ConsistencyLevel.QUORUM,
}
# Requests on their way at once: enough to keep some nodes busy, few enough to hold their answers in memory.
IN_FLIGHT = 32

Row = tuple[Any, ...]
Ask = tuple[str, Sequence[object]]
"""a statement and its values"""


class Session(Protocol):
    """What is used of the driver's session; tests put one between that fails."""

    def execute(self, statement: Any) -> Any: ...

    def execute_async(self, statement: Any) -> Any: ...

    def prepare(self, statement: str) -> Any: ...

    def close(self) -> None: ...


Connect = Callable[[CassandraAddress], Session]


class Link:
    """Asks Cassandra, and says in the store's words when it does not answer."""

    def __init__(self, address: CassandraAddress, connect: Connect) -> None:
        self._address = address
        self._session = connect(address)
        self._level = _FIRM[address.consistency]
        is_local = self._level == ConsistencyLevel.LOCAL_QUORUM
        self._serial = ConsistencyLevel.LOCAL_SERIAL if is_local else ConsistencyLevel.SERIAL

    def for_questions(self) -> Self:
        """The same link, reading at the consistency that is set."""
        other = copy.copy(self)
        other._level = _LEVELS[self._address.consistency]
        return other

    def rows(self, cql: str, *values: object) -> list[Row]:
        try:
            return list(self._session.execute(self._bound(cql, values)))
        except FAILED as error:
            raise self._said(error) from error

    def settled(self, cql: str, *values: object) -> list[Row]:
        """Reads what no conditional write under way can change any more: it is completed or given up first."""
        try:
            statement = self._bound(cql, values)
            statement.consistency_level = self._serial
            statement.fetch_size = None
            return list(self._session.execute(statement))
        except FAILED as error:
            raise self._said(error) from error

    def compare_and_set(self, conditional: Ask, others: Sequence[Ask] = ()) -> bool:
        """One conditional statement, and others of its partition that are done with it or not at all.

        False also when the answer did not come: then only a settled read tells what happened.
        """
        try:
            return bool(self._session.execute(self._together(conditional, *others)).one()[0])
        except TRANSIENT:
            return False
        except FAILED as error:
            raise self._said(error) from error

    def stream(self, asks: Iterable[Ask]) -> Iterator[Any]:
        """The results in the order of the questions, many on their way at once; each is read page by page."""
        yield from self._flow(self._bound(*ask) for ask in asks)

    def write(self, batches: Iterable[Sequence[Ask]]) -> None:
        """Groups of writes, each to one partition and so a single write there; many on their way at once."""
        for _ in self._flow(self._bound(*batch[0]) if len(batch) == 1 else self._unlogged(batch) for batch in batches):
            pass

    def pages(self, result: Any) -> Iterator[list[Row]]:
        """The rows of a result as they came over the wire."""
        try:
            while True:
                if result.current_rows:
                    yield result.current_rows
                if not result.has_more_pages:
                    return
                result.fetch_next_page()
        except FAILED as error:
            raise self._said(error) from error

    def close(self) -> None:
        self._session.close()

    def _flow(self, statements: Iterable[Any]) -> Iterator[Any]:
        waiting: deque[Any] = deque()
        try:
            for statement in statements:
                waiting.append(self._session.execute_async(statement))
                if len(waiting) >= IN_FLIGHT:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except FAILED as error:
            raise self._said(error) from error

    def _said(self, error: BaseException) -> StoreError:
        return failures.translated(self._address, error, self._level)

    def _together(self, *asks: Ask) -> Any:
        batch = BatchStatement(consistency_level=self._level, serial_consistency_level=self._serial)
        for ask in asks:
            batch.add(self._bound(*ask))
        return batch

    def _unlogged(self, asks: Sequence[Ask]) -> Any:
        # One partition: the server makes it a single mutation, and the log of batches would only cost.
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=self._level)
        for ask in asks:
            batch.add(self._bound(*ask))
        return batch

    def _bound(self, cql: str, values: Sequence[object]) -> Any:
        statement = self._session.prepare(cql).bind(values)
        statement.consistency_level = self._level
        return statement


class _Shared:
    """The driver's session with its prepared statements."""

    def __init__(self, address: CassandraAddress) -> None:
        self.users = 0
        self._lock = threading.Lock()
        self._prepared: dict[str, Any] = {}
        self._cluster: Any = None
        try:
            self._cluster = _cluster(address)
            self._session = self._cluster.connect()
            schema.prepare(self._session, address)
            patiently(lambda: self._session.set_keyspace(address.keyspace))
        except BaseException as error:
            centers: set[str] = set() if self._cluster is None else _data_centers(self._cluster)
            self.shut_down()
            if isinstance(error, FAILED):
                raise failures.not_connected(address, error, centers) from error
            raise

    def prepare(self, cql: str) -> Any:
        found = self._prepared.get(cql)
        if found is None:
            with self._lock:
                found = self._prepared.get(cql) or patiently(lambda: self._session.prepare(cql))
                self._prepared[cql] = found
        return found

    def execute(self, statement: Any) -> Any:
        return patiently(lambda: self._session.execute(statement))

    def execute_async(self, statement: Any) -> Any:
        return self._session.execute_async(statement)

    def shut_down(self) -> None:
        if self._cluster is not None:
            self._cluster.shutdown()


_lock = threading.Lock()
_shared: dict[object, _Shared] = {}


class _Lent:
    """The shared session, until it is given back."""

    def __init__(self, key: object, shared: _Shared) -> None:
        self._key = key
        self._of = shared
        self.prepare = shared.prepare
        self.execute = shared.execute
        self.execute_async = shared.execute_async
        self._closed = False

    def close(self) -> None:
        with _lock:
            if self._closed:
                return
            self._closed = True
            self._of.users -= 1
            if self._of.users or _shared.get(self._key) is not self._of:
                return
            del _shared[self._key]
        self._of.shut_down()


def connect(address: CassandraAddress) -> Session:
    """The session of this process. A forked child, as Spark's workers are, gets one of its own."""
    key = (
        os.getpid(),
        address.hosts,
        address.port,
        address.keyspace,
        address.data_center,
        address.consistency,
        address.timeout_s,
        address.user,
    )
    with _lock:
        shared = _shared.get(key)
        if shared is None:
            shared = _shared[key] = _Shared(address)
        shared.users += 1
    return _Lent(key, shared)


os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))


def _cluster(address: CassandraAddress) -> Any:
    # The driver warns of every lost connection; whoever asks hears it from us, once.
    logging.getLogger("cassandra").setLevel(logging.ERROR)
    nearest = DCAwareRoundRobinPolicy(local_dc=address.data_center)
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(nearest),
        consistency_level=_FIRM[address.consistency],
        request_timeout=address.timeout_s,
        row_factory=tuple_factory,
    )
    return Cluster(
        list(address.hosts),
        port=address.port,
        protocol_version=_PROTOCOL,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        auth_provider=PlainTextAuthProvider(address.user, address.password) if address.user else None,
        connect_timeout=address.timeout_s,
        control_connection_timeout=address.timeout_s,
        # Back within some seconds of a restarted node, not minutes.
        reconnection_policy=ExponentialReconnectionPolicy(0.5, 5.0),
        # The driver reads the schema (10 ms of CPU a process): it finds the nodes that have a row by it.
        schema_metadata_enabled=True,
    )


def _data_centers(cluster: Any) -> set[str]:
    """Those that the cluster named, as far as somebody answered."""
    return {host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter}
