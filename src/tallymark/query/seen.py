"""`/v1/events/seen`: which events came lately, and what they carry, from a sample of the newest log."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tallymark.events import columns, frame
from tallymark.events.moments import rfc3339_ms
from tallymark.events.tenants import MAIN
from tallymark.log.protocol import LogReader
from tallymark.query.newest import Budget, Sample, sampled, since
from tallymark.query.parameters import Given, Pairs, sort_out
from tallymark.query.sources import Sources
from tallymark.query.tenants_api import require_tenant

PATH = "/v1/events/seen"
KEYS = {"minutes": "how far back to look: 1 to 60"}
DEFAULT_MINUTES, MOST_MINUTES = 5, 60
BUDGET = Budget(events=20_000, size=4_000_000, places=16)
# Rows are looked at one by one, about 30 us each.
MOST_ROWS = 5_000
MOST_ROW_BYTES = 16_000_000
MOST_NAMES, MOST_PROPS, MOST_VALUES = 200, 64, 64
MOST_EXAMPLES, MOST_EXAMPLE_LENGTH = 5, 100
MOST_DISTINCT = 1_000


def seen(sources: Sources, tenant: str, pairs: Pairs) -> dict[str, Any]:
    given = sort_out(pairs, allowed=(), question=PATH, keys=tuple(KEYS))
    minutes = minutes_of(given)
    sample = newest(sources, minutes, BUDGET)
    kinds: dict[str, _Kind] = {}
    found = unreadable = 0
    for row in _rows(sample, tenant):
        if isinstance(row, int):
            unreadable += row
            continue
        found += 1
        kinds.setdefault(row["event"], _Kind()).add(row)
    if not found:
        require_tenant(sources.store.registry, tenant)
    ranked = sorted(kinds.items(), key=lambda each: (-each[1].count, each[0]))
    return {
        "minutes": minutes,
        "sampled": found,
        "whole": sample.is_whole and sample.events <= MOST_ROWS,
        **({"unreadable": unreadable} if unreadable else {}),
        "events": [{"event": name, **kind.to_json()} for name, kind in ranked[:MOST_NAMES]],
        **({"left_out": len(ranked) - MOST_NAMES} if len(ranked) > MOST_NAMES else {}),
    }


def minutes_of(given: Given) -> int:
    """The filter `minutes`, which is a whole number."""
    values = {"minutes": given.where.get("minutes", ())}
    return Given(values, {}).whole("minutes", default=DEFAULT_MINUTES, most=MOST_MINUTES)


def newest(sources: Sources, minutes: int, budget: Budget) -> Sample:
    """A sample of what was appended in the last minutes, of all tenants."""

    def look(log: LogReader) -> Sample:
        return sampled(log, since(log, sources.clock_ms() - minutes * 60_000), budget)

    return sources.newest.ask(look, otherwise=Sample())


def own_rows(batch: pa.RecordBatch, tenant: str) -> pa.RecordBatch:
    """Those of one tenant; an event that names none is `main`'s."""
    column: Any = batch.column("tenant")
    names = [name or MAIN for name in column.dictionary.to_pylist()]
    if set(names) == {tenant} and not column.null_count:
        return batch
    wanted = np.array([name == tenant for name in (*names, MAIN)])
    return batch.filter(pa.array(wanted[column.indices.fill_null(len(names)).to_numpy()]))


def _rows(sample: Sample, tenant: str) -> Iterator[dict[str, Any] | int]:
    """The tenant's events, evenly from all records; of a record that does not decode, how many it holds."""
    for record in sample.records:
        try:
            batch = own_rows(frame.decode(record.payload), tenant)
            rows = list(columns.rows(_thinned(batch, sample)))
        except (ValueError, TypeError, KeyError, RecursionError):  # a FrameError is a ValueError
            yield record.events
        else:
            yield from rows


def _thinned(batch: pa.RecordBatch, sample: Sample) -> pa.RecordBatch:
    share = min(1.0, MOST_ROWS / max(sample.events, 1))
    most_bytes = MOST_ROW_BYTES // max(len(sample.records), 1)
    rows = min(batch.num_rows, max(1, int(batch.num_rows * share)))
    if batch.num_rows and batch.nbytes * rows // batch.num_rows > most_bytes:
        rows = max(1, most_bytes * batch.num_rows // batch.nbytes)
    if rows >= batch.num_rows:
        return batch
    return batch.take(np.arange(rows) * batch.num_rows // rows)


@dataclass(slots=True)
class _Property:
    count: int = 0
    types: set[str] = field(default_factory=set)
    values: dict[Any, None] = field(default_factory=dict)

    def add(self, value: Any) -> None:
        self.count += 1
        self.types.add(_type(value))
        if len(self.values) < MOST_DISTINCT:
            self.values[value[:MOST_EXAMPLE_LENGTH] if isinstance(value, str) else value] = None


@dataclass(slots=True)
class _Kind:
    """What was seen of the events of one name."""

    count: int = 0
    last_ms: int = 0
    valued: int = 0
    example: float | None = None
    values: Counter[str] = field(default_factory=Counter)
    props: dict[str, _Property] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> None:
        self.count += 1
        self.last_ms = max(self.last_ms, row["received"])
        if row["value"] is not None:
            self.valued += 1
            self.example = row["value"] if self.example is None else self.example
        for name in row["values"] or ():
            if name in self.values or len(self.values) < MOST_VALUES:
                self.values[name] += 1
        for name, value in row["props"].items():
            if name in self.props or len(self.props) < MOST_PROPS:
                self.props.setdefault(name, _Property()).add(value)

    def to_json(self) -> dict[str, Any]:
        value = {"share": _share(self.valued, self.count), "example": self.example} if self.valued else None
        ranked = sorted(self.props.items(), key=lambda each: (-each[1].count, each[0]))
        return {
            "count": self.count,
            "last": rfc3339_ms(self.last_ms),
            "value": value,
            "values": sorted(self.values),
            "props": [
                {
                    "name": name,
                    "types": sorted(each.types),
                    "share": _share(each.count, self.count),
                    "distinct": len(each.values),
                    "examples": list(each.values)[:MOST_EXAMPLES],
                }
                for name, each in ranked
            ],
        }


def _share(count: int, of: int) -> float:
    return round(count / of, 4)


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "text"
