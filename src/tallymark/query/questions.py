"""The answers: total, series and top, each from one snapshot of the store."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from tallymark.query import question as understood
from tallymark.query.freshness import Freshness, freshness
from tallymark.query.meters_api import known_meter
from tallymark.query.moments import spoken_s
from tallymark.query.parameters import Pairs
from tallymark.query.question import Question
from tallymark.query.sources import Sources
from tallymark.query.steps import Edges
from tallymark.query.values import Sums, largest, ranking, rows, unknown, values
from tallymark.store.model import label_column

Labels = tuple[str, ...]


def total(sources: Sources, name: str, pairs: Pairs) -> dict[str, Any]:
    """One number an aggregate, of all time or of a range."""
    question = understood.total(known_meter(sources.store, name), pairs, now_ms=sources.clock_ms())
    frame, fresh = _read(sources, question, step_s=None)
    sums = Sums()
    for _, row in rows(frame, ()):
        sums.add(row)
    value = values(sums, question.functions, question.meter.meter)
    return {**_head(question), "value": value, "range": question.range.spoken(), **_foot(question, fresh)}


def series(sources: Sources, name: str, pairs: Pairs) -> dict[str, Any]:
    """The aggregates of every bucket, for each combination of the labels `by`."""
    limits = sources.settings.query
    question = understood.series(known_meter(sources.store, name), pairs, now_ms=sources.clock_ms(), limits=limits)
    edges = question.edges
    assert edges is not None
    frame, fresh = _read(sources, question, step_s=edges.read_s)
    found = _regrouped(frame, question.by, edges)
    kept = _largest(found, question)
    points = len(kept) * (len(edges.seconds) - 1)
    if points > limits.max_points:
        raise understood.too_many_points(points, limits)
    lines = [
        {
            "labels": dict(zip(question.by, labels, strict=True)),
            "points": _points(found[labels], question, edges, fresh),
        }
        for labels in sorted(kept)
    ]
    answer = {**_head(question), "series": lines, "range": question.range.spoken(), **_foot(question, fresh)}
    if question.tz:
        answer["tz"] = question.tz
    if len(kept) < len(found):
        answer["left_out"] = len(found) - len(kept)
    return answer


def top(sources: Sources, name: str, pairs: Pairs) -> dict[str, Any]:
    """The largest series by one aggregate; ties by label."""
    limits = sources.settings.query
    question = understood.top(known_meter(sources.store, name), pairs, now_ms=sources.clock_ms(), limits=limits)
    frame, fresh = _read(sources, question, step_s=None)
    meter = question.meter.meter
    columns = [label_column(label) for label in question.by]
    first = largest(frame, columns, question.functions[0], meter, most=question.most)
    items = [
        {"labels": dict(zip(question.by, labels, strict=True)), "value": values(sums, question.functions, meter)}
        for labels, sums in rows(first, columns)
    ]
    return {**_head(question), "items": items, "range": question.range.spoken(), **_foot(question, fresh)}


def _read(sources: Sources, question: Question, *, step_s: int | None) -> tuple[pl.DataFrame, Freshness]:
    with sources.store.snapshot() as snapshot:
        frame = snapshot.read(
            question.meter,
            where=question.where,
            by=question.by,
            start_s=question.range.start_s,
            end_s=question.range.end_s,
            step_s=step_s,
        )
        fresh = freshness(
            snapshot,
            sources.events,
            now_ms=sources.clock_ms(),
            accept_past_s=sources.settings.events.accept_past_s,
        )
    return frame, fresh


def _regrouped(frame: pl.DataFrame, by: Sequence[str], edges: Edges) -> dict[Labels, dict[int, Sums]]:
    """Labels -> bucket start -> sums. Calendar buckets were read in a finer step, so several rows may meet in one."""
    found: dict[Labels, dict[int, Sums]] = {} if by else {(): {}}
    for (*labels, read_s), sums in rows(frame, (*map(label_column, by), "bucket_s")):
        buckets = found.setdefault(tuple(labels), {})
        start_s = edges.bucket_of(read_s)
        if start_s in buckets:
            buckets[start_s].add(sums)
        else:
            buckets[start_s] = sums
    return found


def _largest(found: dict[Labels, dict[int, Sums]], question: Question) -> list[Labels]:
    if len(found) <= question.most:
        return list(found)
    totals = {}
    for labels, buckets in found.items():
        whole = Sums()
        for sums in buckets.values():
            whole.add(sums)
        totals[labels] = ranking(values(whole, question.functions, question.meter.meter), question.functions[0])
    return sorted(sorted(found), key=totals.__getitem__, reverse=True)[: question.most]


def _points(buckets: dict[int, Sums], question: Question, edges: Edges, fresh: Freshness) -> list[dict[str, Any]]:
    """A bucket without events is empty once it is complete; until then nobody can know."""
    meter, functions = question.meter.meter, question.functions
    empty, not_known = values(Sums(), functions, meter), unknown(functions)
    points = []
    for start_s, end_s in edges.buckets():
        value = empty if fresh.is_complete(end_s) else not_known
        if start_s in buckets:
            value = values(buckets[start_s], functions, meter)
        points.append({"time": spoken_s(start_s), **value})
    return points


def _head(question: Question) -> dict[str, Any]:
    return {"meter": question.meter.meter.name, "where": {key: list(wanted) for key, wanted in question.where.items()}}


def _foot(question: Question, fresh: Freshness) -> dict[str, Any]:
    foot: dict[str, Any] = {"freshness": fresh.spoken(meter_version=question.meter.version)}
    if question.meter.broken:
        foot["broken"] = question.meter.broken
    return foot
