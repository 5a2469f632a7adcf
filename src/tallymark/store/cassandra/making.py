"""What a new store begins with: its books, the built-in meter, and the number of shards, which is then fixed."""

import msgspec

from tallymark.meters.model import BUILT_IN, Meter
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra import schema
from tallymark.store.cassandra.book import DEAD, EVENTS, METERS, POINTS, Book, Change, Page, Term
from tallymark.store.cassandra.connection import Link
from tallymark.store.protocol import StoreError

METER = "meter"


class Definition(msgspec.Struct, frozen=True):
    """One version of a meter."""

    version: int
    meter: Meter
    created_ms: int
    deleted_ms: int | None = None


class StoreFacts(msgspec.Struct, frozen=True):
    schema: int = schema.VERSION
    shards: int = 0


def prepare(link: Link, address: CassandraAddress) -> StoreFacts:
    """Makes the store if there is none; several processes may do so at once."""
    meters = Book(link, address.name, METERS)
    facts = meters.head().read_facts(StoreFacts)
    if not facts.shards:
        for name in (EVENTS, DEAD, POINTS, METERS):
            Book(link, address.name, name).make()
        # Last, in one step: a store is there when it has its shards.
        meters.change(lambda page: _begin(page, address), term=Term("registry"), known=None)
        facts = meters.head(settled=True).read_facts(StoreFacts)
    if facts.schema != schema.VERSION:
        raise StoreError(
            f"the store {address.name} in {address.keyspace} has schema {facts.schema}, this version of Tallymark knows"
            f" {schema.VERSION}: use the version that wrote it, or another store.name"
        )
    return facts


def _begin(page: Page, address: CassandraAddress) -> Change | None:
    if page.head.facts:
        return None
    built_in = msgspec.msgpack.encode(Definition(1, BUILT_IN, 0))
    facts = msgspec.msgpack.encode(StoreFacts(shards=address.shards))
    return Change(sequence=1, facts=facts, put={(METER, 1, 0): built_in})
