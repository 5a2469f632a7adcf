"""What a request asks for, checked: which meter, which series, which range, which aggregates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tallymark.events.moments import rfc3339_ms, rfc3339_s
from tallymark.http import Problem
from tallymark.query import moments, steps
from tallymark.query.parameters import Given, Pairs, sort_out
from tallymark.settings import QuerySettings
from tallymark.store.model import RegisteredMeter
from tallymark.suggest import suggest

HOUR_MS = 3_600_000
MINUTE = steps.Fixed(steps.MINUTE_S)

TOTAL = ("from", "to", "fn", "tz", "format", "consistency")
SERIES = ("from", "to", "step", "by", "fn", "tz", "limit", "format", "consistency")
TOP = ("from", "to", "by", "k", "fn", "tz", "format", "consistency")
LIVE = ("format",)


@dataclass(frozen=True, slots=True)
class Range:
    """[start_s, end_s) in whole buckets; None is open."""

    start_s: int | None
    end_s: int | None
    widened: bool

    def to_json(self) -> dict[str, object]:
        start, end = (None if each is None else rfc3339_s(each) for each in (self.start_s, self.end_s))
        return {"from": start, "to": end, "widened": self.widened}


@dataclass(frozen=True, slots=True)
class Question:
    """Everything the store needs to know, already checked."""

    meter: RegisteredMeter
    where: Mapping[str, Sequence[str]]
    by: tuple[str, ...]
    functions: tuple[str, ...]
    range: Range
    edges: steps.Edges | None = None
    most: int = 0
    """items of a top, series of a series"""
    step: str = ""
    tz: str | None = None
    fresh: bool = False
    """asked past the cache"""

    def key(self, kind: str) -> str:
        """Equal for questions whose answers are equal until something is applied, however they are written."""
        where = tuple((key, tuple(wanted)) for key, wanted in self.where.items())
        meter, span = self.meter, self.range
        bounds = (span.start_s, span.end_s, span.widened)
        return repr(
            (kind, meter.meter_id, meter.broken, where, self.by, self.functions, bounds, self.step, self.most, self.tz)
        )


def total(meter: RegisteredMeter, pairs: Pairs, *, now_ms: int, limits: QuerySettings) -> Question:
    """No limit applies to one number; `limits` is there because all three kinds are parsed alike."""
    given = _given(meter, pairs, TOTAL)
    zone = _zone(given.one("tz"))
    start_ms, end_ms = (_moment(given, name, now_ms, zone) for name in ("from", "to"))
    range_ = _open_range(start_ms, end_ms)
    return Question(meter, given.where, (), _functions(given, meter), range_, fresh=_fresh(given))


def series(meter: RegisteredMeter, pairs: Pairs, *, now_ms: int, limits: QuerySettings) -> Question:
    given = _given(meter, pairs, SERIES)
    zone = _zone(given.one("tz"))
    step_text = given.one("step") or "1m"
    step = steps.parse(step_text, zone)
    start_ms, end_ms = _last_hour(given, now_ms, zone)
    points = (end_ms - start_ms) // 1000 // step.shortest_s
    if points > limits.max_points:
        raise too_many_points(points, limits)
    edges = step.edges(start_ms // 1000, -(-end_ms // 1000))
    return Question(
        meter,
        given.where,
        _keys(given, meter),
        _functions(given, meter),
        _range(edges, start_ms, end_ms),
        edges,
        given.whole("limit", default=limits.max_points, most=limits.max_points, setting="query.max_points"),
        step_text,
        given.one("tz"),
        _fresh(given),
    )


def top(meter: RegisteredMeter, pairs: Pairs, *, now_ms: int, limits: QuerySettings) -> Question:
    """`functions` begins with the one that ranks."""
    given = _given(meter, pairs, TOP)
    by = _keys(given, meter)
    if not by:
        by = _only_key(meter)
    zone = _zone(given.one("tz"))
    start_ms, end_ms = _last_hour(given, now_ms, zone)
    ranked = _functions(given, meter)
    if len(ranked) > 1 and "fn" in given.values:
        raise Problem(400, "bad_function", f"top ranks by one fn, not by {', '.join(ranked)}", parameter="fn")
    return Question(
        meter,
        given.where,
        by,
        tuple(dict.fromkeys([ranked[0], *meter.meter.compute])),
        _range(MINUTE.edges(start_ms // 1000, -(-end_ms // 1000)), start_ms, end_ms),
        most=given.whole("k", default=10, most=limits.max_k, setting="query.max_k"),
        fresh=_fresh(given),
    )


def live(meter: RegisteredMeter, pairs: Pairs) -> Mapping[str, Sequence[str]]:
    """The labels to follow."""
    return _given(meter, pairs, LIVE).where


def too_many_points(actual: int | None, limits: QuerySettings) -> Problem:
    """`actual` is None if reading stopped early, so that the number is unknown."""
    points = "more points than" if actual is None else f"{actual:,} points exceed"
    detail = (
        f"{points} query.max_points = {limits.max_points:,};"
        " use a longer step, a shorter range, fewer keys in by, fewer labels, or limit="
    )
    if actual is None:
        return Problem(400, "over_limit", detail, limit=limits.max_points)
    return Problem(400, "over_limit", detail, limit=limits.max_points, actual=actual)


def too_many_bytes(most_bytes: int) -> Problem:
    detail = (
        f"the series and buckets of this question take more than {most_bytes // 1_000_000:,} MB, the limit for one"
        " question; filter by a label, or use fewer keys in by, a longer step or a shorter range"
    )
    return Problem(400, "over_limit", detail, limit=most_bytes)


def _given(meter: RegisteredMeter, pairs: Pairs, allowed: Sequence[str]) -> Given:
    return sort_out(pairs, allowed=allowed, question=f"meter {meter.meter.name}", keys=meter.labels)


def _fresh(given: Given) -> bool:
    return given.one("consistency") == "fresh"


def _keys(given: Given, meter: RegisteredMeter) -> tuple[str, ...]:
    by = given.words("by")
    for key in by:
        if key not in meter.labels:
            near = suggest(key, meter.labels, what="its keys are")
            raise Problem(
                400, "unknown_key", f"meter {meter.meter.name} has no key {key!r}{near}", parameter="by", key=key
            )
    return by


def _only_key(meter: RegisteredMeter) -> tuple[str, ...]:
    if len(meter.labels) == 1:
        return meter.labels
    keys = (
        f"one or more of {', '.join(meter.labels)}" if meter.labels else "but this meter has no keys; ask for its total"
    )
    raise Problem(400, "missing_parameter", f"top of {meter.meter.name} needs by=: {keys}", parameter="by")


def _functions(given: Given, meter: RegisteredMeter) -> tuple[str, ...]:
    computed = meter.meter.compute
    wanted = given.words("fn")
    for function in wanted:
        if function not in computed:
            near = suggest(function, computed, what="it computes")
            raise Problem(
                400, "unknown_function", f"meter {meter.meter.name} does not compute {function!r}{near}", parameter="fn"
            )
    return wanted or computed


def _zone(name: str | None) -> tzinfo:
    if name is None or name in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = suggest(name, sorted(available_timezones()), what="names are like")
        raise Problem(400, "bad_zone", f"tz = {name[:60]!r} is no time zone{near}", parameter="tz") from None


def _moment(given: Given, name: str, now_ms: int, zone: tzinfo) -> int | None:
    text = given.one(name)
    return None if text is None else moments.parse(name, text, now_ms=now_ms, zone=zone)


def _last_hour(given: Given, now_ms: int, zone: tzinfo) -> tuple[int, int]:
    """The range asked for; by default the hour up to `to`, or up to now."""
    start_ms, end_ms = (_moment(given, name, now_ms, zone) for name in ("from", "to"))
    if end_ms is None:
        end_ms = now_ms
    if start_ms is None:
        start_ms = max(0, end_ms - HOUR_MS)
    _check_order(start_ms, end_ms)
    return start_ms, end_ms


def _check_order(start_ms: int, end_ms: int) -> None:
    if start_ms >= end_ms:
        order = f"from = {rfc3339_ms(start_ms)} is not before to = {rfc3339_ms(end_ms)}"
        raise Problem(400, "empty_range", f"{order}; ranges are [from, to)", parameter="from")


def _range(edges: steps.Edges, start_ms: int, end_ms: int) -> Range:
    return Range(edges.start_s, edges.end_s, (edges.start_s * 1000, edges.end_s * 1000) != (start_ms, end_ms))


def _open_range(start_ms: int | None, end_ms: int | None) -> Range:
    if start_ms is not None and end_ms is not None:
        _check_order(start_ms, end_ms)
    start_s = None if start_ms is None else start_ms // 60_000 * 60
    end_s = None if end_ms is None else -(-end_ms // 60_000) * 60
    asked = [ms for ms in (start_ms, end_ms) if ms is not None]
    return Range(start_s, end_s, any(ms % 60_000 for ms in asked))
