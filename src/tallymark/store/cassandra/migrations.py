"""Migrations: a store that an older version wrote becomes one of the present format."""

import os
import socket
import time
from collections.abc import Callable, Sequence

import msgspec

from tallymark.store.cassandra.book import EVENTS, METERS, POINTS, Book, Change, Page, Term
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.heartbeats import CassandraHeartbeats
from tallymark.store.cassandra.lease import CassandraLease
from tallymark.store.format import VERSION
from tallymark.store.protocol import StoreError

ALIVE_MS = 10_000
"""since its last heartbeat a role may be alive"""
LEASE_S = 20.0
"""how long the holder of a role that was killed must be silent"""


class StoreFacts(msgspec.Struct, frozen=True):
    schema: int = VERSION
    """the format of what is in the store; those of format 2 say 1"""
    shards: int = 0


def upgrade(
    link: Link, store: str, *, wait_s: float = 60.0, pause_s: float = 0.2, clock: Callable[[], float] = time.monotonic
) -> StoreFacts:
    """Lets a store of an older format be one of this format.

    What older versions wrote is read as it is, so only the number changes. It does so while the leases of all who write
    are held here and no role has been alive for a moment: nobody of an older version is at work, and one that wakes up
    later is fenced.
    """
    give_up = clock() + wait_s
    meters = Book(link, store, METERS)
    while True:
        facts = meters.head(settled=True).read_facts(StoreFacts)
        if facts.schema >= VERSION:
            return facts  # somebody else did
        holder = f"upgrade/{socket.gethostname()}/{os.getpid()}"
        leases = [
            CassandraLease(
                Book(link, store, book), Term(role), holder, lease_s=LEASE_S, taken=lambda: None, clock=clock
            )
            for role, book in (("pipeline", EVENTS), ("keeper", POINTS))
        ]
        try:
            while (alive := _alive(link, store)) or not _have_all(leases):
                if clock() > give_up:
                    using = ", ".join(alive) or "a pipeline or keeper"
                    raise StoreError(
                        f"the store {store} must be migrated to format {VERSION}, but {using} is using it;"
                        " stop every Tallymark that uses this store, then start again"
                    )
                if meters.head(settled=True).read_facts(StoreFacts).schema >= VERSION:
                    break
                time.sleep(pause_s)
            else:
                meters.change(_to_this_format, term=Term("registry"), known=None)
        finally:
            for lease in leases:
                lease.release()


def _alive(link: Link, store: str) -> list[str]:
    """The roles that read or change meters and were alive a moment ago: of an older version, since the store is too.

    A query node has no lease that could fence it, and an older one would take the meters of all tenants for one's.
    """
    now_ms = time.time_ns() // 1_000_000
    return [
        role
        for role, (at_ms, _) in sorted(CassandraHeartbeats(link, store).beats().items())
        if role.partition("/")[0] in ("query", "pipeline", "keeper") and abs(now_ms - at_ms) < ALIVE_MS
    ]


def _have_all(leases: Sequence[CassandraLease]) -> bool:
    """Takes them in order, so that of two who migrate one gets all; but watches the holders of all from the start."""
    for lease in leases:
        lease.watch()
    return all(lease.take() for lease in leases)


def _to_this_format(page: Page) -> Change | None:
    facts = page.head.read_facts(StoreFacts)
    if facts.schema >= VERSION:
        return None
    new = msgspec.structs.replace(facts, schema=VERSION)
    return Change(sequence=page.head.sequence + 1, facts=msgspec.msgpack.encode(new))
