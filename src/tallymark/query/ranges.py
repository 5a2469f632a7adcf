"""The stretch of time a question is about."""

from dataclasses import dataclass
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tallymark.evaluation.steps import Edges
from tallymark.events.moments import rfc3339_ms, rfc3339_s
from tallymark.http import Problem
from tallymark.query import moments
from tallymark.query.parameters import Given
from tallymark.suggest import suggest

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Range:
    """[start_s, end_s) in whole buckets; None is open."""

    start_s: int | None
    end_s: int | None
    widened: bool = False
    edges: Edges | None = None
    """where a series is cut"""

    def to_json(self) -> dict[str, object]:
        start, end = (None if each is None else rfc3339_s(each) for each in (self.start_s, self.end_s))
        return {"from": start, "to": end, "widened": self.widened}

    def seconds(self, now_s: float) -> float | None:
        """How long it is, up to now; None if it has no beginning."""
        return None if self.start_s is None else covered_s(self.start_s, self.end_s, now_s)


def covered_s(start_s: int, end_s: int | None, now_s: float) -> float:
    """How much of a bucket has passed; one that lies ahead counts as a whole."""
    if end_s is None:
        return max(1.0, now_s - start_s)
    return end_s - start_s if now_s <= start_s else min(end_s, now_s) - start_s


def zone(name: str | None) -> tzinfo:
    if name is None or name in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = suggest(name, sorted(available_timezones()), what="names are like")
        raise Problem(400, "bad_zone", f"tz = {name[:60]!r} is no time zone{near}", parameter="tz") from None


def last_hour(given: Given, *, now_ms: int, zone: tzinfo) -> tuple[int, int]:
    """The bounds asked for, in ms; by default the hour up to `to`, or up to now."""
    start_ms, end_ms = (moment(given, name, now_ms=now_ms, zone=zone) for name in ("from", "to"))
    if end_ms is None:
        end_ms = now_ms
    if start_ms is None:
        start_ms = max(0, end_ms - HOUR_MS)
    _check_order(start_ms, end_ms)
    return start_ms, end_ms


def moment(given: Given, name: str, *, now_ms: int, zone: tzinfo) -> int | None:
    text = given.one(name)
    return None if text is None else moments.parse(name, text, now_ms=now_ms, zone=zone)


def widened(start_ms: int | None, end_ms: int | None, *, grain_s: int) -> Range:
    """To whole grains; either end may be open."""
    if start_ms is not None and end_ms is not None:
        _check_order(start_ms, end_ms)
    grain_ms = grain_s * 1000
    start_s = None if start_ms is None else start_ms // grain_ms * grain_s
    end_s = None if end_ms is None else -(-end_ms // grain_ms) * grain_s
    return Range(start_s, end_s, any(ms % grain_ms for ms in (start_ms, end_ms) if ms is not None))


def cut(edges: Edges, start_ms: int, end_ms: int) -> Range:
    """As the edges have it."""
    is_wider = (edges.start_s * 1000, edges.end_s * 1000) != (start_ms, end_ms)
    return Range(edges.start_s, edges.end_s, is_wider, edges)


def _check_order(start_ms: int, end_ms: int) -> None:
    if start_ms >= end_ms:
        detail = f"the range is empty: it begins at {rfc3339_ms(start_ms)} and ends at {rfc3339_ms(end_ms)}"
        raise Problem(400, "empty_range", detail, parameter="from")
