"""The windows of a saved query: those that are stored from the store of windows, the others computed now."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any

import polars as pl

from tallymark.aggregates.columns import NAMES
from tallymark.aggregates.functions import Value
from tallymark.evaluation import content
from tallymark.evaluation.plan import Plan
from tallymark.evaluation.steps import Edges
from tallymark.evaluation.values import NOTHING, RATE, largest, unknown, values
from tallymark.events.moments import rfc3339_s
from tallymark.fidelity.freshness import Freshness
from tallymark.http import Problem
from tallymark.query import limits, queries_api, sentences, windows
from tallymark.query.answers import Answer, answered, fresh
from tallymark.query.over_time import Labels, Point, edges_of, in_buckets, seconds_of, spans_of
from tallymark.query.parameters import sort_out
from tallymark.query.parsing import Question
from tallymark.query.ranges import Range
from tallymark.query.reading import key_columns
from tallymark.query.routes import Request
from tallymark.query.sources import Sources
from tallymark.store.protocol import Snapshot, TooManyBytes, TooManyRows
from tallymark.store.windows import Lineage

PATH = f"{queries_api.PATH}/series"
PARAMETERS = ("from", "to", "limit", "format", "consistency")

Windows = dict[int, dict[Labels, Point]]
"""start -> what each series has there"""


@dataclass(frozen=True, slots=True)
class SavedQuestion(Question):
    """A range of a saved query."""

    plan: Plan | None = None

    def key(self, kind: str) -> str:
        assert self.plan is not None
        return Question.key(self, f"{kind} {self.plan.digest}")


def understanding(sources: Sources) -> Callable[[Request], Question]:
    def understand(request: Request) -> Question:
        sort_out(request.pairs, allowed=PARAMETERS, question=f"saved query {request.arguments['name']}")
        saved = queries_api.known_query(sources, request.tenant, request.arguments["name"])
        if saved.plan is None:
            raise Problem(404, "unknown_meter", f"{saved.document.name} cannot be answered: {saved.problem}")
        plan = saved.plan
        pairs = [*request.pairs, *([("tz", saved.definition.tz)] if saved.definition.tz else [])]
        # LIMIT is of each window, `limit` of the answer.
        question = sentences.asked(sources, replace(saved.query, limit=None), plan.meter, plan.where, pairs)
        given = {each.name: getattr(question, each.name) for each in fields(Question)}
        return SavedQuestion(**{**given, "query": saved.document.name}, plan=plan)

    return understand


def series(sources: Sources, question: Question) -> Answer:
    assert isinstance(question, SavedQuestion)
    assert question.plan is not None
    settings = sources.settings.query
    spans = spans_of(question, question.range)
    lineage = queries_api.lineage_of(sources, question.plan)
    found = _stored(sources, question, lineage, spans)
    with sources.store.snapshots.take() as snapshot:
        freshness = fresh(sources, snapshot, question)
        try:
            rows = [_rows(snapshot, question, part, settings.max_points) for part in _missing(question, spans, found)]
        except TooManyRows:
            raise limits.too_many_points(None, settings) from None
        except TooManyBytes as error:
            raise limits.too_many_bytes(error.most_bytes) from None
    for part in rows:
        found |= _computed(question, part, dict(spans), freshness)
    lines: set[Labels] = {labels for window in found.values() for labels in window} if question.by else {()}
    kept = _largest(question, found, lines)
    if len(kept) * len(spans) > settings.max_points:
        raise limits.too_many_points(len(kept) * len(spans), settings)
    blank = _blank(question, freshness)
    shown = [
        {
            "labels": dict(zip(question.by, labels, strict=True)),
            "points": [
                {"time": rfc3339_s(start_s), **found.get(start_s, {}).get(labels, blank(end_s))}
                for start_s, end_s in spans
            ],
        }
        for labels in sorted(kept)
    ]
    body: dict[str, Any] = {
        "series": shown,
        "stored_through": rfc3339_s(lineage.through_s) if lineage and lineage.windows else None,
        **({"left_out": len(lines) - len(kept)} if len(kept) < len(lines) else {}),
    }
    everything = pl.concat([NOTHING.clear(), *(part.select(NAMES) for part in rows)])
    return answered(question, freshness, [everything], body, shown)


def _stored(sources: Sources, question: Question, lineage: Lineage | None, spans: Sequence[tuple[int, int]]) -> Windows:
    if lineage is None:
        return {}
    found = sources.store.windows.read(lineage, spans[0][0], spans[-1][0] + 1)
    starts = {start_s for start_s, _ in spans}
    return {start_s: dict(_lines(question, body)) for start_s, body in found if start_s in starts}


def _lines(question: Question, body: bytes) -> Iterator[tuple[Labels, Point]]:
    kept = content.decode(body)
    numbers = list(zip(*kept.values, strict=True))
    lines: Iterable[Labels] = zip(*kept.labels, strict=True) if question.by else [()] * len(numbers)
    for labels, row in zip(lines, numbers, strict=True):
        yield labels, dict(zip(question.functions, row, strict=True))


def _missing(question: Question, spans: Sequence[tuple[int, int]], found: Windows) -> Iterator[Range]:
    """The stretches of windows that are not stored."""
    seconds = edges_of(question.range).seconds
    buckets = question.window.buckets if question.window else 1
    for is_stored, group in groupby(range(len(spans)), key=lambda place: spans[place][0] in found):
        if not is_stored:
            places = list(group)
            part = seconds[places[0] : places[-1] + buckets + 1]
            edges = Edges(part, edges_of(question.range).read_s)
            yield Range(edges.start_s, edges.end_s, edges=edges)


def _rows(snapshot: Snapshot, question: SavedQuestion, span: Range, most_rows: int) -> pl.DataFrame:
    """One row a series and window that has events; of each window as many series as the query keeps."""
    assert question.plan is not None
    keys = key_columns(question)
    rows = in_buckets(snapshot, question, span, most_rows=most_rows)
    if question.window and question.window.buckets > 1:
        rows = windows.over_buckets(rows, keys, edges_of(span).seconds[:-1], question.window.buckets)
    most = question.plan.most
    if most is None or not keys:
        return rows
    by_window = rows.partition_by("bucket_s", maintain_order=True)
    parts = [largest(each, keys, question.functions[0], question.meter, most=most) for each in by_window]
    return pl.concat(parts) if parts else rows


def _computed(question: Question, rows: pl.DataFrame, ends: Mapping[int, int], fresh: Freshness) -> Windows:
    starts: list[int] = rows["bucket_s"].to_list()
    seconds = seconds_of(starts, ends, fresh) if RATE in question.functions else None
    numbers = values(rows, question.functions, question.meter, seconds=seconds)
    lines = rows.select(key_columns(question)).iter_rows() if question.by else [()] * rows.height
    found: Windows = {}
    for start_s, labels, point in zip(starts, lines, numbers, strict=True):
        found.setdefault(start_s, {})[labels] = point
    return found


def _largest(question: Question, found: Windows, lines: set[Labels]) -> set[Labels]:
    """Those with the greatest values of the first function, if the answer is limited."""
    if len(lines) <= question.most:
        return lines
    name = question.functions[0]

    def greatest(labels: Labels) -> tuple[float, Labels]:
        own: list[Value] = [window[labels][name] for window in found.values() if labels in window]
        return -max((float(value) for value in own if value is not None), default=float("-inf")), labels

    return set(sorted(lines, key=greatest)[: question.most])


def _blank(question: SavedQuestion, fresh: Freshness) -> Callable[[int], Point]:
    """What a window has that ends then, of a series without events: nothing, once it is complete; else unknown."""
    assert question.plan is not None
    (empty,) = values(NOTHING, question.functions, question.meter, seconds=[1.0])
    nobody_knows = unknown(question.functions)
    # Of a query with a limit, a series that is not there may only be smaller than the others.
    complete_s = None if fresh.complete_through_ms is None else fresh.complete_through_ms // 1000
    if complete_s is None or (question.plan.most is not None and question.by):
        return lambda end_s: nobody_knows
    return lambda end_s: empty if end_s <= complete_s else nobody_knows
