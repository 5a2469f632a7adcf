"""A saved query as the meters there are answer it: which series, which numbers, and where its windows lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from hashlib import blake2b
from zoneinfo import ZoneInfo

from tallymark.aggregates.functions import can_ask
from tallymark.evaluation import definition
from tallymark.evaluation.lengths import DAY_S
from tallymark.evaluation.steps import Days, Fixed
from tallymark.meters import language
from tallymark.meters.language import QueryError
from tallymark.store.documents import Document
from tallymark.store.model import RegisteredMeter
from tallymark.suggest import suggest

# Windows that Cassandra keeps in one partition.
GROUPED = 128


class NoPlan(Exception):
    """The query cannot be evaluated now; the text says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that its windows depend on."""

    tenant: str
    name: str
    digest: str
    """another one means other numbers"""
    meter: RegisteredMeter
    where: Mapping[str, Sequence[str]]
    by: tuple[str, ...]
    functions: tuple[str, ...]
    most: int | None
    """of the series of a window: only the largest are kept"""
    step: Fixed | Days
    buckets: int
    """steps of a window"""
    since_s: int = 0
    """when it was saved, or its meter's version began: windows from then on are stored"""

    @property
    def labels(self) -> frozenset[str]:
        """Those that tell its rows from others."""
        return frozenset((*self.where, *self.by))

    @property
    def group_s(self) -> int:
        return GROUPED * (self.step.seconds if isinstance(self.step, Fixed) else self.step.count * DAY_S)

    def starts(self, first_s: int, end_s: int) -> tuple[int, ...]:
        """Of the windows that start at `first_s`, which is one, or later, but before `end_s`."""
        if isinstance(self.step, Fixed):
            return tuple(range(first_s, end_s, self.step.seconds))
        return tuple(each for each in self.step.edges(first_s, end_s).seconds[:-1] if first_s <= each < end_s)

    def end(self, start_s: int) -> int:
        """Of the window that starts there."""
        if isinstance(self.step, Fixed):
            return start_s + self.buckets * self.step.seconds
        # A day may have 25 hours.
        return self.step.edges(start_s, start_s + self.buckets * (self.step.count * DAY_S + 7200)).seconds[self.buckets]

    def following(self, start_s: int) -> int:
        """The start after this one."""
        return self.step.edges(start_s, start_s + 1).end_s

    def at(self, moment_s: int) -> int:
        """The start of the last window that starts at this moment or before."""
        return self.step.edges(moment_s, moment_s + 1).start_s

    def covering(self, bucket_s: int, first_s: int, end_s: int) -> list[int]:
        """Starts from `first_s`, before `end_s`, of the windows in which this bucket lies."""
        last = self.at(bucket_s)
        if isinstance(self.step, Fixed):
            earliest = last - (self.buckets - 1) * self.step.seconds
        else:
            earliest = self.at(last - (self.buckets - 1) * self.step.count * DAY_S)
        found = self.starts(max(first_s, earliest), min(end_s, last + 1)) if earliest < end_s else ()
        return [start_s for start_s in found if self.end(start_s) > bucket_s]


def plan(document: Document, meters: Sequence[RegisteredMeter]) -> Plan:
    """Of a document of the kind `query`. Raises NoPlan if a meter, a label or a function is gone."""
    by_name = {each.meter.name: each for each in meters}
    try:
        given = definition.decode(document.body)
        query, zone = language.parse(given.q), zone_of(given.tz)
    except (ValueError, KeyError, OSError) as error:
        # Checked when it was saved; a machine may lack its zone, and one such query must not stop all the others.
        raise NoPlan(f"it cannot be read here: {error}; save it again") from None
    name = query.selection.name
    if query.selection.meter is None and name not in by_name:
        # Saved queries name a metric with its meter: this was a meter, and never becomes the metric of another.
        raise NoPlan(f"there is no meter {name!r}{suggest(name, by_name, what='there are')}")
    try:
        _, selected = definition.resolve(query, [each.meter for each in meters])
        where = language.filters(query, selected)
    except QueryError as error:
        raise NoPlan(error.detail) from None
    registered = by_name[selected.meter.name]
    meter = registered.meter
    functions = query.compute or meter.compute
    for function in functions:
        if not can_ask(meter.compute, meter.decimals, function):
            raise NoPlan(f"the meter {meter.name} no longer computes {function}")
    assert query.window_s is not None
    every_s = query.every_s or query.window_s
    if every_s % meter.grain_s:
        raise NoPlan(
            f"windows of {query.every or query.window} are no multiple of the meter's grain, {meter.grain_s} s"
        )
    return Plan(
        document.tenant,
        document.name,
        _digest(given, registered, functions),
        registered,
        where,
        query.by,
        functions,
        query.limit,
        Days(every_s // DAY_S, zone) if every_s % DAY_S == 0 and zone is not UTC else Fixed(every_s),
        query.window_s // every_s,
        max(document.changed_ms, registered.created_ms) // 1000,
    )


def _digest(given: definition.Definition, registered: RegisteredMeter, functions: Sequence[str]) -> str:
    # Not the version: one that stores other metrics changes nothing for this query. But a function that was given up
    # for a while is unknown of all that came before it was computed again.
    added = tuple(since.version for name in functions if (since := registered.added_for(name)) is not None)
    asked = (given.q, given.tz, registered.set_id, registered.meter.compute, *([added] if added else []))
    return blake2b(repr(asked).encode(), digest_size=12).hexdigest()


def zone_of(name: str | None) -> tzinfo:
    """Of a name that was checked when it was saved."""
    return UTC if name in (None, "UTC", "Z") else ZoneInfo(name)
