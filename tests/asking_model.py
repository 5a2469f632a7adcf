"""What questions should be answered, in plain Python: every event is kept, and every number is worked out from them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tallymark.events.labels import label
from tallymark.meters import matches, number, parse
from tallymark.meters.model import OTHER, Meter

LARGEST, LARGEST_UNITS = 1e280, 2**53
PERCENTILE_ERROR = 0.0109
# What is nearer to zero counts as zero.
SMALLEST = 2.0**-1022
# Five standard errors of a HyperLogLog with 4,096 registers: one in two million.
DISTINCT_ERROR = 5 * 1.04 / 64

Event = dict[str, Any]
Labels = tuple[str, ...]
Span = tuple[int | None, int | None]
Value = int | float | Decimal | None


@dataclass(frozen=True)
class Seen:
    """What a meter sees of an event: once, or once for each of its named numbers."""

    time_ms: int
    labels: Labels
    number: float | None
    text: str
    """of the property whose values are counted"""
    is_late: bool


@dataclass(frozen=True)
class Asked:
    """A question, as numbers. Moments are epoch seconds and need not lie on the grain."""

    kind: str
    meter: str
    functions: tuple[str, ...]
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    start_s: int | None = None
    end_s: int | None = None
    step_s: int = 60
    window_s: int | None = None
    over: str = "max"
    compare: int | str | None = None
    """seconds, or `previous`"""
    rank: str = "value"
    k: int = 3
    late: str = "without"

    def target(self) -> str:
        """The request."""
        pairs = [("fn", ",".join(self.functions))]
        pairs += [(key, each) for key, wanted in self.where.items() for each in wanted]
        pairs += [("by", ",".join(self.by))] if self.by else []
        pairs += [(name, str(at * 1000)) for name, at in (("from", self.start_s), ("to", self.end_s)) if at is not None]
        pairs += [("step", f"{self.step_s}s")] if self.kind == "series" else []
        pairs += [("window", f"{self.window_s}s")] if self.window_s else []
        pairs += [("over", self.over)] if self.window_s and self.kind != "series" else []
        if self.compare is not None:
            pairs.append(("compare", self.compare if isinstance(self.compare, str) else f"{self.compare}s"))
        pairs += [("k", str(self.k)), ("rank", self.rank)] if self.kind == "top" else []
        pairs += [("late", self.late)] if self.late != "without" else []
        return f"/v1/meters/{self.meter}/{self.kind}?{'&'.join(f'{name}={each}' for name, each in pairs)}"


class Model:
    """Keeps what was applied, batch by batch, and answers."""

    def __init__(self, meters: Iterable[Meter]) -> None:
        self.meters = {meter.name: meter for meter in meters}
        self._ids: set[tuple[str, str]] = set()
        self._batches: list[list[Event]] = []
        self.now_s = 0

    def apply(self, events: Iterable[Event]) -> None:
        """A batch; copies of what was there before do not count."""
        fresh = []
        for event in events:
            key = (event["event"], event["id"])
            if key not in self._ids:
                self._ids.add(key)
                fresh.append(event)
        self._batches.append(fresh)

    def seen(self, meter: Meter, late: str) -> list[Seen]:
        """In the order of the log; `late` is `without`, `only` or `with`, as in questions."""
        sets: list[list[Seen]] = []
        if late in ("without", "with"):
            batches = [
                [each for each in self._of(meter, batch) if self._counts(meter, each)] for batch in self._batches
            ]
            sets.append(_admitted(batches, meter))
        if late in ("only", "with"):
            batches = [[each for each in self._of(meter, batch) if each.is_late] for batch in self._batches]
            sets.append(_admitted(batches, meter))
        return [each for found in sets for each in found]

    def _counts(self, meter: Meter, seen: Seen) -> bool:
        return not seen.is_late or meter.late is None or meter.late.then == "count"

    def _of(self, meter: Meter, batch: Iterable[Event]) -> Iterable[Seen]:
        for event in batch:
            is_meant = not meter.events or event["event"] in meter.events
            if not is_meant or (meter.where and not matches(parse(meter.where), event)):
                continue
            props = event.get("props", {})
            labels = tuple(event["event"] if key == "event" else label(props.get(key)) or "" for key in meter.by)
            is_late = meter.late is not None and event["received"] - event["time"] > meter.late.after_s * 1000
            text = label(props.get(meter.distinct)) or "" if meter.distinct else ""
            if meter.each:
                for name, each in event.get("values", {}).items():
                    yield Seen(event["time"], (*labels, name), _usable(each, meter), text, is_late)
                continue
            found = number(props.get(meter.value)) if meter.value else event.get("value")
            found = dict(meter.weights)[event["event"]] if meter.weights else found
            yield Seen(event["time"], labels, _usable(found, meter), text, is_late)

    def answer(self, asked: Asked) -> Any:
        """As the API answers: a value, (labels, point -> value) of every series, or (labels, value) of the first."""
        meter = self.meters[asked.meter]
        chosen = [
            each
            for each in self.seen(meter, asked.late)
            if all(each.labels[meter.labels.index(key)] in wanted for key, wanted in asked.where.items())
        ]
        groups: dict[Labels, list[Seen]] = {} if asked.by else {(): []}
        for each in chosen:
            groups.setdefault(tuple(each.labels[meter.labels.index(key)] for key in asked.by), []).append(each)
        return getattr(self, f"_{asked.kind}")(asked, meter, groups)

    def _total(self, asked: Asked, meter: Meter, groups: dict[Labels, list[Seen]]) -> Any:
        span = _whole(asked.start_s, asked.end_s, meter.grain_s)
        before = _earlier(span, asked.compare)
        if not asked.by:
            return _compared(asked, meter, groups[()], span, before, self.now_s)
        named = [(each,) for each in asked.where.get(asked.by[0], ())] if len(asked.by) == 1 else []
        met = [labels for labels, seen in groups.items() if _is_met(seen, span, before)]
        return {
            labels: _compared(asked, meter, groups.get(labels, []), span, before, self.now_s)
            for labels in {*named, *met}
        }

    def _series(self, asked: Asked, meter: Meter, groups: dict[Labels, list[Seen]]) -> Any:
        span = _whole(asked.start_s, asked.end_s, asked.step_s)
        start, end = span
        assert start is not None
        assert end is not None
        length = asked.window_s or asked.step_s
        met = {labels: seen for labels, seen in groups.items() if not asked.by or _is_met(seen, span, None)}
        return {
            labels: {
                at: self._point(asked, meter, seen, (at, at + length), span)
                for at in range(start, end - length + 1, asked.step_s)
            }
            for labels, seen in met.items()
        }

    def _point(self, asked: Asked, meter: Meter, seen: list[Seen], window: tuple[int, int], span: Span) -> Any:
        """Of a window without events that is not over yet nothing is known."""
        value = values(asked.functions, meter, seen, window, self.now_s)
        if window[1] > self.now_s and not any(_within(each, window) for each in seen):
            value = dict.fromkeys(asked.functions)
        before = _earlier(span, asked.compare)
        if before is None:
            return value
        back = (span[0] or 0) - (before[0] or 0)
        return value, values(asked.functions, meter, seen, (window[0] - back, window[1] - back), self.now_s)

    def _top(self, asked: Asked, meter: Meter, groups: dict[Labels, list[Seen]]) -> Any:
        span = _whole(asked.start_s, asked.end_s, meter.grain_s)
        earlier = asked.compare or ("previous" if asked.rank == "growth" else None)
        before = _earlier(span, earlier)
        # What has gone does not come first by its value, but may by how much it has shrunk.
        either = before if asked.rank == "growth" else None
        met = {labels: seen for labels, seen in groups.items() if _is_met(seen, span, either)}
        return [(labels, _compared(asked, meter, seen, span, before, self.now_s)) for labels, seen in met.items()]


def _usable(value: float | None, meter: Meter) -> float | None:
    if value is None or not math.isfinite(value) or abs(value) >= LARGEST:
        return None
    return value if meter.decimals is None or abs(units(value, meter.decimals)) < LARGEST_UNITS else None


def units(value: float, decimals: int) -> int:
    """The nearest whole number of units; of two that are as near, the even one."""
    return round(Decimal(value) * 10**decimals)


def _admitted(batches: Sequence[Iterable[Seen]], meter: Meter) -> list[Seen]:
    """Those of new series beyond `max_series` under `__other__`; first come, first served, batch by batch."""
    known: set[Labels] = set()
    found = []
    for batch in batches:
        seen = list(batch)
        for labels in sorted({each.labels for each in seen} - known, key="\0".join):
            if meter.max_series is None or len(known) < meter.max_series:
                known.add(labels)
        other = (OTHER,) * len(meter.labels)
        for each in seen:
            labels = each.labels if each.labels in known else other
            found.append(Seen(each.time_ms, labels, each.number, each.text, each.is_late))
    return found


def _whole(start_s: int | None, end_s: int | None, grain_s: int) -> Span:
    start = None if start_s is None else start_s // grain_s * grain_s
    return start, None if end_s is None else -(-end_s // grain_s) * grain_s


def _earlier(span: Span, compare: int | str | None) -> Span | None:
    start, end = span
    if compare is None or start is None or end is None:
        return None
    back = end - start if isinstance(compare, str) else compare
    return start - back, end - back


def _within(seen: Seen, span: Span) -> bool:
    start, end = span
    return (start is None or seen.time_ms >= start * 1000) and (end is None or seen.time_ms < end * 1000)


def _is_met(seen: Iterable[Seen], span: Span, before: Span | None) -> bool:
    """Whether there are events in the range, or in the one that it is compared with."""
    return any(_within(each, span) or (before is not None and _within(each, before)) for each in seen)


def _compared(asked: Asked, meter: Meter, seen: list[Seen], span: Span, before: Span | None, now_s: int) -> Any:
    value = _of_span(asked, meter, seen, span, now_s)
    return value if before is None else (value, _of_span(asked, meter, seen, before, now_s))


def _of_span(asked: Asked, meter: Meter, seen: list[Seen], span: Span, now_s: int) -> dict[str, Value]:
    if asked.window_s is None:
        return values(asked.functions, meter, seen, span, now_s)
    start, end = span
    assert start is not None
    assert end is not None
    every = range(start, end - asked.window_s + 1, meter.grain_s)
    # Those that still fill would make the least and the average too small.
    starts = (asked.over != "max" and [at for at in every if at + asked.window_s <= now_s]) or every
    # A rate is that of a whole window: of one that has hardly begun it could be anything.
    windows = [values(asked.functions, meter, seen, (at, at + asked.window_s), end) for at in starts]
    return {name: _over(asked.over, [each[name] for each in windows]) for name in asked.functions}


def _over(how: str, found: Sequence[Value]) -> Value:
    there: list[Any] = [each for each in found if each is not None]
    if not there:
        return None
    return {"max": max, "min": min, "avg": lambda each: float(sum(each)) / len(each)}[how](there)


def values(functions: Iterable[str], meter: Meter, seen: Iterable[Seen], span: Span, now_s: int) -> dict[str, Value]:
    """Of events in a range; what of it lies ahead does not make a rate smaller."""
    within = [each for each in seen if _within(each, span)]
    covered = (span[0], None if span[1] is None else min(span[1], now_s))
    return {name: value(name, meter, within, covered) for name in functions}


def value(name: str, meter: Meter, seen: Sequence[Seen], span: Span) -> Value:
    """The true value: of a percentile the number at its rank, of `distinct` how many there are."""
    numbers = sorted(each.number for each in seen if each.number is not None)
    total = sum(numbers) if meter.decimals is None else _exact(numbers, meter.decimals)
    if name.startswith("p"):
        return numbers[math.ceil(Fraction(name[1:]) * len(numbers) / 100) - 1] if numbers else None
    if name == "last":
        moments = [(each.time_ms, each.number) for each in seen if each.number is not None]
        return max(moments)[1] if moments else None
    start, end = span
    return {
        "count": lambda: len(seen),
        "sum": lambda: total,
        "min": lambda: numbers[0] if numbers else None,
        "max": lambda: numbers[-1] if numbers else None,
        "avg": lambda: float(total / len(numbers)) if numbers else None,
        "distinct": lambda: len({each.text for each in seen} - {""}),
        "rate": lambda: len(seen) / ((end or 0) - (start or 0)),
    }[name]()


def _exact(numbers: Iterable[float], decimals: int) -> Decimal:
    return Decimal(sum(units(each, decimals) for each in numbers)).scaleb(-decimals)


def is_close(name: str, found: Any, true: Value, *, scale: float, averaged: bool = False) -> bool:
    """Whether an answer is as exact as it is said to be. `scale` is the sum of all numbers without their signs: what
    the rounding of a float sum is measured by."""
    if found is None or true is None:
        return found is None and true is None
    if isinstance(true, Decimal):
        return Decimal(found) == true
    found = float(found)
    if name.startswith("p"):
        return abs(found - true) <= max(PERCENTILE_ERROR * abs(true), SMALLEST)
    if name == "distinct":
        return abs(found - true) <= max(1, DISTINCT_ERROR * float(true))
    if name in ("sum", "avg"):
        return math.isclose(found, true, rel_tol=1e-9, abs_tol=1e-12 * scale)
    # The last bit of an average over windows depends on the order of adding.
    return math.isclose(found, true, rel_tol=1e-12) if name == "rate" or averaged else found == true
