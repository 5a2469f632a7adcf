"""Series: a value for each bucket or window of a range, for each combination of labels."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tallymark.aggregates import columns
from tallymark.aggregates.functions import Value
from tallymark.evaluation.steps import Edges
from tallymark.evaluation.values import NOTHING, RATE, largest, unknown, values
from tallymark.events.moments import rfc3339_s
from tallymark.fidelity.freshness import Freshness
from tallymark.query import limits, windows
from tallymark.query.answers import Answer, answered, fresh
from tallymark.query.comparing import changes
from tallymark.query.joining import added
from tallymark.query.parsing import Question
from tallymark.query.ranges import Range, covered_s
from tallymark.query.reading import key_columns, others, read
from tallymark.query.sources import Sources
from tallymark.settings import QuerySettings
from tallymark.store.protocol import Snapshot, TooManyBytes, TooManyRows

Labels = tuple[str, ...]
Point = Mapping[str, Value]


def series(sources: Sources, question: Question) -> Answer:
    """The aggregates of every bucket, for each combination of the labels `by`."""
    settings = sources.settings.query
    with sources.store.snapshots.take() as snapshot:
        try:
            rows, left_out = _rows(snapshot, question, settings)
            before = _rows_before(snapshot, question, rows)
        except TooManyRows:
            raise limits.too_many_points(None, settings) from None
        except TooManyBytes as error:
            raise limits.too_many_bytes(error.most_bytes) from None
        freshness, other = fresh(sources, snapshot, question), others(snapshot, question)
    points = _points(question, question.range, rows, freshness)
    lines = sorted(points)
    times = [rfc3339_s(start_s) for start_s, _ in spans_of(question, question.range)]
    shown: list[dict[str, Any]] = []
    earlier = _points(question, question.comparison.range, before, freshness) if question.comparison else {}
    nothing = _blanks(question, question.comparison.range, freshness) if question.comparison else []
    for labels, names in zip(lines, added(question.added, question.by, question.where, lines), strict=True):
        found: list[dict[str, Any]] = [
            {"time": time, **value} for time, value in zip(times, points[labels], strict=True)
        ]
        if question.comparison:
            pairs = zip(found, points[labels], earlier.get(labels, nothing), strict=True)
            found = [{**point, "before": then, "change": changes(now, then)} for point, now, then in pairs]
        shown.append({"labels": dict(zip(question.by, labels, strict=True)), **names, "points": found})
    body: dict[str, Any] = {"series": shown, **({"left_out": left_out} if left_out else {})}
    return answered(question, freshness, [rows, before], body, shown, other=other)


def _rows(snapshot: Snapshot, question: Question, settings: QuerySettings) -> tuple[pl.DataFrame, int]:
    """The rows of the series that are kept, and how many series are not.

    Everything stays in columns until it is known to fit: as objects, 20,000 series of an hour took 590 MB and 8 s.
    """
    span, edges = question.range, edges_of(question.range)
    points = edges.count * (2 if question.comparison else 1)
    most_series = settings.max_points // points
    if question.by and question.most <= most_series:
        all_series = read(snapshot, question, span)
        first = largest(all_series, key_columns(question), question.functions[0], question.meter, most=question.most)
        kept = first.select(key_columns(question))
        return in_buckets(snapshot, question, span, only=kept), all_series.height - kept.height
    reads = 1 if edges.count == 1 else (edges.end_s - edges.start_s) // edges.read_s
    rows = in_buckets(snapshot, question, span, most_rows=max(1, most_series) * reads)
    found = rows.select(key_columns(question)).n_unique() if question.by else 1
    if found > most_series:
        raise limits.too_many_points(found * points, settings)
    return rows, 0


def _rows_before(snapshot: Snapshot, question: Question, rows: pl.DataFrame) -> pl.DataFrame:
    """Of the same series in the range compared with."""
    if question.comparison is None:
        return rows.clear()
    only = rows.select(key_columns(question)).unique() if question.by else None
    return in_buckets(snapshot, question, question.comparison.range, only=only)


def edges_of(span: Range) -> Edges:
    assert span.edges is not None
    return span.edges


def spans_of(question: Question, span: Range) -> list[tuple[int, int]]:
    """(start, end) of each window."""
    return edges_of(span).windows(question.window.buckets if question.window else 1)


def in_buckets(
    snapshot: Snapshot,
    question: Question,
    span: Range,
    *,
    only: pl.DataFrame | None = None,
    most_rows: int | None = None,
) -> pl.DataFrame:
    """One row a series and bucket that has events."""
    edges = edges_of(span)
    if edges.count == 1:
        rows = read(snapshot, question, span, only=only, most_rows=most_rows)
        # Without keys there is a row also of no events.
        return rows.filter(pl.col("n") > 0).with_columns(pl.lit(edges.start_s, pl.Int64).alias("bucket_s"))
    rows = read(snapshot, question, span, only=only, step_s=edges.read_s, most_rows=most_rows)
    if edges.are_even:
        return rows
    # Those of a calendar are read in a finer step, so several may meet in one.
    starts = pl.Series("bucket_s", edges.seconds[:-1], dtype=pl.Int64)
    places = starts.search_sorted(rows["bucket_s"], side="right") - 1
    return columns.merge(rows.with_columns(starts.gather(places)), [*key_columns(question), "bucket_s"])


def _points(question: Question, span: Range, rows: pl.DataFrame, fresh: Freshness) -> dict[Labels, list[Point]]:
    """One value a window, for each series."""
    keys, edges = key_columns(question), edges_of(span)
    if question.window and question.window.buckets > 1:
        rows = windows.over_buckets(rows, keys, edges.seconds[:-1], question.window.buckets)
    spans = spans_of(question, span)
    place = {start_s: number for number, (start_s, _) in enumerate(spans)}
    starts: Sequence[int] = rows["bucket_s"].to_list()
    seconds = seconds_of(starts, dict(spans), fresh) if RATE in question.functions else None
    found = values(rows, question.functions, question.meter, seconds=seconds)
    blanks = _blanks(question, span, fresh)
    points: dict[Labels, list[Point]] = {} if question.by else {(): [*blanks]}
    labels = rows.select(keys).iter_rows() if keys else [()] * rows.height
    for line, start_s, value in zip(labels, starts, found, strict=True):
        if line not in points:
            points[line] = [*blanks]
        points[line][place[start_s]] = value
    return points


def seconds_of(starts: Sequence[int], ends: Mapping[int, int], fresh: Freshness) -> list[float]:
    now_s = fresh.now_ms / 1000
    return [covered_s(start_s, ends[start_s], now_s) for start_s in starts]


def _blanks(question: Question, span: Range, fresh: Freshness) -> list[Point]:
    """What windows without events have: they are empty once they are complete; until then their value is unknown."""
    (empty,) = values(NOTHING, question.functions, question.meter, seconds=[1.0])
    ends = [end_s for _, end_s in spans_of(question, span)]
    complete = bisect_right(ends, fresh.complete_through_ms // 1000) if fresh.complete_through_ms is not None else 0
    blanks: list[Point] = [empty] * complete
    return blanks + [unknown(question.functions)] * (len(ends) - complete)
