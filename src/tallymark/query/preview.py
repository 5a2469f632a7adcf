"""`/v1/meters/preview`: what a meter would have counted of the newest events. Nothing is saved.

It counts with the pipeline's own functions, so that the numbers are those that the meter will have. This is the one
place where a stage uses another: `pipeline.counting` is pure (frames in, numbers out) and knows no Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tallymark.aggregates import columns
from tallymark.evaluation.values import NOTHING, largest, values
from tallymark.events import frame
from tallymark.http import Problem
from tallymark.log.protocol import Record
from tallymark.meters import Meter, MeterError, from_mapping
from tallymark.pipeline.counting.count import MeterFailed, expand, only_fresh
from tallymark.pipeline.counting.decode import Decoded, slices
from tallymark.pipeline.counting.ids import Ids
from tallymark.pipeline.counting.needs import needs
from tallymark.pipeline.counting.split import by_tenant, per_tenant
from tallymark.query.meters_api import ill_defined, read_definition
from tallymark.query.newest import Budget
from tallymark.query.parameters import Pairs, sort_out
from tallymark.query.seen import KEYS, minutes_of, newest
from tallymark.query.sources import Sources
from tallymark.store import deltas
from tallymark.store.model import RegisteredMeter

PATH = "/v1/meters/preview"
BUDGET = Budget(events=50_000, size=8_000_000, places=16)
MOST_ITEMS = 10
UNNAMED = "preview"


def preview(sources: Sources, tenant: str, pairs: Pairs, body: bytes) -> dict[str, Any]:
    minutes = minutes_of(sort_out(pairs, allowed=(), question=PATH, keys=tuple(KEYS)))
    registered = RegisteredMeter(1, 1, _meter(body), sources.clock_ms(), tenant=tenant)
    sample = newest(sources, minutes, BUDGET)
    counted = _Counted()
    for events in _slices(sample.records, registered):
        try:
            counted.add(events, registered)
        except MeterFailed as failure:
            raise Problem(400, "cannot_count", f"this meter cannot count the events there are: {failure}") from None
    return {
        "minutes": minutes,
        "sampled": counted.sampled,
        "whole": sample.is_whole,
        "events": counted.matched,
        "duplicates": counted.duplicates,
        **({"unreadable": counted.unreadable} if counted.unreadable else {}),
        **_numbers(deltas.merge(counted.parts), registered),
    }


def _meter(body: bytes) -> Meter:
    """The definition; one without a name yet can be previewed too."""
    mapping = read_definition(body)
    if isinstance(mapping, Mapping) and "name" not in mapping:
        mapping = {"name": UNNAMED, **mapping}
    try:
        return from_mapping(mapping)
    except MeterError as error:
        raise ill_defined(error) from None


def _slices(records: Sequence[Record], registered: RegisteredMeter) -> Iterator[Decoded]:
    wanted = needs([registered])
    try:
        yield from slices(records, needs=wanted)
    except frame.UnknownFrameVersion as error:
        detail = f"events were written by a newer version; upgrade the query service: {error}"
        raise Problem(503, "log_unreachable", detail) from None


@dataclass
class _Counted:
    """What the slices add up to."""

    parts: list[pl.DataFrame] = field(default_factory=list)
    sampled: int = 0
    matched: int = 0
    duplicates: int = 0
    unreadable: int = 0
    ids: set[tuple[int, int]] = field(default_factory=set)

    def add(self, events: Decoded, registered: RegisteredMeter) -> None:
        self.unreadable += sum(letter.events for letter in events.dead)
        copies = self._copies(events.ids)
        sampled, duplicates = per_tenant(events), per_tenant(events, copies)
        for place, (tenant, own) in enumerate(by_tenant(only_fresh(events, copies))):
            if tenant == registered.tenant:
                parts, unmatched = expand(own, [registered])
                self.parts += parts
                self.sampled += sampled[place]
                self.duplicates += duplicates[place]
                self.matched += own.table.height - unmatched

    def _copies(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which events have an id that was there before."""
        found = np.zeros(len(ids.high), np.bool_)
        for place, each in enumerate(zip(ids.high.tolist(), ids.low.tolist(), strict=True)):
            found[place] = each in self.ids
            self.ids.add(each)
        return found


def _numbers(counted: pl.DataFrame, registered: RegisteredMeter) -> dict[str, Any]:
    """Over all buckets: the total, and the largest series."""
    meter = registered.meter
    own = counted.filter(pl.col("meter") == registered.set_id)
    total = columns.merge(own, []) if own.height else NOTHING
    series = columns.merge(own, ["series"])
    first = largest(series, ["series"], meter.compute[0], registered, most=MOST_ITEMS)
    shown = zip(first["series"], values(first, meter.compute, registered), strict=True)
    labels = registered.labels
    return {
        "total": values(total, meter.compute, registered)[0],
        "series": series.height,
        "top": [
            {"labels": dict(zip(labels, text.split(deltas.SEPARATOR), strict=True)) if labels else {}, "value": value}
            for text, value in shown
        ],
    }
