"""Comparisons: the same question about an earlier stretch of time, and how the numbers differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Context, Decimal
from math import isfinite
from typing import Any

from tallymark.aggregates.functions import Value
from tallymark.evaluation.lengths import Length, earlier
from tallymark.evaluation.steps import Edges, Step
from tallymark.http import Problem
from tallymark.query import lengths
from tallymark.query.ranges import Range
from tallymark.suggest import suggest

PREVIOUS = "previous"
WORDS = (PREVIOUS, "1h", "1d", "1w", "1mo")
# As far back as calendars go.
_YEAR_1_S = -62_135_596_800
# Wide enough for exact sums, which may have 29 digits.
_EXACT = Context(prec=60)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a question is compared with."""

    text: str
    """as the request has it"""
    range: Range

    def to_json(self) -> dict[str, Any]:
        bounds = self.range.to_json()
        return {"with": self.text, "from": bounds["from"], "to": bounds["to"]}


def parse(text: str, now: Range, *, zone: tzinfo, grain_s: int, step: Step | None = None) -> Comparison:
    """Of a question about the range `now`, which must have both ends; `step` is that of a series."""
    if now.start_s is None or now.end_s is None:
        detail = f"compare={text[:60]} needs a range, but the question is about all time: give from=, as in from=-1h"
        raise Problem(400, "needs_range", detail, parameter="compare")
    try:
        before = _before(text, now.start_s, now.end_s, now.edges, zone=zone, grain_s=grain_s, step=step)
    except (ValueError, OverflowError):
        detail = f"compare={text} would reach back to before the year 1; ask for a shorter range"
        raise Problem(400, "bad_compare", detail, parameter="compare") from None
    return Comparison(text, before)


def _before(
    text: str, start_s: int, end_s: int, edges: Edges | None, *, zone: tzinfo, grain_s: int, step: Step | None
) -> Range:
    if text == PREVIOUS:
        if step is None or edges is None:
            if 2 * start_s - end_s < _YEAR_1_S:
                raise ValueError(start_s)
            return Range(2 * start_s - end_s, start_s)
        length = Length(step.length.count * edges.count, step.length.unit)
    else:
        length = _length(text, grain_s)
    # The seconds of some offsets from before 1972 are not on the grain.
    first, last = (earlier(each, length, zone) // grain_s * grain_s for each in (start_s, end_s))
    if step is None or edges is None:
        # From the 29th to the 30th of March is no time at all a month earlier, and in the hour that comes twice when
        # clocks go back a day earlier may be less than none: then it is as long as the range itself.
        return Range(first, last if last > first else first + end_s - start_s)
    # As many buckets as there are now, so that each has its counterpart.
    before = step.edges_from(first, edges.count)
    return Range(before.start_s, before.end_s, edges=before)


def _length(text: str, grain_s: int) -> Length:
    try:
        length = lengths.parse("compare", text, code="bad_compare")
    except Problem as problem:
        if text[:1].isdigit():
            raise
        detail = f"compare = {text[:60]!r} is not known{suggest(text, WORDS)}"
        raise Problem(400, "bad_compare", detail, parameter="compare") from problem
    if not length.days and not length.months:
        lengths.on_the_grain("compare", text, length.seconds, grain_s, code="bad_compare")
    return length


def change(now: Value, before: Value) -> dict[str, Value]:
    """By how much, and by how many per cent of what was before; null where there is no number, or nothing before."""
    if now is None or before is None:
        return {"difference": None, "percent": None}
    if isinstance(now, Decimal) and isinstance(before, Decimal):
        difference: int | float | Decimal = _EXACT.subtract(now, before)
    else:
        difference = now - before  # type: ignore[operator]
    percent = 100 * float(difference) / abs(float(before)) if before else None
    return {"difference": difference, "percent": percent if percent is not None and isfinite(percent) else None}


def changes(now: Mapping[str, Value], before: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    return {name: change(value, before[name]) for name, value in now.items()}
