"""One session a process and cluster, shared by all stores it opens there, and the ways to ask over it."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from cassandra import AuthenticationFailed, ConsistencyLevel, OperationTimedOut, RequestExecutionException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, TokenAwarePolicy
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, ServerError
from cassandra.query import BatchStatement, BatchType, tuple_factory

from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra import schema
from tallymark.store.protocol import StoreError, StoreUnreachable

# The one that Cassandra 3, 4 and 5 all speak; left open, the driver tries newer ones first and warns about each.
_PROTOCOL = 4
_LEVELS = {
    "one": ConsistencyLevel.ONE,
    "local_quorum": ConsistencyLevel.LOCAL_QUORUM,
    "quorum": ConsistencyLevel.QUORUM,
    "all": ConsistencyLevel.ALL,
}
# Nobody answered, not enough did, or not in time: whether it was done is not known, and another try may succeed.
_TRANSIENT = (
    NoHostAvailable,
    OperationTimedOut,
    RequestExecutionException,
    ConnectionException,
    ServerError,
    OverloadedErrorMessage,
    IsBootstrappingErrorMessage,
)
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
        self._serial = (
            ConsistencyLevel.LOCAL_SERIAL if address.consistency == "local_quorum" else ConsistencyLevel.SERIAL
        )

    def rows(self, cql: str, *values: object) -> list[Row]:
        try:
            return list(self._session.execute(self._bound(cql, values)))
        except _TRANSIENT as error:
            raise unreachable(self._address, error) from error

    def settled(self, cql: str, *values: object) -> list[Row]:
        """Reads what no conditional write under way can change any more: it is completed or given up first."""
        statement = self._bound(cql, values)
        statement.consistency_level = self._serial
        statement.fetch_size = None
        try:
            return list(self._session.execute(statement))
        except _TRANSIENT as error:
            raise unreachable(self._address, error) from error

    def compare_and_set(self, conditional: Ask, others: Sequence[Ask] = ()) -> bool:
        """One conditional statement, and others of its partition that are done with it or not at all.

        False also when the answer did not come: then only a settled read tells what happened.
        """
        try:
            return bool(self._session.execute(self._together(conditional, *others)).one()[0])
        except _TRANSIENT:
            return False

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
        except _TRANSIENT as error:
            raise unreachable(self._address, error) from error

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
        except _TRANSIENT as error:
            raise unreachable(self._address, error) from error

    def _together(self, *asks: Ask) -> Any:
        batch = BatchStatement(serial_consistency_level=self._serial)
        for ask in asks:
            batch.add(self._bound(*ask))
        return batch

    def _unlogged(self, asks: Sequence[Ask]) -> Any:
        # One partition: the server makes it a single mutation, and the log of batches would only cost.
        batch = BatchStatement(BatchType.UNLOGGED)
        for ask in asks:
            batch.add(self._bound(*ask))
        return batch

    def _bound(self, cql: str, values: Sequence[object]) -> Any:
        return self._session.prepare(cql).bind(values)


class _Shared:
    """The driver's session with its prepared statements."""

    def __init__(self, address: CassandraAddress) -> None:
        self.users = 0
        self._lock = threading.Lock()
        self._prepared: dict[str, Any] = {}
        self._cluster = _cluster(address)
        try:
            self._session = self._cluster.connect()
            schema.prepare(self._session, address)
            self._session.set_keyspace(address.keyspace)
        except BaseException as error:
            self._cluster.shutdown()
            if isinstance(error, _TRANSIENT):
                raise _refused(address, error) from error
            raise

    def prepare(self, cql: str) -> Any:
        found = self._prepared.get(cql)
        if found is None:
            with self._lock:
                found = self._prepared.get(cql) or self._session.prepare(cql)
                self._prepared[cql] = found
        return found

    def execute(self, statement: Any) -> Any:
        return self._session.execute(statement)

    def execute_async(self, statement: Any) -> Any:
        return self._session.execute_async(statement)

    def shut_down(self) -> None:
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
        consistency_level=_LEVELS[address.consistency],
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
        # The schema is asked for where it matters; following every change of it costs each process time.
        schema_metadata_enabled=False,
    )


def unreachable(address: CassandraAddress, error: BaseException) -> StoreUnreachable:
    hosts = ", ".join(f"{host}:{address.port}" for host in address.hosts)
    return StoreUnreachable(
        f"Cassandra at {hosts} did not answer within {address.timeout_s:g} s at consistency {address.consistency}"
        f" ({type(error).__name__}: {_short(error)}); nothing is lost, it is asked again. If that lasts, see whether"
        " enough nodes are up, or set store.consistency or store.timeout_s"
    )


def _refused(address: CassandraAddress, error: BaseException) -> StoreError:
    causes = error.errors.values() if isinstance(error, NoHostAvailable) else (error,)
    for cause in causes:
        if isinstance(cause, AuthenticationFailed):
            return StoreError(f"Cassandra refuses the user {address.user!r}: {cause}; see store.user, store.password")
    return unreachable(address, error)


def _short(error: BaseException) -> str:
    text = str(error)
    return text if len(text) <= 200 else f"{text[:200]}…"
