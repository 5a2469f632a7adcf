"""`/v1/tail`: events as they pass, of one tenant, filtered and sampled; one follower of the log for all who listen.

It never tries to keep up with the log. About twice a second it looks at what was appended since the last time: all of
it if that is little, else a few places of it. So it costs the same whether a thousand or a million events pass.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from tallymark.events import columns, frame
from tallymark.events.model import NAME, NAME_RULE
from tallymark.events.moments import rfc3339_ms
from tallymark.events.tenants import MAIN
from tallymark.http import Problem
from tallymark.log.protocol import LogReader, Positions, Record
from tallymark.meters.compile import to_polars
from tallymark.meters.expression import ExpressionError, parse
from tallymark.pipeline.counting.decode import Decoded, decode
from tallymark.pipeline.counting.needs import Needs
from tallymark.pipeline.counting.properties import PropertyColumns
from tallymark.query.newest import Budget, Sample, sampled
from tallymark.query.parameters import Given, Pairs, sort_out
from tallymark.query.response import encode
from tallymark.query.routes import Request
from tallymark.query.sources import Sources
from tallymark.query.streams import News, Opening, Source, message
from tallymark.query.tenants_api import require_tenant

PATH = "/v1/tail"
KEYS = {
    "event": "only events of this name; repeat for `or`",
    "where": "only events that this expression keeps, in the language of a meter's `where`",
    "rate": "at most so many events a second: 1 to 200, 20 unless given",
}
INTERVAL_S = 0.5
# The follower forgets where it was after a time without listeners: what passed meanwhile is of no interest.
STALE_S = 3.0
BUDGET = Budget(events=10_000, size=2_000_000, places=8)
"""of one look, whatever passed"""
DEFAULT_RATE, MOST_RATE = 20, 200
MOST_NAMES = 64
MOST_VALUES = 64
MOST_MESSAGE_BYTES = 200_000


class Wanted(NamedTuple):
    """What one listens to."""

    tenant: str
    events: tuple[str, ...] = ()
    where: str = ""
    rate: int = DEFAULT_RATE


class Passed(NamedTuple):
    """What was appended since the last look."""

    sample: Sample
    events: int
    """as the log's positions have it, else as the sample tells"""
    is_whole: bool
    """whether the sample is all of it"""


_NOTHING = Passed(Sample(), 0, True)


@dataclass(slots=True)
class _Allowance:
    """How many events a topic may show now: what its rate gives in one interval, and more only as time passes."""

    left: float = math.inf
    at_s: float = 0.0

    def take(self, wanted: int, *, rate: int, now_s: float) -> int:
        self.left = min(self.left + rate * (now_s - self.at_s), max(1.0, rate * INTERVAL_S))
        self.at_s = now_s
        taken = min(wanted, int(self.left))
        self.left -= taken
        return taken


