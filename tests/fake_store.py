"""A store in memory: every delta in one frame, grouped anew for each question. Slow, short, and hard to get wrong."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from fake_documents import FakeDocuments, FakeTableParts
from tallymark.aggregates import columns, distinct, exact, histogram, sketch
from tallymark.aggregates.functions import is_percentile, kept_for
from tallymark.events.tenants import MAIN
from tallymark.meters.model import EVENTS, METRICS, Meter
from tallymark.store import deltas
from tallymark.store.model import (
    Added,
    DeadLetter,
    Gap,
    Lag,
    Ledger,
    LetterSummary,
    LiveMeters,
    RegisteredMeter,
    label_column,
)
from tallymark.store.protocol import TooManyBytes, TooManyRows, UnknownMeter
from tallymark.store.read_plan import Question
from tallymark.store.registered import is_changed
from tallymark.store.selections import Kept, Selection
from tallymark.store.windows import Lineage, Share, ShareChange


class FakeStore:
    def __init__(self) -> None:
        self.tenants: dict[str, dict[str, RegisteredMeter]] = {}
        self.versions = 0
        self.journal: list[tuple[int, pl.DataFrame]] = []
        self.ledgers: dict[int, Ledger] = {}
        self.tenant_ledgers: dict[str, Ledger] = {}
        self.positions: dict[int, int] = {}
        self.lags: list[Lag] = []
        self.letters: dict[tuple[str, str], int] = {}
        """of all tenants; `FakeDeadLetters` counts those of one anew"""
        self.kept: list[DeadLetter] = []
        self.last_dead_ms: dict[tuple[str, str], int] = {}
        self.journal_reads = 0
        self.failure: Exception | None = None
        self.registry = FakeRegistry(self)
        self.registry.add_tenant(MAIN)
        self.snapshots = FakeSnapshots(self)
        self.dead_letters = FakeDeadLetters(self)
        self.heartbeats = FakeHeartbeats()
        self.documents = FakeDocuments()
        self.windows = FakeWindows()
        self.table_parts = FakeTableParts()

    def count(
        self,
        meter: str,
        *rows: tuple[tuple[str, ...], int, Sequence[float | str | None]],
        tenant: str = MAIN,
        late: bool = False,
        dropped: bool = False,
    ) -> None:
        """One batch: (labels, bucket_s, values of its events; None is an event without a value,
        a text one with that property, for distinct counts).

        `late` and `dropped` count them into the set of what came late, or was not stored.
        """
        registered = self.tenants[tenant][meter]
        frame = deltas.from_rows([_row(registered, *row) for row in rows])
        if late:
            frame = frame.with_columns(-pl.col("meter"))
        if dropped:
            frame = frame.with_columns(pl.lit(registered.dropped_set_id, pl.Int32).alias("meter"))
        frame = frame.with_columns(pl.lit(registered.counts_as, frame.schema["version"]).alias("version"))
        self.journal.append((len(self.journal) + 1, frame))

    def break_meter(self, name: str, why: str, *, missed: int = 0, tenant: str = MAIN) -> None:
        known = self.tenants[tenant]
        known[name] = replace(known[name], broken=why, missed=missed)

    def bury(self, letter: DeadLetter) -> None:
        self.kept.append(letter)
        kind = letter.hop, letter.reason
        self.letters[kind] = self.letters.get(kind, 0) + letter.events
        self.last_dead_ms[kind] = letter.at_ms

    def close(self) -> None:
        pass


class FakeRegistry:
    """Of one tenant's meters, unless `add_tenant` made more: those have the built-in ones, and what is put."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store

    def live_meters(self) -> LiveMeters:
        return LiveMeters(self._store.versions, tuple(self.all_meters()))

    def tenants(self) -> list[str]:
        return sorted(self._store.tenants)

    def add_tenant(self, tenant: str) -> None:
        if tenant not in self._store.tenants:
            self._store.tenants[tenant] = {}
            for meter in (EVENTS, METRICS):
                self._add(tenant, meter, now_ms=0)

    def all_meters(self) -> list[RegisteredMeter]:
        return [meter for tenant in self.tenants() for meter in self.meters(tenant)]

    def meters(self, tenant: str) -> list[RegisteredMeter]:
        return list(self._store.tenants.get(tenant, {}).values())

    def meter(self, tenant: str, name: str) -> RegisteredMeter:
        known = self._store.tenants.get(tenant, {})
        if name not in known:
            raise UnknownMeter(name)
        return known[name]

    def put_meter(
        self, tenant: str, meter: Meter, *, now_ms: int, selection: Selection | None = None
    ) -> RegisteredMeter:
        self.add_tenant(tenant)
        before = self._store.tenants[tenant].get(meter.name)
        if before is None or is_changed(before, meter, selection):
            self._add(tenant, meter, now_ms=now_ms, selection=selection)
        return self.meter(tenant, meter.name)

    def select(self, tenant: str, name: str, selection: Selection, *, now_ms: int) -> bool:
        before = self._store.tenants[tenant][name]
        return self.put_meter(tenant, before.meter, now_ms=now_ms, selection=selection).version > before.version

    def delete_meter(self, tenant: str, name: str, *, now_ms: int) -> None:
        del self._store.tenants[tenant][name]

    def resume_meter(self, tenant: str, name: str) -> RegisteredMeter:
        known = self._store.tenants[tenant]
        known[name] = replace(known[name], broken=None)
        return known[name]

    def gaps(self, meter_id: int) -> list[Gap]:
        return [Gap(0, 10, 20, each.missed) for each in self.all_meters() if each.meter_id == meter_id and each.missed]

    def _add(self, tenant: str, meter: Meter, *, now_ms: int, selection: Selection | None = None) -> None:
        known = self._store.tenants[tenant]
        self._store.versions += 1
        version = known[meter.name].version + 1 if meter.name in known else 1
        made = RegisteredMeter(self._store.versions, version, meter, now_ms, tenant=tenant)
        before = known.get(meter.name)
        if meter.keep is not None:
            known_since = before.kept.since_ms if before is not None and before.kept is not None else {}
            wanted = selection or Selection(frozenset(known_since))
            since_ms = {metric: known_since.get(metric, now_ms) for metric in wanted.metrics}
            made = replace(made, kept=Kept(since_ms, now_ms if wanted.every else None, wanted.as_of))
        if before is not None and meter.continues(before.meter):
            known_parts, parts = (kept_for(each.compute, decimals=each.decimals) for each in (before.meter, meter))
            added = dict.fromkeys(parts - known_parts, Added(version, now_ms))
            begun_ms = before.created_ms if before.begun_ms is None else before.begun_ms
            made = replace(made, begun_ms=begun_ms, first_id=before.set_id, added={**before.added, **added})
        known[meter.name] = made


