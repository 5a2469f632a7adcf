"""What goes wrong with Cassandra, in the store's words, and what is only a matter of seconds."""

import time
from collections.abc import Callable
from typing import TypeVar

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    CoordinationFailure,
    InvalidRequest,
    OperationTimedOut,
    RequestExecutionException,
    UnresolvableContactPoints,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, ServerError

from tallymark.store.address import CassandraAddress
from tallymark.store.protocol import StoreError, StoreUnreachable

# Nobody answered, not enough did, or not in time: whether it was done is not known, and another try may succeed.
TRANSIENT = (
    NoHostAvailable,
    OperationTimedOut,
    RequestExecutionException,
    ConnectionException,
    ServerError,
    OverloadedErrorMessage,
    IsBootstrappingErrorMessage,
    UnresolvableContactPoints,
)
# A node may hear of a keyspace or table some seconds after the one that made it.
BEHIND_S = 10.0
FAILED = (*TRANSIENT, InvalidRequest)

Answered = TypeVar("Answered")


def patiently(
    ask: Callable[[], Answered],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answered:
    """Asks again for some seconds where a node does not know a keyspace or table that another made just now."""
    give_up = clock() + BEHIND_S
    while True:
        try:
            return ask()
        except InvalidRequest as error:
            if not _is_behind(error) or clock() >= give_up:
                raise
        sleep(0.2)


def _is_behind(error: BaseException) -> bool:
    return isinstance(error, InvalidRequest) and any(
        words in str(error).lower() for words in ("does not exist", "unconfigured table")
    )


def translated(address: CassandraAddress, error: BaseException, level: int) -> StoreError:
    """The driver's error in the store's words: what may pass by itself is `StoreUnreachable`."""
    hosts = ", ".join(f"{host}:{address.port}" for host in address.hosts)
    what = f"({type(error).__name__}: {_short(error)})"
    if isinstance(error, UnresolvableContactPoints):
        return StoreUnreachable(
            f"cannot resolve store.hosts: {hosts} {what}; nothing is lost, retrying. If this"
            " persists, check store.hosts and DNS"
        )
    if isinstance(error, CoordinationFailure) or _is_behind(error):
        return StoreUnreachable(
            f"Cassandra at {hosts} answered, but its nodes failed the request {what}; nothing is lost, retrying."
            " If this persists, see their logs: a full disk, a schema disagreement, or a write larger than half"
            " their commitlog_segment_size"
        )
    if isinstance(error, InvalidRequest):
        return StoreError(
            f"Cassandra at {hosts} refuses a request {what}; retrying does not help. Check that the keyspace"
            f" {address.keyspace} is Tallymark's own, and the limits for writes in the nodes' cassandra.yaml"
        )
    return StoreUnreachable(
        f"Cassandra at {hosts} did not answer within {address.timeout_s:g} s at consistency"
        f" {ConsistencyLevel.value_to_name[level].lower()}"
        f" {what}; nothing is lost, retrying. If this persists, check that enough nodes are up, or set"
        " store.consistency or store.timeout_s"
    )


def not_connected(address: CassandraAddress, error: BaseException, data_centers: set[str]) -> StoreError:
    """As `translated`, for the first connection; `data_centers` are those that the cluster named, if it did."""
    # By host, or a list of hosts when none of those that answered may be asked.
    causes = error.errors if isinstance(error, NoHostAvailable) else {"": error}
    for cause in causes.values() if isinstance(causes, dict) else ():
        if isinstance(cause, AuthenticationFailed):
            return StoreError(
                f"Cassandra refuses the user {address.user!r}: {cause}; check store.user and store.password"
            )
    if address.data_center and data_centers and address.data_center not in data_centers:
        return StoreError(
            f"store.data_center = {address.data_center!r} does not exist; the cluster has"
            f" {', '.join(sorted(data_centers))}"
        )
    return translated(address, error, ConsistencyLevel.ONE)


def _short(error: BaseException) -> str:
    text = str(error)
    return text if len(text) <= 200 else f"{text[:200]}…"
