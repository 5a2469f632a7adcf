"""The sink: a batch is one small conditional write, whatever it counted."""

import threading
from collections.abc import Sequence
from dataclasses import astuple

import msgspec

from tallymark.events.tenants import MAIN
from tallymark.store import positions
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra import bootstrap, entry
from tallymark.store.cassandra.book import EVENTS, Book, Change, Decide, Key, Page, Term
from tallymark.store.cassandra.connection import Link, connect
from tallymark.store.cassandra.dead_letter_rows import DeadLetterFacts, DeadLetterRows
from tallymark.store.cassandra.deposits import CassandraDeposits
from tallymark.store.lags import lag_of
from tallymark.store.model import DeadLetter, Gap, Lag, Ledger, StretchResult

PARTITION, LIVE, BROKEN, BURIED, LAG, GAPS = "partition", "live", "broken", "buried", "lag", "gaps"
_REMEMBERED = (PARTITION, LIVE, BROKEN, GAPS)
# Deltas that travel with the batch itself: the nodes agree on it word for word, so only what is small.
INLINE_BYTES = 16_000
INLINE_BYTES_IN_ALL = 64_000


class EventFacts(msgspec.Struct, frozen=True):
    """The single values of the book of events."""

    breaks: int = 0
    """how often a meter broke in a partition"""
    letters: DeadLetterFacts = msgspec.field(default_factory=DeadLetterFacts)


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Where a partition is, and what became of its events so far."""

    following: int
    ledger: tuple[int, ...] | None = None
    """`Ledger.numbers`; None if the partition has a position but no events yet"""
    tenants: dict[str, tuple[int, ...]] = {}
    """the same by tenant; empty if all of it is `main`'s"""

    def by_tenant(self) -> dict[str, Ledger]:
        if self.ledger is None:
            return {}
        return {tenant: Ledger.of(each) for tenant, each in self.tenants.items()} or {MAIN: Ledger.of(self.ledger)}


_STANDING = msgspec.msgpack.Decoder(Standing)
_GAPS = msgspec.msgpack.Decoder(list[tuple[int, int, int]])


class CassandraSink:
    def __init__(self, link: Link, store: str) -> None:
        self.term = Term("pipeline")
        self._book = Book(link, store, EVENTS)
        self._deposits = CassandraDeposits(link, store)
        self._letters = DeadLetterRows(link, store)
        self._lock = threading.Lock()
        # The page that this sink wrote last: it need not be read again while nobody else writes.
        self._page: Page | None = None

    def applied(self, log_identity: str) -> dict[int, int]:
        page = self._book.page(PARTITION)
        positions.check_log(positions.EVENTS, page.head.identity, log_identity)
        return applied_positions(page)

    def begin(self, log_identity: str, partition: int, offset: int) -> None:
        def decide(page: Page) -> Change | None:
            positions.check_log(positions.EVENTS, page.head.identity, log_identity)
            known = applied_positions(page).get(partition)
            positions.check_beginning(positions.EVENTS, known, partition, offset)
            if known is not None:
                return None
            return Change(
                identity=log_identity, put={(PARTITION, partition, 0): msgspec.msgpack.encode(Standing(offset))}
            )

        with self._lock:
            self._change(decide)

    def apply(self, results: Sequence[StretchResult], *, now_ms: int) -> list[StretchResult]:
        in_order = sorted(results, key=lambda result: (result.stretch.partition, result.stretch.start))
        fresh: list[StretchResult] = []
        brought: dict[int, StretchResult] = {}

        def decide(page: Page) -> Change | None:
            fresh[:] = _fresh(page, in_order)
            if not fresh:
                return None
            facts = event_facts(page)
            dead = [letter for result in fresh for letter in result.dead]
            # What is large is written first. If the batch then is not, nobody has named it.
            self._letters.write(EVENTS, facts.letters, dead, epoch=self.term.check(page.head), now_ms=now_ms)
            stored = self._bring(fresh, brought)
            return _batch(page, facts, stored, dead, now_ms=now_ms)

        with self._lock:
            self._change(decide)
        return fresh

    def buried(self, partition: int) -> list[int]:
        return sorted(offset for found, offset in self._book.page(BURIED).of(BURIED) if found == partition)

    def forget(self) -> None:
        """The next change reads the book anew: another epoch has begun."""
        with self._lock:
            self._page = None

    def _change(self, decide: Decide) -> None:
        known, self._page = self._page, None
        changed = self._book.change(decide, term=self.term, kinds=_REMEMBERED, known=known)
        self._page = changed if changed is not None else known

    def _bring(self, fresh: Sequence[StretchResult], brought: dict[int, StretchResult]) -> list[StretchResult]:
        """The results with deltas that are small, or deposited; once deposited is enough, however often it is tried."""
        room = INLINE_BYTES_IN_ALL
        stored = []
        for result in fresh:
            size = len(result.deltas)
            if size > min(INLINE_BYTES, room):
                if id(result) not in brought:
                    brought[id(result)] = self._deposits.deposit(result)
                result = brought[id(result)]
            else:
                room -= size
            stored.append(result)
        return stored


def applied_positions(page: Page) -> dict[int, int]:
    return {partition: standing.following for partition, standing in standings(page).items()}


def ledgers(page: Page) -> dict[int, Ledger]:
    found = standings(page).items()
    return {partition: Ledger.of(standing.ledger) for partition, standing in found if standing.ledger is not None}


