"""The counts that must be served, from the numbers of the sends alone."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tallymark.load.plan import Integers, Plan

CHUNK_VALUES = 1_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


@dataclass(slots=True)
class Tally:
    """What a meter computes from some values."""

    count: int = 0
    sum: int = 0
    min: int | None = None
    max: int | None = None

    def add(self, count: int, total: int, low: int, high: int) -> None:
        self.count += count
        self.sum += total
        self.min = low if self.min is None else min(self.min, low)
        self.max = high if self.max is None else max(self.max, high)


Tallies = dict[int, Tally]


@dataclass
class Expected:
    """Every cut of the counts that is compared. Times are the starts of buckets in ms, keys and metrics are numbers."""

    total: Tally = field(default_factory=Tally)
    minutes: Tallies = field(default_factory=dict)
    hours: Tallies = field(default_factory=dict)
    days: Tallies = field(default_factory=dict)
    keys: Tallies = field(default_factory=dict)
    metrics: Tallies = field(default_factory=dict)
    events: int = 0


def distinct_sources(plan: Plan, sends: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
    """For each event, whether at least one of the sends in [start, end) carries it."""
    carried = np.zeros(plan.sends, dtype=np.bool_)
    for start, end in sends:
        for low in range(start, end, CHUNK_VALUES):
            carried[plan.sources(np.arange(low, min(end, low + CHUNK_VALUES), dtype=np.uint64))] = True
    return carried


def expected(plan: Plan, carried: NDArray[np.bool_]) -> Expected:
    """The counts if exactly these events are counted, each once."""
    result = Expected(events=int(carried.sum()))
    for times, keys, metrics, values in _contents(plan, carried):
        _tally({0: result.total}, np.zeros_like(times), values)
        _tally(result.minutes, times // MINUTE_MS * MINUTE_MS, values)
        _tally(result.keys, keys, values)
        if plan.servers:
            _tally(result.metrics, metrics, values)
    result.hours = _coarser(result.minutes, HOUR_MS)
    result.days = _coarser(result.minutes, DAY_MS)
    return result


def _contents(plan: Plan, carried: NDArray[np.bool_]) -> Iterator[tuple[Integers, Integers, Integers, Integers]]:
    """Times, keys, metrics and values of the events, in pieces that fit in memory."""
    sources = np.flatnonzero(carried).astype(np.uint64)
    per_event = plan.metrics if plan.servers else 1
    step = max(1, CHUNK_VALUES // per_event)
    for low in range(0, len(sources), step):
        part = sources[low : low + step]
        times, keys = np.repeat(plan.times(part), per_event), np.repeat(plan.key_indices(part), per_event)
        if plan.servers:
            yield times, keys, np.tile(np.arange(per_event), len(part)), plan.metric_values(part).ravel()
        else:
            yield times, keys, np.zeros_like(times), plan.values(part)


def _tally(tallies: Tallies, codes: Integers, values: Integers) -> None:
    order = np.argsort(codes, kind="stable")
    codes, values = codes[order], values[order]
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    counts = np.diff(np.append(starts, len(codes)))
    columns = (
        codes[starts],
        counts,
        np.add.reduceat(values, starts),
        np.minimum.reduceat(values, starts),
        np.maximum.reduceat(values, starts),
    )
    for code, count, total, low, high in zip(*(column.tolist() for column in columns), strict=True):
        tallies.setdefault(code, Tally()).add(count, total, low, high)


def _coarser(minutes: Tallies, width_ms: int) -> Tallies:
    coarse: Tallies = {}
    for start, tally in minutes.items():
        assert tally.min is not None
        assert tally.max is not None
        coarse.setdefault(start // width_ms * width_ms, Tally()).add(tally.count, tally.sum, tally.min, tally.max)
    return coarse