class FakeDeadLetters:
    def __init__(self, store: FakeStore) -> None:
        self._store = store

    def newest(self, *, limit: int = 100) -> list[tuple[int, DeadLetter]]:
        return [*enumerate(self._store.kept, start=1)][::-1][:limit]

    def search(
        self,
        *,
        tenant: str | None,
        hops: Collection[str] = (),
        reasons: Collection[str] = (),
        limit: int = 100,
    ) -> list[LetterSummary]:
        return [
            LetterSummary.of(number, letter)
            for number, letter in self.newest(limit=1_000_000)
            if (tenant is None or letter.tenant == tenant)
            and (not hops or letter.hop in hops)
            and (not reasons or letter.reason in reasons)
        ][:limit]

    def get(self, letter_id: int) -> DeadLetter | None:
        return self._store.kept[letter_id - 1] if 0 < letter_id <= len(self._store.kept) else None

    def counts(self, *, tenant: str | None) -> dict[tuple[str, str], int]:
        if tenant is None:
            return self._store.letters
        own: Counter[tuple[str, str]] = Counter()
        for letter in self._of(tenant):
            own[letter.hop, letter.reason] += letter.events
        return dict(own)

    def counts_by_tenant(self) -> dict[str, dict[tuple[str, str], int]]:
        if not self._store.kept:  # set as a whole by a test
            return {MAIN: self._store.letters} if self._store.letters else {}
        return {tenant: self.counts(tenant=tenant) for tenant in sorted({letter.tenant for letter in self._store.kept})}

    def last_ms(self, *, tenant: str | None) -> dict[tuple[str, str], int]:
        if tenant is None:
            return self._store.last_dead_ms
        return {(letter.hop, letter.reason): letter.at_ms for letter in self._of(tenant)}

    def _of(self, tenant: str) -> list[DeadLetter]:
        return [letter for letter in self._store.kept if letter.tenant == tenant]


class FakeHeartbeats:
    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, dict[str, Any]]] = {}

    def beat(self, role: str, facts: Mapping[str, Any], *, now_ms: int) -> None:
        self._heard[role] = (now_ms, dict(facts))

    def beats(self) -> dict[str, tuple[int, dict[str, Any]]]:
        return self._heard


class FakeSnapshots:
    def __init__(self, store: FakeStore) -> None:
        self._store = store

    @contextmanager
    def take(self) -> Iterator["FakeSnapshot"]:
        if self._store.failure:
            raise self._store.failure
        yield FakeSnapshot(self._store)

    def journal_since(self, sequence: int) -> list[tuple[int, pl.DataFrame]]:
        self._store.journal_reads += 1
        return [entry for entry in self._store.journal if entry[0] > sequence]

    def journal_end(self) -> int:
        return self._store.journal[-1][0] if self._store.journal else 0


