"""The answers: total, series and top, each from one snapshot of the store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from tallymark.aggregates import columns
from tallymark.events.moments import rfc3339_s
from tallymark.fidelity.freshness import Freshness, freshness
from tallymark.query import parsing
from tallymark.query.cache import Computed
from tallymark.query.parsing import Question
from tallymark.query.response import json_response
from tallymark.query.sources import Sources
from tallymark.query.steps import Edges
from tallymark.query.values import NOTHING, Row, lacking, largest, rows, since, unknown, values
from tallymark.store.model import label_column
from tallymark.store.protocol import Snapshot, TooManyBytes, TooManyRows

# Of what the store reads for one question, as columns. A top reads one row per series, so this also bounds how many can
# be ranked: with a label of 12 letters one takes 20 bytes if it only counts, and 52 with sum, min and max.
MOST_BYTES = 120_000_000
# Labels to filter by, one by one, when only the kept series are read again; SQLite takes at least 32,766 parameters.
MOST_NAMED = 10_000

Labels = tuple[str, ...]


def total(sources: Sources, question: Question) -> Computed:
    """One number per aggregate, over all time or over a range."""
    with sources.store.snapshots.take() as snapshot:
        frame = _read(snapshot, question)
        fresh = _fresh(sources, snapshot, question)
    ((_, row),) = rows(frame, ())
    value = values(row, question.functions, question.meter)
    return _computed(question, fresh, _since(question, [row]), value=value)


def series(sources: Sources, question: Question) -> Computed:
    """The aggregates of every bucket, for each combination of the labels `by`."""
    limits = sources.settings.query
    edges = question.edges
    assert edges is not None
    with sources.store.snapshots.take() as snapshot:
        try:
            frame, left_out = _over_time(sources, snapshot, question, edges)
        except TooManyRows:
            raise parsing.too_many_points(None, limits) from None
        except TooManyBytes as error:
            raise parsing.too_many_bytes(error.most_bytes) from None
        fresh = _fresh(sources, snapshot, question)
    found: dict[Labels, dict[int, Row]] = {} if question.by else {(): {}}
    for (*labels, start_s), row in rows(frame, (*_columns(question), "bucket_s")):
        found.setdefault(tuple(labels), {})[start_s] = row
    lines = [
        {
            "labels": dict(zip(question.by, labels, strict=True)),
            "points": _points(found[labels], question, edges, fresh),
        }
        for labels in sorted(found)
    ]
    rest: dict[str, Any] = {"tz": question.tz} if question.tz else {}
    rest |= {"left_out": left_out} if left_out else {}
    rest |= _since(question, (row for buckets in found.values() for row in buckets.values()))
    return _computed(question, fresh, rest, series=lines)


def top(sources: Sources, question: Question) -> Computed:
    """The largest series by one aggregate; ties by label."""
    with sources.store.snapshots.take() as snapshot:
        try:
            first, _ = _largest(snapshot, question)
        except TooManyBytes as error:
            raise parsing.too_many_bytes(error.most_bytes) from None
        fresh = _fresh(sources, snapshot, question)
    found = list(rows(first, _columns(question)))
    items = [
        {
            "labels": dict(zip(question.by, labels, strict=True)),
            "value": values(row, question.functions, question.meter),
        }
        for labels, row in found
    ]
    return _computed(question, fresh, _since(question, (row for _, row in found)), items=items)


def _over_time(sources: Sources, snapshot: Snapshot, question: Question, edges: Edges) -> tuple[pl.DataFrame, int]:
    """The rows of the series that are kept, and how many series are not.

    Everything stays in columns until it is known to fit: as objects, 20,000 series of an hour took 590 MB and 8 s.
    """
    limits = sources.settings.query
    buckets = len(edges.seconds) - 1
    most_series = limits.max_points // buckets
    if question.by and question.most <= most_series:
        kept, left_out = _largest(snapshot, question)
        frame = _read(snapshot, question, where=_named(question, kept), step_s=edges.read_s)
        return _in_buckets(frame.join(kept, on=_columns(question), how="semi"), question, edges), left_out
    reads = (edges.end_s - edges.start_s) // edges.read_s
    frame = _read(snapshot, question, step_s=edges.read_s, most_rows=max(1, most_series) * reads)
    found = frame.select(_columns(question)).n_unique() if question.by else 1
    if found > most_series:
        raise parsing.too_many_points(found * buckets, limits)
    return _in_buckets(frame, question, edges), 0


def _largest(snapshot: Snapshot, question: Question) -> tuple[pl.DataFrame, int]:
    """The series that come first, one row each, and how many others there are."""
    frame = _read(snapshot, question)
    first = largest(frame, _columns(question), question.functions[0], question.meter, most=question.most)
    return first, frame.height - first.height


def _named(question: Question, kept: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    """A filter that lets all kept series through, and others only if they share labels with several of them."""
    if kept.is_empty() or kept.height * len(question.by) > MOST_NAMED:
        return question.where
    labels = {label: kept[label_column(label)].unique(maintain_order=True).to_list() for label in question.by}
    return {**question.where, **labels}


def _in_buckets(frame: pl.DataFrame, question: Question, edges: Edges) -> pl.DataFrame:
    """Calendar buckets were read in a finer step, so several rows may meet in one."""
    if edges.are_even:
        return frame
    starts = pl.Series("bucket_s", edges.seconds[:-1], dtype=pl.Int64)
    places = starts.search_sorted(frame["bucket_s"], side="right") - 1
    return columns.merge(frame.with_columns(starts.gather(places)), [*_columns(question), "bucket_s"])


def _columns(question: Question) -> list[str]:
    return [label_column(label) for label in question.by]


def _read(
    snapshot: Snapshot,
    question: Question,
    *,
    where: Mapping[str, Sequence[str]] | None = None,
    step_s: int | None = None,
    most_rows: int | None = None,
) -> pl.DataFrame:
    return snapshot.read(
        question.meter,
        where=question.where if where is None else where,
        by=question.by,
        start_s=question.range.start_s,
        end_s=question.range.end_s,
        step_s=step_s,
        most_rows=most_rows,
        most_bytes=MOST_BYTES,
    )


def _fresh(sources: Sources, snapshot: Snapshot, question: Question) -> Freshness:
    return freshness(
        snapshot,
        sources.events,
        clock_ms=sources.clock_ms,
        accept_past_s=sources.settings.events.accept_past_s,
        records_lost=sources.lost.known(sources.store),
        tenant=question.meter.tenant,
    )


def _points(buckets: dict[int, Row], question: Question, edges: Edges, fresh: Freshness) -> list[dict[str, Any]]:
    """A bucket without events is empty once it is complete; until then its value is unknown."""
    meter, functions = question.meter, question.functions
    empty, not_known = values(NOTHING, functions, meter), unknown(functions)
    points = []
    for start_s, end_s in edges.buckets():
        value = empty if fresh.is_complete(end_s) else not_known
        if start_s in buckets:
            value = values(buckets[start_s], functions, meter)
        points.append({"time": rfc3339_s(start_s), **value})
    return points


def _since(question: Question, found: Iterable[Row]) -> dict[str, Any]:
    """Explains the nulls of functions that the meter did not compute from the beginning."""
    return since(question.meter, lacking(found, question.functions, question.meter))


def _computed(question: Question, fresh: Freshness, rest: Mapping[str, Any] | None = None, **found: Any) -> Computed:
    """Encoded here, so that a cached answer is not encoded again and its size is known."""
    meter = question.meter
    if fresh.loss is not None:
        fresh = replace(fresh, loss=fresh.loss + meter.missed)
    data = {
        "meter": meter.meter.name,
        "where": {key: list(wanted) for key, wanted in question.where.items()},
        **found,
        "range": question.range.to_json(),
        "freshness": fresh.to_json(meter_version=meter.version),
        **({"broken": meter.broken} if meter.broken else {}),
        **(rest or {}),
    }
    return Computed(json_response(data), fresh.applied)
