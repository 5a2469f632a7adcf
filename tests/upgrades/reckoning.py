"""What the story must come to, reckoned from its events in plain Python, so that a fixture is known to be right.

Shares nothing with the product: no columns, no merging, no codec.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from tallymark.store.documents import Kind
from upgrades.story import BUILT_IN, LONG_AGO_MS, MAIN, Definition, Event

LATE_MS = 3_600_000
GARBAGE = "undecodable"


LATE = "late"
"""for what of a meter's events is counted apart"""


class Measured(NamedTuple):
    """What an event adds."""

    number: float | None
    """None for one without"""
    computed: frozenset[str]
    """by the version that counted it"""
    distinct: str
    """what it is told apart by"""


class Fresh(NamedTuple):
    """An event that was met for the first time."""

    tenant: str
    event: Event
    received_ms: int


@dataclass
class Version:
    """One version of a meter."""

    definition: Definition
    number: int
    tenant: str = MAIN
    is_broken: bool = False
    broken_at: dict[int, int] = field(default_factory=dict)
    """partition -> where it failed"""
    live_from: dict[int, int] = field(default_factory=dict)
    gaps: dict[int, list[list[int]]] = field(default_factory=dict)
    """partition -> [start, end, missed]"""
    measured: "Points" = field(default_factory=lambda: defaultdict(list))
    """shared with the version before if they count the same"""
    measured_late: "Points" = field(default_factory=lambda: defaultdict(list))
    admitted: dict[str, set[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(set))
    """of those on time and of those that are late"""

    @property
    def computes(self) -> frozenset[str]:
        return frozenset(self.definition.compute)

    def counts(self, fresh: Fresh) -> bool:
        return fresh.tenant == self.tenant and self._has_name_of(fresh.event)

    def _has_name_of(self, event: Event) -> bool:
        return not self.definition.events or event["event"] in self.definition.events

    def measure(self, batch: Sequence[Fresh]) -> None:
        """All that one batch brings: the order within it is that of the series."""
        kept = [fresh for fresh in batch if self.counts(fresh) and self.definition.keeps(fresh.event)]
        found = sorted((each for fresh in kept for each in self._of(fresh)), key=lambda each: each[:2])
        for kind, labels, bucket_s, measured in found:
            points = self.measured_late if kind == LATE else self.measured
            points[self._admitted(kind, labels), bucket_s].append(measured)

    def _of(self, fresh: Fresh) -> Iterator[tuple[str, tuple[str, ...], int, Measured]]:
        event, mapping, grain_s = fresh.event, self.definition.mapping, self.definition.grain_s
        bucket_s = event["time"] // (1000 * grain_s) * grain_s
        by = mapping.get("by", ())
        labels = tuple(event["event"] if name == "event" else str(event["props"].get(name, "")) for name in by)
        is_late = "late" in mapping and fresh.received_ms - event["time"] > LATE_MS
        kind, told_by = LATE if is_late else "", str(event["props"].get(mapping.get("distinct"), ""))
        if "each" in mapping:
            for metric, number in event["values"].items():
                yield kind, (*labels, metric), bucket_s, Measured(number, self.computes, told_by)
        else:
            number = event["props"].get(mapping["value"]) if "value" in mapping else event.get("value")
            if "weights" in mapping:
                number = mapping["weights"][event["event"]]
            yield kind, labels, bucket_s, Measured(number, self.computes, told_by)

    def _admitted(self, kind: str, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Under which labels it counts."""
        admitted = self.admitted[kind]
        if labels not in admitted and len(admitted) == self.definition.mapping.get("max_series"):
            return tuple("__other__" for _ in labels)
        admitted.add(labels)
        return labels

    def miss(self, partition: int, start: int, end: int, missed: int) -> None:
        """A gap goes on from where the meter failed, also past a record that nobody counted."""
        gaps = self.gaps.setdefault(partition, [])
        if gaps and (gaps[-1][1] == start or gaps[-1][1] > self.broken_at.get(partition, start)):
            gaps[-1][1:] = [end, gaps[-1][2] + missed]
        else:
            gaps.append([start, end, missed])


Points = dict[tuple[tuple[str, ...], int], list[Measured]]
"""(labels, bucket) -> of each event"""


@dataclass
class _Record:
    events: Sequence[Event]
    received_ms: int
    garbage: int = 0
    """events of a record that does not decode"""
    tenant: str = MAIN


class Reckoning:
    """See `story.Teller`."""

    def __init__(self) -> None:
        self.versions: dict[str, Version] = {each.name: Version(each, 1) for each in BUILT_IN}
        """the newest of each meter that is not deleted, by name; those of other tenants by `tenant/name`"""
        self.ledger: dict[int, Counter[str]] = defaultdict(Counter)
        self.tenants: dict[str, Counter[str]] = defaultdict(Counter)
        """the same by tenant"""
        self.letters: Counter[tuple[str, str]] = Counter()
        """(hop, reason) -> events"""
        self.applied: dict[int, int] = {}
        self.documents: dict[tuple[str, str], str] = {}
        self.tables: dict[str, list[list[str]]] = {}
        """name -> of each row its titles, the newest first"""
        self.windows: dict[str, dict[int, bytes]] = {}
        self._log: dict[int, list[_Record]] = defaultdict(list)
        self._refused: list[str] = []
        self._seen: set[tuple[int, str, str, str]] = set()

    def put_meter(self, definition: Definition, *, now_ms: int, tenant: str = MAIN) -> None:
        for each in BUILT_IN:
            self.versions.setdefault(_key(tenant, each.name), Version(each, 1, tenant))
        key = _key(tenant, definition.name)
        known = self.versions.get(key)
        version = self.versions[key] = Version(definition, known.number + 1 if known else 1, tenant)
        if known and _all_but_compute(known.definition) == _all_but_compute(definition):
            version.measured = known.measured

    def delete_meter(self, name: str, *, now_ms: int) -> None:
        del self.versions[name]

    def resume_meter(self, name: str) -> None:
        self.versions[name].is_broken = False
        self.versions[name].broken_at.clear()

    def append(self, partition: int, received_ms: int, events: Sequence[Event], *, tenant: str = MAIN) -> None:
        self._log[partition].append(_Record(events, received_ms, tenant=tenant))

    def append_garbage(self, partition: int, events: int) -> None:
        self._log[partition].append(_Record((), 0, garbage=events))

    def refuse(self, received_ms: int, events: Mapping[str, Event], *, tenant: str = MAIN) -> None:
        self._refused += events

    def take_in_letters(self) -> None:
        self.letters.update(("collector", code) for code in self._refused)
        self._refused.clear()

    def apply(self, *, now_ms: int, breaks: Mapping[str, int] | None = None) -> None:
        breaks = breaks or {}
        broken_before = {name for name, version in self.versions.items() if version.is_broken}
        counted: dict[str, list[Fresh]] = defaultdict(list)
        for partition, records in sorted(self._log.items()):
            start, end = self.applied.get(partition, 0), len(records)
            if start == end:
                continue
            stopped = broken_before | {name for name, where in breaks.items() if where == partition}
            fresh = [
                Fresh(record.tenant, event, record.received_ms)
                for record in records[start:end]
                for event in self._fresh(partition, record)
            ]
            for name, version in self.versions.items():
                if name in stopped:
                    if name not in broken_before:
                        version.broken_at[partition] = start
                    version.miss(partition, start, end, sum(map(version.counts, fresh)))
                else:
                    version.live_from.setdefault(partition, start)
                    counted[name] += fresh
            for each in fresh:  # the meter `events` counts every event
                self._note(partition, each.tenant, counted=1)
            self.applied[partition] = end
        for name, batch in counted.items():
            self.versions[name].measure(batch)
        for name in breaks:
            self.versions[name].is_broken = True

    def bury(self, partition: int, *, now_ms: int) -> None:
        record = self._log[partition][self.applied[partition]]
        self.applied[partition] += 1
        self._die(partition, "kills_its_task", len(record.events))

    def fold(self, *, most_points: int = 0, slices: int | None = None) -> None:
        """Changes no answer."""

    def roll(self, *, now_ms: int, slices: int | None = None, of_hours: bool = True) -> None:
        """Changes no answer."""

    def prune(self, *, now_ms: int) -> None:
        """Changes no answer."""

    def save(self, kind: Kind, name: str, body: str, *, now_ms: int) -> None:
        self.documents[kind, name] = body

    def put_table(self, name: str, rows: Sequence[Event], *, key: str, now_ms: int) -> None:
        before = self.tables.get(name, [[] for _ in rows])
        newest = sorted(rows, key=lambda row: str(row[key]))
        self.tables[name] = [[row["title"], *titles] for row, titles in zip(newest, before, strict=True)]

    def store_windows(self, query: str, windows: Mapping[int, bytes]) -> None:
        self.windows[query] = dict(windows)

    def beat(self, role: str, *, now_ms: int) -> None:
        """Changes no answer."""

    def read(self, question: Mapping[str, Any]) -> list[list[Any]]:
        """The rows of `answers.read`."""
        version = self.versions[question["meter"]]
        groups: dict[tuple[Any, ...], list[Measured]] = defaultdict(list)
        if not question["by"] and question["step_s"] is None:
            groups[()] = []
        for key, numbers in self._asked(version, question):
            groups[key] += numbers
        return [[*key, *_aggregates(numbers, version.definition)] for key, numbers in sorted(groups.items())]

    def _asked(self, version: Version, question: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], list[Measured]]]:
        start_s, end_s, step_s = (question[name] for name in ("start_s", "end_s", "step_s"))
        measured = version.measured_late if question.get("late") else version.measured
        for (values, minute_s), numbers in measured.items():
            labels = dict(zip(version.definition.labels, values, strict=True))
            is_in_range = (start_s is None or minute_s >= start_s) and (end_s is None or minute_s < end_s)
            if is_in_range and all(labels[name] in wanted for name, wanted in question["where"].items()):
                bucket = (minute_s // step_s * step_s,) if step_s else ()
                yield (*(labels[name] for name in question["by"]), *bucket), numbers

    def _fresh(self, partition: int, record: _Record) -> Iterator[Event]:
        if record.garbage:
            self._die(partition, GARBAGE, record.garbage)
        for event in record.events:
            note = partial(self._note, partition, record.tenant)
            note(accepted=1)
            key = (partition, record.tenant, event["event"], event["id"])
            is_old = "resent" in event and record.received_ms - event["resent"] >= LONG_AGO_MS
            if key in self._seen:
                note(duplicate=1)
            elif is_old:
                note(aside=1)
                self.letters["pipeline", "maybe_duplicate"] += 1
            else:
                note(late=event["time"] < record.received_ms - LATE_MS)
                yield event
            self._seen.add(key)

    def _note(self, partition: int, tenant: str, **terms: int) -> None:
        self.ledger[partition].update(terms)
        self.tenants[tenant].update(terms)

    def _die(self, partition: int, reason: str, events: int) -> None:
        self._note(partition, MAIN, accepted=events, dead=events)
        self.letters["pipeline", reason] += events


def _key(tenant: str, name: str) -> str:
    return name if tenant == MAIN else f"{tenant}/{name}"


def _all_but_compute(definition: Definition) -> dict[str, Any]:
    return {name: value for name, value in definition.mapping.items() if name != "compute"}


def _aggregates(measured: Sequence[Measured], definition: Definition) -> list[Any]:
    """n, n_value, sum, exact, min, max; null what the meter does not compute, or did not when it counted.

    Then, exactly, what the product only approximates.
    """
    compute, decimals = set(definition.compute), definition.mapping.get("decimals")

    def values(*functions: str) -> list[float]:
        if not compute & set(functions):
            return []
        return [each.number for each in measured if each.number is not None and each.computed & set(functions)]

    def approximated(function: str) -> float | None:
        if function == "distinct":
            return len({each.distinct for each in measured} - {""})
        found = sorted(values(function))
        # The nearest rank: the least number that so many percent of all are not above.
        return found[math.ceil(float(function[1:]) / 100 * len(found)) - 1] if found else None

    total = exact = None
    if summed := values("sum", "avg"):
        if decimals is None:
            total = sum(summed)
        else:
            exact = int(sum(Decimal(str(value)) for value in summed).scaleb(decimals))
    return [
        len(measured),
        len(values("sum", "min", "max", "avg")),
        total,
        exact,
        min(values("min"), default=None),
        max(values("max"), default=None),
        *map(approximated, definition.approximate),
    ]