class Tail:
    """Follows the end of the log."""

    def __init__(self, sources: Sources, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sources, self._clock = sources, clock
        self._source: Source[Wanted] = Source("tail", self.news, interval_s=INTERVAL_S)
        self._log = ""
        self._at: Mapping[int, Positions] = {}
        self._looked_s = float("-inf")
        self._allowances: dict[Wanted, _Allowance] = {}
        self._chance = random.Random()

    def opening(self, request: Request) -> Opening:
        wanted = understood(request.tenant, request.pairs)
        require_tenant(self._sources.store.registry, wanted.tenant)
        if self._clock() - self._looked_s > STALE_S:
            # Now, and not with the first look, so that nothing is missed that is sent after the first message.
            self._sources.newest.ask(self._begin, otherwise=None)
        filters = {"event": list(wanted.events), "where": wanted.where or None, "rate": wanted.rate}
        return Opening(self._source, wanted, message("start", {"tenant": wanted.tenant, **filters}))

    def news(self, topics: Sequence[Wanted]) -> dict[Wanted, News[Wanted]]:
        """Of everything that was appended since the last look, a message for each."""
        passed = self._sources.newest.ask(self._look, otherwise=_NOTHING)
        if not passed.events:
            return {}
        self._allowances = {wanted: self._allowances.get(wanted) or _Allowance() for wanted in topics}
        events = _Events(passed, {name for wanted in topics for name in _properties(wanted)})
        return {wanted: News(self._told(events, wanted)) for wanted in topics}

    def _begin(self, log: LogReader) -> None:
        self._log, self._at, self._looked_s = log.identity, log.positions(), self._clock()

    def _look(self, log: LogReader) -> Passed:
        before, now = self._at, log.positions()
        is_other = log.identity != self._log or any(
            now[partition].synced < at.synced for partition, at in before.items() if partition in now
        )
        if is_other or not before:
            self._begin(log)
            return _NOTHING
        ranges = {
            partition: (max(before[partition].synced, at.first) if partition in before else at.first, at.synced)
            for partition, at in now.items()
        }
        sample = sampled(log, ranges, BUDGET)
        self._at, self._looked_s = now, self._clock()
        counted = [_appended(before.get(partition), at) for partition, at in now.items()]
        known = [each for each in counted if each is not None]
        events = sum(known) if len(known) == len(counted) else sample.passed
        return Passed(sample, events, sample.is_whole)

    def _told(self, events: "_Events", wanted: Wanted) -> bytes:
        own = events.of_tenant(wanted.tenant)
        matched = own & events.matching(wanted)
        places = np.flatnonzero(matched)
        most = self._allowances[wanted].take(len(places), rate=wanted.rate, now_s=self._clock())
        chosen = self._chance.sample(places.tolist(), most)
        shown = _fitting(events.shown(sorted(chosen)))
        return message(
            "events",
            {
                "events": shown,
                "passed": events.in_all(int(own.sum())),
                "matched": events.in_all(len(places)),
                "shown": len(shown),
                **({} if events.passed.is_whole else {"sampled": True}),
                **({"unreadable": events.unreadable} if events.unreadable and wanted.tenant == MAIN else {}),
            },
        )


def understood(tenant: str, pairs: Pairs) -> Wanted:
    """What a request asks for, or what is wrong with it."""
    given = sort_out(pairs, allowed=(), question=PATH, keys=tuple(KEYS))
    single = Given({name: given.where.get(name, ()) for name in ("where", "rate")}, {})
    names = given.where.get("event", ())
    for name in names:
        if not NAME.fullmatch(name):
            detail = f"event = {name[:60]!r} is not the name of an event: {NAME_RULE}"
            raise Problem(400, "bad_event", detail, parameter="event")
    if len(names) > MOST_NAMES:
        detail = f"{len(names)} names of events; at most {MOST_NAMES} in one tail"
        raise Problem(400, "over_limit", detail, parameter="event", limit=MOST_NAMES, actual=len(names))
    rate = single.whole("rate", default=DEFAULT_RATE, most=MOST_RATE)
    return Wanted(tenant, tuple(sorted(names)), _where(single.one("where")), rate)


def _where(text: str | None) -> str:
    if text is None:
        return ""
    try:
        return str(parse(text))
    except ExpressionError as error:
        flaw = error.flaws[0]
        raise Problem(
            400, flaw.code, flaw.detail, parameter="where", position=error.position, excerpt=flaw.excerpt
        ) from None


def _properties(wanted: Wanted) -> tuple[str, ...]:
    return _parsed(wanted.where).properties() if wanted.where else ()


_parsed = lru_cache(maxsize=1_000)(parse)


def _appended(before: Positions | None, now: Positions) -> int | None:
    """Events since then; None if the log cannot tell."""
    if now.events is None:
        return None
    return now.events - (before.events or 0 if before is not None else 0)


@dataclass
class _Events:
    """The events of one look: as columns to choose from, and one by one to show."""

    passed: Passed
    properties: set[str]
    """those that some filter looks at"""
    _batches: dict[int, pa.RecordBatch] = field(default_factory=dict)

    @cached_property
    def _decoded(self) -> Decoded:
        needs = Needs.of_every_event(self.properties)
        try:
            return decode(self.passed.sample.records, needs=needs)
        except frame.UnknownFrameVersion:
            self.passed.sample.records = [each for each in self.passed.sample.records if _is_known(each)]
            return decode(self.passed.sample.records, needs=needs)

    @cached_property
    def _records(self) -> list[Record]:
        dead = {(letter.partition, letter.offset) for letter in self._decoded.dead}
        return [each for each in self.passed.sample.records if (each.partition, each.offset) not in dead]

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        """Where the rows of each record end."""
        return np.cumsum([record.events for record in self._records], dtype=np.int64)

    @property
    def unreadable(self) -> int:
        return self.passed.sample.events - self._decoded.table.height

    def in_all(self, rows: int) -> int:
        """So many of the sample, for all that passed."""
        read = self.passed.sample.events
        return rows if self.passed.is_whole or not read else -(-rows * self.passed.events // read)

    def of_tenant(self, tenant: str) -> npt.NDArray[np.bool_]:
        events = self._decoded
        if tenant not in events.tenants:
            return np.zeros(events.table.height, np.bool_)
        if events.owner is None:
            return np.ones(events.table.height, np.bool_)
        return np.equal(events.owner, events.tenants.index(tenant))

    def matching(self, wanted: Wanted) -> npt.NDArray[np.bool_]:
        if self._decoded.table.is_empty():  # it may then lack the columns of properties
            return np.zeros(0, np.bool_)
        conditions = [pl.lit(True)]
        if wanted.events:
            conditions.append(pl.col("event").is_in(list(wanted.events)))
        if wanted.where:
            conditions.append(to_polars(_parsed(wanted.where), PropertyColumns()))
        table = self._decoded.table
        found = table.select(pl.all_horizontal(conditions).fill_null(False).alias("matched")).to_series()
        matched: npt.NDArray[np.bool_] = np.broadcast_to(found.to_numpy(), table.height)
        return matched

    def shown(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """These events with all that they carry: only their records are decoded whole."""
        found: list[dict[str, Any]] = []
        records = np.searchsorted(self._ends, rows, side="right")
        for place in np.unique(records).tolist():
            record = self._records[place]
            first = int(self._ends[place]) - record.events
            own = [row - first for row, of in zip(rows, records.tolist(), strict=True) if of == place]
            if place not in self._batches:
                self._batches[place] = frame.decode(record.payload)
            found += map(_event, columns.rows(self._batches[place].take(np.array(own))))
        return sorted(found, key=lambda event: event["received"])


def _is_known(record: Record) -> bool:
    try:
        frame.decode(record.payload, only=("id",))
    except frame.UnknownFrameVersion:
        return False
    except frame.FrameError:
        return True
    return True


def _event(row: dict[str, Any]) -> dict[str, Any]:
    event = {
        "event": row["event"],
        "id": row["id"],
        "time": rfc3339_ms(row["time"]),
        "received": rfc3339_ms(row["received"]),
    }
    if row["value"] is not None:
        event["value"] = row["value"]
    if row["values"]:
        event["values"] = dict(list(row["values"].items())[:MOST_VALUES])
        if len(row["values"]) > MOST_VALUES:
            event["left_out_values"] = len(row["values"]) - MOST_VALUES
    return {**event, "props": row["props"]}


def _fitting(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many as a message may hold: what a listener does not read is kept for a while."""
    size = 0
    for place, event in enumerate(events):
        size += len(encode(event))
        if size > MOST_MESSAGE_BYTES:
            return events[: max(1, place)]
    return events
