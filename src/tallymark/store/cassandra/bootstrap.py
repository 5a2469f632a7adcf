"""What a new store begins with: its books, the built-in meters, and the number of shards, which is then fixed."""

from collections.abc import Iterable, Sequence

import msgspec

from tallymark.events.tenants import MAIN
from tallymark.meters.model import Meter
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra.book import DEAD, EVENTS, METERS, POINTS, Book, Change, Key, Page, Term
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.migrations import StoreFacts, upgrade
from tallymark.store.format import VERSION, newer
from tallymark.store.protocol import StoreError
from tallymark.store.registered import Version, due_built_ins, following, newest_of
from tallymark.store.selections import Selection, Step

METER = "meter"


class Definition(msgspec.Struct, frozen=True):
    """One version of a meter; those of format 4 and before have neither a tenant nor a set."""

    version: int
    meter: Meter
    created_ms: int
    deleted_ms: int | None = None
    tenant: str = MAIN
    set_id: int = 0
    """0 is the meter's own id"""
    selection: Step | None = None


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
    if _due(meters.page(METER)):
        meters.change(_add_built_ins, term=Term("registry"), kinds=(METER,), known=None)
    return facts


def _begin(page: Page, address: CassandraAddress) -> Change | None:
    if page.head.facts:
        return None
    facts = msgspec.msgpack.encode(StoreFacts(shards=address.shards))
    return Change(sequence=1, facts=facts, put=_due(page))


def _add_built_ins(page: Page) -> Change | None:
    """Those that a store of another version does not have, or has otherwise."""
    put = _due(page)
    return Change(sequence=page.head.sequence + 1, put=put) if put else None


def _due(page: Page) -> dict[Key, bytes]:
    """The built-in meters that some tenant lacks."""
    known = versions(page)
    of_tenant: dict[str, list[Version]] = {MAIN: []}
    for each in known:
        of_tenant.setdefault(each.tenant, []).append(each)
    free_id = next_id(known)
    put: dict[Key, bytes] = {}
    for tenant, own in sorted(of_tenant.items()):
        made = built_ins_for(tenant, own, free_id=free_id)
        free_id += len(made)
        put |= as_rows(made)
    return put


def built_ins_for(tenant: str, own: Sequence[Version], *, free_id: int) -> list[Version]:
    """Those that the tenant lacks, or has as another version of Tallymark defined them, given its own versions."""
    due = due_built_ins(newest_of(own, broken={}, missed={}))
    return [
        next_version(own, tenant, meter, created_ms=0, meter_id=meter_id)
        for meter_id, meter in enumerate(due, start=free_id)
    ]


def next_version(
    own: Sequence[Version],
    tenant: str,
    meter: Meter,
    *,
    created_ms: int,
    meter_id: int,
    selection: Selection | None = None,
) -> Version:
    named = [each for each in own if each.meter.name == meter.name]
    version, set_id, change = following(named, meter, selection)
    return Version(meter_id, tenant, version, set_id or meter_id, meter, created_ms, selection=change)


def next_id(known: Iterable[Version]) -> int:
    return 1 + max((each.meter_id for each in known), default=0)


def as_rows(kept: Iterable[Version]) -> dict[Key, bytes]:
    return {
        (METER, each.meter_id, 0): msgspec.msgpack.encode(
            Definition(
                each.version,
                each.meter,
                each.created_ms,
                each.deleted_ms,
                each.tenant,
                each.set_id,
                each.selection,
            )
        )
        for each in kept
    }


def versions(page: Page) -> list[Version]:
    found = []
    for (meter_id, _), value in page.of(METER).items():
        each = _DEFINITION.decode(value)
        set_id = each.set_id or meter_id
        found.append(
            Version(
                meter_id,
                each.tenant,
                each.version,
                set_id,
                each.meter,
                each.created_ms,
                each.deleted_ms,
                each.selection,
            )
        )
    return found
