"""What a new store begins with: its books, the built-in meters, and the number of shards, which is then fixed."""

from collections import Counter

import msgspec

from tallymark.meters.model import Meter
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra.book import DEAD, EVENTS, METERS, POINTS, Book, Change, Key, Page, Term
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.migrations import StoreFacts, upgrade
from tallymark.store.format import VERSION, newer
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import StoreError
from tallymark.store.registered import due_built_ins

METER = "meter"


class Definition(msgspec.Struct, frozen=True):
    """One version of a meter."""

    version: int
    meter: Meter
    created_ms: int
    deleted_ms: int | None = None


_DEFINITION = msgspec.msgpack.Decoder(Definition)


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
    if facts.schema > VERSION:
        raise StoreError(newer(f"the store {address.name} in {address.keyspace}", facts.schema))
    if facts.schema < VERSION:
        facts = upgrade(link, address.name)
    if _built_ins(definitions(meters.page(METER))):
        meters.change(_add_built_ins, term=Term("registry"), kinds=(METER,), known=None)
    return facts


def _begin(page: Page, address: CassandraAddress) -> Change | None:
    if page.head.facts:
        return None
    facts = msgspec.msgpack.encode(StoreFacts(shards=address.shards))
    return Change(sequence=1, facts=facts, put=_built_ins({}))


def _add_built_ins(page: Page) -> Change | None:
    """Those that a store of another version does not have, or has otherwise."""
    put = _built_ins(definitions(page))
    return Change(sequence=page.head.sequence + 1, put=put) if put else None


def _built_ins(known: dict[int, Definition]) -> dict[Key, bytes]:
    newest = {
        each.meter.name: RegisteredMeter(meter_id, each.version, each.meter, each.created_ms)
        for meter_id, each in sorted(known.items())
        if each.deleted_ms is None
    }
    versions = Counter(each.meter.name for each in known.values())
    return {
        (METER, meter_id, 0): msgspec.msgpack.encode(Definition(versions[meter.name] + 1, meter, 0))
        for meter_id, meter in enumerate(due_built_ins(newest.values()), start=1 + max(known, default=0))
    }


def definitions(page: Page) -> dict[int, Definition]:
    """By the meter's id."""
    return {meter_id: _DEFINITION.decode(value) for (meter_id, _), value in page.of(METER).items()}