class FakeSnapshot:
    def __init__(self, store: FakeStore) -> None:
        self._store = store

    def read(self, question: Question, *, most_rows: int | None = None, most_bytes: int | None = None) -> pl.DataFrame:
        meter, by, step_s = question.meter, question.by, question.step_s
        frame = pl.concat([deltas.empty(), *(frame for _, frame in self._store.journal)])
        frame = frame.filter(pl.col("meter") == question.set_id)
        parts = pl.col("series").str.split("\0")
        frame = frame.with_columns(
            parts.list.get(place).alias(label_column(label)) for place, label in enumerate(meter.labels)
        )
        for label, wanted in question.where.items():
            frame = frame.filter(pl.col(label_column(label)).is_in(list(wanted)))
        frame = frame.filter(pl.col("bucket_s") >= question.start_s, pl.col("bucket_s") < question.end_s)
        keys = [label_column(label) for label in by]
        if step_s is not None:
            frame = frame.with_columns(pl.col("bucket_s") // step_s * step_s)
            keys.append("bucket_s")
        answer = columns.merge(frame, keys)
        if most_rows is not None and answer.height > most_rows:
            raise TooManyRows(most_rows)
        if most_bytes is not None and answer.estimated_size() > most_bytes:
            raise TooManyBytes(most_bytes)
        return answer

    @property
    def journal_end(self) -> int:
        return len(self._store.journal)

    def touched(self, *, after: int) -> dict[int, set[int]] | None:
        return deltas.touched(entry for entry in self._store.journal if entry[0] > after)

    def ledger(self) -> dict[int, Ledger]:
        return self._store.ledgers

    def tenant_ledgers(self) -> dict[str, Ledger]:
        return self._store.tenant_ledgers or {MAIN: sum(self._store.ledgers.values(), Ledger())}

    def applied(self) -> dict[int, int]:
        return dict(self._store.positions)

    def lag(self, *, since_ms: int) -> Lag | None:
        recent = [lag for lag in self._store.lags if lag.at_ms >= since_ms]
        return recent[-1] if recent else None


def _row(
    registered: RegisteredMeter, labels: tuple[str, ...], bucket_s: int, events: Sequence[float | str | None]
) -> tuple[Any, ...]:
    numbers = [event for event in events if event is not None and not isinstance(event, str)]
    decimals = registered.meter.decimals
    total = sum(numbers) if numbers and decimals is None else None
    parts: tuple[int | None, int | None] = (None, None)
    if numbers and decimals is not None:
        parts = exact.split(sum(round(number * 10**decimals) for number in numbers))
    least, most = (min(numbers), max(numbers)) if numbers else (None, None)
    texts = [event for event in events if isinstance(event, str)]
    counted = (len(events), len(numbers), total, *parts, least, most, _sketch(registered.meter, numbers, texts))
    return registered.set_id, "\0".join(labels), bucket_s, *counted


def _sketch(meter: Meter, numbers: Sequence[float], texts: Sequence[str]) -> bytes | None:
    slots: Counter[int] = Counter()
    if any(map(is_percentile, meter.compute)) and numbers:
        slots.update(histogram.slots_of(np.array(numbers, np.float64)).tolist())
    if meter.distinct and texts:
        _, registers, ranks = distinct.count(np.zeros(len(texts), np.int64), distinct.marks_of(pl.Series(texts)))
        slots.update(dict(zip(registers.tolist(), ranks.tolist(), strict=True)))
    return sketch.from_map(slots) if slots else None


class FakeWindows:
    def __init__(self) -> None:
        self.shares: dict[int, Share] = {}
        self.kept: dict[tuple[int, int], bytes] = {}

    def lineages(self, share: int | None = None) -> list[Lineage]:
        found = [each for number, held in self.shares.items() if share in (None, number) for each in held.lineages]
        return sorted(found, key=lambda each: (each.tenant, each.name, each.lineage_id))

    def share(self, share: int) -> Share:
        return self.shares.get(share, Share(0))

    def evaluated(self) -> int | None:
        return min((share.sequence for share in self.shares.values() if share.lineages), default=None)

    def write(self, changes: Sequence[ShareChange]) -> None:
        for change in changes:
            before = self.share(change.share)
            lineages = {each.lineage_id: each for each in (*before.lineages, *change.lineages)}
            left = [each for each in lineages.values() if each.lineage_id not in change.gone]
            self.shares[change.share] = Share(before.sequence if change.sequence is None else change.sequence, left)
            self.kept |= {(each.lineage.lineage_id, each.start_s): each.body for each in change.windows}

    def read(self, lineage: Lineage, start_s: int, end_s: int) -> list[tuple[int, bytes]]:
        return sorted(
            (start, body)
            for (lineage_id, start), body in self.kept.items()
            if lineage_id == lineage.lineage_id and start_s <= start < min(end_s, lineage.next_s)
        )

    def drop(self, lineage: Lineage, *, most: int) -> int | None:
        own = sorted(start for lineage_id, start in self.kept if lineage_id == lineage.lineage_id)
        for start in own[:most]:
            del self.kept[lineage.lineage_id, start]
        return own[most] if len(own) > most else None
