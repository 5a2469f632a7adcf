"""What a request asks for, checked: which meter, which series, which range, which aggregates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from math import prod

from tallymark.evaluation.steps import Fixed, Step
from tallymark.http import Problem
from tallymark.query import comparing, functions, limits, ranges, steps, windows
from tallymark.query.comparing import PREVIOUS, Comparison
from tallymark.query.joining import Columns, Joined, Lookup
from tallymark.query.parameters import LABEL, RESERVED, Given, Pairs, sort_out
from tallymark.query.ranges import Range
from tallymark.query.windows import Window
from tallymark.settings import QuerySettings
from tallymark.store.model import RegisteredMeter
from tallymark.suggest import suggest

_ALL = ("with", "fn", "compare", "late", "tz", "format", "consistency")
TOTAL = ("from", "to", "by", "window", "over", *_ALL)
SERIES = ("from", "to", "step", "window", "by", "limit", *_ALL)
TOP = ("from", "to", "by", "k", "rank", "window", "over", *_ALL)
LIVE = ("format",)

DEFAULT_STEP = "1m"


@dataclass(frozen=True, slots=True)
class Question:
    """Everything the store needs to know, already checked."""

    meter: RegisteredMeter
    where: Mapping[str, Sequence[str]]
    by: tuple[str, ...]
    functions: tuple[str, ...]
    """of a top, the one that ranks comes first"""
    range: Range
    most: int = 0
    """items of a top, series of a series"""
    step: str = ""
    tz: str | None = None
    window: Window | None = None
    comparison: Comparison | None = None
    by_growth: bool = False
    """a top ranks by the difference from the range compared with"""
    late: str = "without"
    query: str = ""
    """the canonical text, if it was asked in the query language"""
    joined: Mapping[str, Joined] = field(default_factory=dict)
    """the names in `by` and `where` that are columns of tables"""
    added: tuple[Joined, ...] = ()
    """columns of tables that are shown with each series"""

    @property
    def ranges(self) -> list[Range]:
        """The one it asks about, and the one that is compared with."""
        return [self.range, *([self.comparison.range] if self.comparison else [])]

    def key(self, kind: str) -> str:
        """Equal for questions whose answers are equal until something is applied, however they are written."""
        where = tuple((key, tuple(wanted)) for key, wanted in self.where.items())
        meter, before = self.meter, self.comparison
        bounds = [(each.start_s, each.end_s, each.widened) for each in self.ranges]
        over_time = (bounds, self.step, self.tz, self.window, before and before.text)
        tables = [(each.name, each.token) for each in (*self.joined.values(), *self.added)]
        shown = [each.name for each in self.added]
        asked = (where, self.by, self.functions, self.most, self.by_growth, self.late, self.query, shown, tables)
        return repr((kind, meter.meter_id, meter.broken, asked, over_time))


def total(
    meter: RegisteredMeter, pairs: Pairs, *, now_ms: int, settings: QuerySettings, tables: Lookup | None = None
) -> Question:
    """Of all time, unless there are bounds; windows and comparisons need a beginning, and end now."""
    columns = Columns(meter, tables)
    given = _given(meter, pairs, TOTAL, columns)
    zone, by = ranges.zone(given.one("tz")), _keys(given, meter, columns)
    start_ms, end_ms = (ranges.moment(given, name, now_ms=now_ms, zone=zone) for name in ("from", "to"))
    if end_ms is None and ("window" in given.values or "compare" in given.values):
        end_ms = now_ms
    span = ranges.widened(start_ms, end_ms, grain_s=meter.meter.grain_s)
    _check_named(given, by, settings)
    names = functions.asked(given.words("fn"), meter)
    functions.check_rate(given.words("fn"), has_beginning=span.start_s is not None)
    question = Question(meter, given.where, by, names, span, settings.max_k, late=_late(given, meter))
    question = _joined(question, given, columns, now_ms=now_ms)
    return _compared(_slid(question, given, settings), given, zone)


def series(
    meter: RegisteredMeter,
    pairs: Pairs,
    *,
    now_ms: int,
    settings: QuerySettings,
    is_whole: bool = False,
    tables: Lookup | None = None,
) -> Question:
    """`is_whole` makes one bucket of the whole range, whatever its length."""
    columns = Columns(meter, tables)
    given = _given(meter, pairs, SERIES, columns)
    zone = ranges.zone(given.one("tz"))
    start_ms, end_ms = ranges.last_hour(given, now_ms=now_ms, zone=zone)
    step_text = DEFAULT_STEP if (asked := given.one("step")) is None else asked
    if is_whole:
        step: Step = Fixed(meter.meter.grain_s)
        edges = steps.one_bucket(start_ms, end_ms, grain_s=meter.meter.grain_s)
    else:
        step = steps.parse(step_text, zone, grain_s=meter.meter.grain_s)
        _check_points((end_ms - start_ms) // 1000 // step.shortest_s, settings)
        edges = step.edges(start_ms // 1000, -(-end_ms // 1000))
    question = Question(
        meter,
        given.where,
        _keys(given, meter, columns),
        functions.asked(given.words("fn"), meter),
        ranges.cut(edges, start_ms, end_ms),
        given.whole("limit", default=settings.max_points, most=settings.max_points, setting="query.max_points"),
        step_text,
        given.one("tz"),
        late=_late(given, meter),
    )
    if (text := given.one("window")) is not None:
        window = windows.hopping(text, step, step_text, zone_is_utc=zone is UTC)
        windows.check_fits(window, question.range, edges.count)
        question = replace(question, window=window)
    question = _joined(question, given, columns, now_ms=now_ms)
    return _compared(question, given, zone, step)


def top(
    meter: RegisteredMeter, pairs: Pairs, *, now_ms: int, settings: QuerySettings, tables: Lookup | None = None
) -> Question:
    """`functions` begins with the one that ranks."""
    columns = Columns(meter, tables)
    given = _given(meter, pairs, TOP, columns)
    by = _keys(given, meter, columns) or _only_key(meter)
    zone = ranges.zone(given.one("tz"))
    start_ms, end_ms = ranges.last_hour(given, now_ms=now_ms, zone=zone)
    ranked = functions.asked(given.words("fn"), meter)
    if len(ranked) > 1 and "fn" in given.values:
        raise Problem(400, "bad_function", f"top ranks by one fn, not by {', '.join(ranked)}", parameter="fn")
    question = Question(
        meter,
        given.where,
        by,
        tuple(dict.fromkeys([ranked[0], *meter.meter.compute])),
        ranges.widened(start_ms, end_ms, grain_s=meter.meter.grain_s),
        given.whole("k", default=10, most=settings.max_k, setting="query.max_k"),
        by_growth=given.one("rank") == "growth",
        late=_late(given, meter),
    )
    question = _joined(question, given, columns, now_ms=now_ms)
    return _compared(_slid(question, given, settings), given, zone)


def live(meter: RegisteredMeter, pairs: Pairs) -> Mapping[str, Sequence[str]]:
    """The labels to follow."""
    given = _given(meter, pairs, LIVE, Columns(meter, None))
    if (form := given.one("format")) not in (None, "json"):
        raise Problem(400, "bad_choice", f"format = {form!r}: live sends events of JSON only", parameter="format")
    return given.where


def _given(meter: RegisteredMeter, pairs: Pairs, allowed: Sequence[str], columns: Columns) -> Given:
    names = dict.fromkeys(name.removeprefix(LABEL) for name, _ in pairs if name not in RESERVED)
    of_tables = [name for name in names if columns.is_known(name)]
    for name in of_tables:
        columns.check(name, name)
    return sort_out(pairs, allowed=allowed, question=f"meter {meter.meter.name}", keys=(*meter.labels, *of_tables))


def _joined(question: Question, given: Given, columns: Columns, *, now_ms: int) -> Question:
    """With the columns of tables that it names, as they are at the end of its range."""
    labels, end_s = question.meter.labels, question.range.end_s
    at_ms = now_ms if end_s is None else end_s * 1000 - 1
    names = [name for name in (*question.by, *question.where) if name not in labels]
    added = []
    for name in given.words("with"):
        columns.check(name, "with")
        column = columns.joined(name, at_ms=at_ms)
        if column.label not in question.by and len(question.where.get(column.label, ())) != 1:
            detail = (
                f"with={name} is that of one {column.label}; add by={column.label}, or {column.label}= with a value"
            )
            raise Problem(400, "missing_parameter", detail, parameter="by")
        added.append(column)
    if not names and not added:
        return question
    return replace(question, joined={name: columns.joined(name, at_ms=at_ms) for name in names}, added=tuple(added))


def _slid(question: Question, given: Given, settings: QuerySettings) -> Question:
    """With the window that slides over the range of a total or top, if there is one."""
    text, over = given.one("window"), given.one("over")
    if text is None:
        if over is not None:
            raise Problem(400, "missing_parameter", f"over={over} needs a window=, such as 10m", parameter="window")
        return question
    grain_s, span = question.meter.meter.grain_s, question.range
    window = windows.sliding(text, over or windows.OVER[0], grain_s=grain_s)
    if span.start_s is None or span.end_s is None:
        detail = f"window={text} slides over a range, but the question is about all time: give from=, as in from=-1d"
        raise Problem(400, "needs_range", detail, parameter="window")
    grains = (span.end_s - span.start_s) // grain_s
    windows.check_fits(window, span, grains)
    windows.check_number(window, grains, settings)
    return replace(question, window=window)


def _compared(question: Question, given: Given, zone: tzinfo, step: Step | None = None) -> Question:
    text = given.one("compare")
    if text is None and question.by_growth:
        text = PREVIOUS
    if text is None:
        return question
    grain_s = question.meter.meter.grain_s
    return replace(question, comparison=comparing.parse(text, question.range, zone=zone, grain_s=grain_s, step=step))


def _check_points(points: int, settings: QuerySettings) -> None:
    if points > settings.max_points:
        raise limits.too_many_points(points, settings)


def _check_named(given: Given, by: Sequence[str], settings: QuerySettings) -> None:
    """Every combination of the named values is an item, with or without events."""
    named = prod(len(given.where.get(key, ())) for key in by)
    if by and named > settings.max_k:
        raise limits.too_many_items(named, settings)


def _late(given: Given, meter: RegisteredMeter) -> str:
    late = given.one("late") or "without"
    if late != "without" and (meter.meter.late is None or meter.meter.late.then != "aside"):
        detail = (
            f"late={late}: meter {meter.meter.name} puts no late events aside; that takes"
            " late: {after: 1h, then: aside} in its definition"
        )
        raise Problem(400, "nothing_aside", detail, parameter="late")
    return late


def _keys(given: Given, meter: RegisteredMeter, columns: Columns) -> tuple[str, ...]:
    by = given.words("by", known=meter.labels)
    for key in by:
        if key not in meter.labels and "." in key:
            columns.check(key, "by")
        elif key not in meter.labels:
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
