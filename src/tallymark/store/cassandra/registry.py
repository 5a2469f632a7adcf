"""The registry: definitions of meters, their versions, since where they count and since where they are broken."""

from collections import Counter
from dataclasses import replace

import msgspec

from tallymark.meters.model import Meter
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra import bootstrap
from tallymark.store.cassandra.book import EVENTS, METERS, AnyTerm, Book, Change, Key, Page, Term
from tallymark.store.cassandra.bootstrap import METER, as_rows, built_ins_for, next_id, next_version, versions
from tallymark.store.cassandra.connection import Link, connect
from tallymark.store.cassandra.sink import (
    BROKEN,
    GAPS,
    LIVE,
    PARTITION,
    EventFacts,
    applied_positions,
    decode_broken,
    decode_gaps,
    encode_gaps,
    event_facts,
)
from tallymark.store.model import Gap, LiveMeters, RegisteredMeter
from tallymark.store.registered import (
    check_definable,
    check_deletable,
    find,
    is_behind,
    is_changed,
    live_of,
    newest_of,
)
from tallymark.store.selections import Selection


class CassandraRegistry:
    def __init__(self, link: Link, store: str) -> None:
        self._meters = Book(link, store, METERS)
        self._events = Book(link, store, EVENTS)
        self._term = Term("registry")
        self._live: LiveMeters | None = None

    def revision(self) -> int:
        """Grows with every definition and whenever a meter breaks or is resumed, which are noted in two books."""
        breaks = self._events.head().read_facts(EventFacts).breaks
        return self._meters.head().sequence + breaks

    def live_meters(self) -> LiveMeters:
        """Asked before every batch: reads two numbers unless something changed."""
        live = self._live
        revision = self.revision()
        if live is None or live.revision != revision:
            # The number first: what is read after it is as new or newer, and then the next look reads again.
            live = live_of(revision, self.all_meters())
            self._live = live
        return live

    def tenants(self) -> list[str]:
        return sorted({each.tenant for each in versions(self._meters.page(METER))})

    def add_tenant(self, tenant: str) -> None:
        def decide(page: Page) -> Change | None:
            known = versions(page)
            # A user may have had a meter before there was one built in.
            if any(each.tenant == tenant for each in known):
                return None
            made = built_ins_for(tenant, [], free_id=next_id(known))
            return Change(sequence=page.head.sequence + 1, put=as_rows(made))

        self._meters.change(decide, term=self._term, kinds=(METER,), known=None)

    def all_meters(self) -> list[RegisteredMeter]:
        return self._newest(self._meters.page(METER))

    def meters(self, tenant: str) -> list[RegisteredMeter]:
        return self._newest(self._meters.page(METER), tenant)

    def meter(self, tenant: str, name: str) -> RegisteredMeter:
        return find(self.meters(tenant), name)

    def put_meter(
        self, tenant: str, meter: Meter, *, now_ms: int, selection: Selection | None = None
    ) -> RegisteredMeter:
        def decide(page: Page) -> Change | None:
            all_known = versions(page)
            own = [each for each in all_known if each.tenant == tenant]
            made = [] if own else built_ins_for(tenant, [], free_id=next_id(all_known))
            own += made
            found = newest_of((each for each in own if each.meter.name == meter.name), broken={}, missed={})
            known = found[0] if found else None
            if known is not None and not is_changed(known, meter, selection):
                return None
            check_definable(meter, known)
            free_id = next_id([*all_known, *made])
            made.append(next_version(own, tenant, meter, created_ms=now_ms, meter_id=free_id, selection=selection))
            return Change(sequence=page.head.sequence + 1, put=as_rows(made))

        self._meters.change(decide, term=self._term, kinds=(METER,), known=None)
        return self.meter(tenant, meter.name)

    def select(self, tenant: str, name: str, selection: Selection, *, now_ms: int) -> bool:
        changed: list[bool] = []

        def decide(page: Page) -> Change | None:
            all_known = versions(page)
            own = [each for each in all_known if each.tenant == tenant and each.meter.name == name]
            found = newest_of(own, broken={}, missed={})
            if not found:
                return None
            (known,) = found
            if is_changed(known, known.meter, selection):
                changed[:] = [True]
                free_id = next_id(all_known)
                made = next_version(own, tenant, known.meter, created_ms=now_ms, meter_id=free_id, selection=selection)
                return Change(sequence=page.head.sequence + 1, put=as_rows([made]))
            if not is_behind(known, selection):
                return None  # or ours, answered late
            newest = max(own, key=lambda each: each.version)
            assert newest.selection is not None
            noted = replace(newest, selection=replace(newest.selection, as_of=selection.as_of))
            return Change(put=as_rows([noted]))

        self._meters.change(decide, term=self._term, kinds=(METER,), known=None)
        return bool(changed)

    def delete_meter(self, tenant: str, name: str, *, now_ms: int) -> None:
        """Its points stay; defined again, it is a new version that counts from zero."""
        going: list[int] = []

        def decide(page: Page) -> Change | None:
            known = [each for each in versions(page) if each.tenant == tenant and each.meter.name == name]
            if going and all(each.deleted_ms is not None for each in known if each.meter_id == going[0]):
                return None  # ours, answered late
            found = find(self._newest(page, tenant), name)
            check_deletable(found)
            going[:] = [found.meter_id]
            put = as_rows(replace(each, deleted_ms=now_ms) for each in known if each.deleted_ms is None)
            return Change(sequence=page.head.sequence + 1, put=put)

        self._meters.change(decide, term=self._term, kinds=(METER,), known=None)

    def live_from(self, meter_id: int) -> dict[int, int]:
        """partition -> first offset that this version of a meter counted."""
        found = self._events.page(LIVE).of(LIVE)
        return {
            partition: msgspec.msgpack.decode(value)
            for (meter, partition), value in sorted(found.items())
            if meter == meter_id
        }

    def broken_since(self, meter_id: int) -> dict[int, tuple[int, str]]:
        """partition -> (start of the first stretch it failed on, why)."""
        return {
            partition: decode_broken(value)
            for (meter, partition), value in sorted(self._events.page(BROKEN).of(BROKEN).items())
            if meter == meter_id
        }

    def resume_meter(self, tenant: str, name: str) -> RegisteredMeter:
        meter_id = self.meter(tenant, name).meter_id

        def decide(page: Page) -> Change | None:
            broken = {partition: value for (meter, partition), value in page.of(BROKEN).items() if meter == meter_id}
            if not broken:
                return None
            facts = event_facts(page)
            applied = applied_positions(page)
            # The gap of a break that a version without gaps noted begins there; what it missed nobody counted.
            put: dict[Key, bytes] = {}
            for partition, value in broken.items():
                key, (start, _) = (GAPS, meter_id, partition), decode_broken(value)
                found = decode_gaps(partition, page.rows.get(key))
                if not found or found[-1].end <= start:
                    put[key] = encode_gaps([*found, Gap(partition, start, applied.get(partition, start), 0)])
            return Change(
                facts=msgspec.msgpack.encode(msgspec.structs.replace(facts, breaks=facts.breaks + 1)),
                put=put,
                drop=[(BROKEN, meter_id, partition) for partition in broken],
            )

        self._events.change(decide, term=AnyTerm("registry"), kinds=(BROKEN, GAPS, PARTITION), known=None)
        return self.meter(tenant, name)

    def gaps(self, meter_id: int) -> list[Gap]:
        known = versions(self._meters.page(METER))
        sets = {each.set_id for each in known if each.meter_id == meter_id}
        sharing = {each.meter_id for each in known if each.set_id in sets}
        found = [
            gap
            for (meter, partition), value in self._events.page(GAPS).of(GAPS).items()
            if meter in sharing
            for gap in decode_gaps(partition, value)
        ]
        return sorted(found, key=lambda gap: (gap.partition, gap.start))

    def _newest(self, page: Page, tenant: str | None = None) -> list[RegisteredMeter]:
        """Of a tenant, or of all."""
        broken: dict[int, str] = {}
        missed: Counter[int] = Counter()
        events = self._events.page(BROKEN, GAPS)
        for (meter_id, _), value in sorted(events.of(BROKEN).items()):
            broken.setdefault(meter_id, decode_broken(value)[1])
        for (meter_id, partition), value in events.of(GAPS).items():
            missed[meter_id] += sum(gap.missed for gap in decode_gaps(partition, value))
        asked = (each for each in versions(page) if tenant is None or each.tenant == tenant)
        return newest_of(asked, broken=broken, missed=missed)


def open_registry(address: CassandraAddress) -> CassandraRegistry:
    link = Link(address, connect)
    bootstrap.prepare(link, address)
    return CassandraRegistry(link, address.name)
