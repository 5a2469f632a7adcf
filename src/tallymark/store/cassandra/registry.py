"""The registry: definitions of meters, their versions, since where they count and since where they are broken."""

from collections import Counter

import msgspec

from tallymark.meters.model import Meter
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra import bootstrap
from tallymark.store.cassandra.book import EVENTS, METERS, AnyTerm, Book, Change, Key, Page, Term
from tallymark.store.cassandra.bootstrap import METER, Definition, definitions
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
from tallymark.store.registered import check_definable, check_deletable, find, live_of


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
            live = live_of(revision, self.meters())
            self._live = live
        return live

    def meters(self) -> list[RegisteredMeter]:
        return self._newest(self._meters.page(METER))

    def meter(self, name: str) -> RegisteredMeter:
        return find(self.meters(), name)

    def put_meter(self, meter: Meter, *, now_ms: int) -> RegisteredMeter:
        made: list[RegisteredMeter] = []

        def decide(page: Page) -> Change | None:
            known = {each.meter.name: each for each in self._newest(page)}.get(meter.name)
            if known is not None and known.meter == meter:
                made[:] = [known]
                return None
            check_definable(meter, known)
            all_known = definitions(page)
            version = 1 + max((each.version for each in all_known.values() if each.meter.name == meter.name), default=0)
            meter_id = 1 + max(all_known)
            made[:] = [RegisteredMeter(meter_id, version, meter, now_ms)]
            value = msgspec.msgpack.encode(Definition(version, meter, now_ms))
            return Change(sequence=page.head.sequence + 1, put={(METER, meter_id, 0): value})

        self._meters.change(decide, term=self._term, kinds=(METER,), known=None)
        return made[0]

    def delete_meter(self, name: str, *, now_ms: int) -> None:
        """Its points stay; defined again, it is a new version that counts from zero."""
        going: list[int] = []

        def decide(page: Page) -> Change | None:
            all_known = definitions(page)
            if going and all_known[going[0]].deleted_ms is not None:
                return None  # ours, answered late
            found = find(self._newest(page), name)
            check_deletable(found)
            going[:] = [found.meter_id]
            put = {
                (METER, meter_id, 0): msgspec.msgpack.encode(msgspec.structs.replace(each, deleted_ms=now_ms))
                for meter_id, each in all_known.items()
                if each.meter.name == name and each.deleted_ms is None
            }
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

    def resume_meter(self, name: str) -> RegisteredMeter:
        meter_id = self.meter(name).meter_id

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
        return self.meter(name)

    def gaps(self, meter_id: int) -> list[Gap]:
        return [
            gap
            for (meter, partition), value in sorted(self._events.page(GAPS).of(GAPS).items())
            if meter == meter_id
            for gap in decode_gaps(partition, value)
        ]

    def _newest(self, page: Page) -> list[RegisteredMeter]:
        """The newest version of every meter that is not deleted; broken as a whole, whichever partition it was."""
        broken: dict[int, str] = {}
        missed: Counter[int] = Counter()
        events = self._events.page(BROKEN, GAPS)
        for (meter_id, _), value in sorted(events.of(BROKEN).items()):
            broken.setdefault(meter_id, decode_broken(value)[1])
        for (meter_id, partition), value in events.of(GAPS).items():
            missed[meter_id] += sum(gap.missed for gap in decode_gaps(partition, value))
        newest: dict[str, RegisteredMeter] = {}
        for meter_id, each in sorted(definitions(page).items()):
            newest.pop(each.meter.name, None)
            if each.deleted_ms is None:
                newest[each.meter.name] = RegisteredMeter(
                    meter_id, each.version, each.meter, each.created_ms, broken.get(meter_id), missed[meter_id]
                )
        return [newest[name] for name in sorted(newest)]


def open_registry(address: CassandraAddress) -> CassandraRegistry:
    link = Link(address, connect)
    bootstrap.prepare(link, address)
    return CassandraRegistry(link, address.name)