def tenant_ledgers(page: Page) -> dict[str, Ledger]:
    found: dict[str, Ledger] = {}
    for standing in standings(page).values():
        for tenant, ledger in standing.by_tenant().items():
            found[tenant] = found.get(tenant, Ledger()) + ledger
    return found


def standings(page: Page) -> dict[int, Standing]:
    return {partition: _STANDING.decode(value) for (partition, _), value in page.of(PARTITION).items()}


def event_facts(page: Page) -> EventFacts:
    return page.head.read_facts(EventFacts)


def _fresh(page: Page, in_order: Sequence[StretchResult]) -> list[StretchResult]:
    known = applied_positions(page)
    fresh = []
    for result in in_order:
        stretch = result.stretch
        positions.check_log(positions.EVENTS, page.head.identity, result.log_identity)
        if positions.is_new(positions.EVENTS, known.get(stretch.partition), stretch):
            known[stretch.partition] = stretch.end
            fresh.append(result)
    return fresh


def _batch(
    page: Page, facts: EventFacts, fresh: Sequence[StretchResult], dead: Sequence[DeadLetter], *, now_ms: int
) -> Change:
    """All that becomes of the book when these are applied."""
    sequence = page.head.sequence + 1
    parts = [
        entry.Part(result.stretch.partition, result.stretch.start, result.stretch.end, result.deposit, result.deltas)
        for result in fresh
    ]
    put: dict[Key, bytes] = {(entry.KIND, sequence, 0): entry.encode(entry.Entry(now_ms, tuple(parts)))}
    known = standings(page)
    for result in fresh:
        partition, start = result.stretch.partition, result.stretch.start
        standing = known[partition] = _after(known.get(partition), result)
        put[PARTITION, partition, 0] = msgspec.msgpack.encode(standing)
        for meter_id in result.meter_ids:
            _note_first(page, put, (LIVE, meter_id, partition), start)
        for meter_id, reason in result.broken.items():
            if _note_first(page, put, (BROKEN, meter_id, partition), (start, reason)):
                facts = msgspec.structs.replace(facts, breaks=facts.breaks + 1)
        for meter_id, missed in result.missed.items():
            _note_missed(page, put, meter_id, Gap(partition, start, result.stretch.end, missed))
        if result.buried:
            put[BURIED, partition, start] = b""
    lag = lag_of((result.received for result in fresh), now_ms=now_ms)
    if lag is not None:
        put[LAG, lag.at_ms, sequence] = encode_lag(lag)
    facts = msgspec.structs.replace(facts, letters=facts.letters.plus(dead, now_ms=now_ms))
    return Change(sequence=sequence, identity=fresh[0].log_identity, facts=msgspec.msgpack.encode(facts), put=put)


def _after(before: Standing | None, result: StretchResult) -> Standing:
    total, tenants = Ledger(), dict[str, Ledger]()
    if before is not None and before.ledger is not None:
        total, tenants = Ledger.of(before.ledger), before.by_tenant()
    for tenant, ledger in result.ledgers.items():
        tenants[tenant] = tenants.get(tenant, Ledger()) + ledger
    split = {} if tenants.keys() <= {MAIN} else {tenant: each.numbers for tenant, each in tenants.items()}
    return Standing(result.stretch.end, (total + result.ledger).numbers, split)


def _note_first(page: Page, put: dict[Key, bytes], key: Key, value: object) -> bool:
    """True if nothing was noted under this key yet."""
    if key in page.rows or key in put:
        return False
    put[key] = msgspec.msgpack.encode(value)
    return True


def _note_missed(page: Page, put: dict[Key, bytes], meter_id: int, gap: Gap) -> None:
    """Lengthens the gap that ends where this one begins or holds the break, or begins one: at the break, if any."""
    key = (GAPS, meter_id, gap.partition)
    found = decode_gaps(gap.partition, put.get(key) or page.rows.get(key))
    broken = put.get((BROKEN, meter_id, gap.partition)) or page.rows.get((BROKEN, meter_id, gap.partition))
    first = gap.start if broken is None else decode_broken(broken)[0]
    if found and (found[-1].end == gap.start or found[-1].end > first):
        gap = Gap(gap.partition, found[-1].start, gap.end, found.pop().missed + gap.missed)
    else:
        gap = Gap(gap.partition, first, gap.end, gap.missed)
    put[key] = encode_gaps([*found, gap])


def encode_gaps(gaps: Sequence[Gap]) -> bytes:
    return msgspec.msgpack.encode([(gap.start, gap.end, gap.missed) for gap in gaps])


def decode_gaps(partition: int, value: bytes | None) -> list[Gap]:
    return [Gap(partition, *each) for each in _GAPS.decode(value)] if value else []


def decode_broken(value: bytes) -> tuple[int, str]:
    """(start of the first stretch it failed on, why)"""
    return msgspec.msgpack.decode(value, type=tuple[int, str])


def encode_lag(lag: Lag) -> bytes:
    return msgspec.msgpack.encode(astuple(lag))


def decode_lag(value: bytes) -> Lag:
    return Lag(*msgspec.msgpack.decode(value))


def open_sink(address: CassandraAddress) -> CassandraSink:
    link = Link(address, connect)
    bootstrap.prepare(link, address)
    return CassandraSink(link, address.name)
