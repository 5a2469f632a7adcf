"""Total and top: one value for each series, over a range or of the windows in it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import polars as pl

from tallymark.aggregates.functions import Value
from tallymark.evaluation.values import largest, values
from tallymark.events.moments import rfc3339_s
from tallymark.fidelity.freshness import Freshness
from tallymark.query import limits
from tallymark.query.answers import Answer, answered
from tallymark.query.answers import fresh as how_fresh
from tallymark.query.comparing import changes
from tallymark.query.joining import added
from tallymark.query.measuring import empty, growth, measured
from tallymark.query.parsing import Question
from tallymark.query.ranges import Range
from tallymark.query.reading import key_columns, others, read
from tallymark.query.sources import Sources
from tallymark.store.protocol import Snapshot, TooManyBytes, TooManyRows

# Rows that windows slide over: series times grains with events.
MOST_WINDOW_ROWS = 200_000

Labels = tuple[str, ...]


def total(sources: Sources, question: Question) -> Answer:
    """One number per aggregate, over all time or over a range; with `by` for each combination of labels."""
    with sources.store.snapshots.take() as snapshot:
        rows = {span: _rows(snapshot, question, span) for span in question.ranges}
        freshness, other = how_fresh(sources, snapshot, question), others(snapshot, question)
    wanted = _named(question)
    if wanted is None:
        found = pl.concat([each.select(key_columns(question)) for each in rows.values()]).unique()
        if found.height > question.most:
            raise limits.too_many_items(found.height, sources.settings.query)
        wanted = sorted(found.iter_rows())
    items = _items(question, rows, wanted, freshness)
    read_rows = list(rows.values())
    if question.by:
        return answered(question, freshness, read_rows, {"items": items}, items, other=other)
    shown = {name: part for name, part in items[0].items() if name != "labels"}
    return answered(question, freshness, read_rows, shown, items, other=other)


def top(sources: Sources, question: Question) -> Answer:
    """The largest series by one aggregate, or those that grew most; ties by label."""
    with sources.store.snapshots.take() as snapshot:
        at_once = question.ranges if question.by_growth else [question.range]
        rows = {span: _rows(snapshot, question, span) for span in at_once}
        freshness, other = how_fresh(sources, snapshot, question), others(snapshot, question)
        kept = _ranked(question, rows, freshness).head(question.most).select(key_columns(question))
        for span in question.ranges:
            if span not in rows:
                rows[span] = _rows(snapshot, question, span, only=kept)
    rows = {span: each.join(kept, on=kept.columns, how="semi", maintain_order="left") for span, each in rows.items()}
    items = _items(question, rows, list(kept.iter_rows()), freshness)
    return answered(question, freshness, list(rows.values()), {"items": items}, items, other=other)


def _rows(snapshot: Snapshot, question: Question, span: Range, *, only: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row a series, or with a window one for each of its grains."""
    is_slid = question.window is not None
    try:
        return read(
            snapshot,
            question,
            span,
            only=only,
            step_s=question.meter.meter.grain_s if is_slid else None,
            most_rows=MOST_WINDOW_ROWS if is_slid else None,
        )
    except TooManyRows as error:
        raise limits.too_many_window_rows(error.most_rows) from None
    except TooManyBytes as error:
        raise limits.too_many_bytes(error.most_bytes) from None


def _named(question: Question) -> list[Labels] | None:
    """The series that must be in the answer, with or without events; None if the question does not name them all."""
    if not all(question.where.get(label) for label in question.by):
        return None
    return list(product(*(question.where[label] for label in question.by)))


def _ranked(question: Question, rows: Mapping[Range, pl.DataFrame], fresh: Freshness) -> pl.DataFrame:
    """All series, the first one first."""
    name, keys, now = question.functions[0], key_columns(question), rows[question.range]
    if question.by_growth:
        found = growth(question, rows, name, fresh)
    elif question.window:
        found = measured(question, question.range, now, name, fresh)
    else:
        return largest(now, keys, name, question.meter, most=question.most)
    falling = [True, *[False] * len(keys)]
    return found.sort("value", *keys, descending=falling, nulls_last=falling)


def _items(
    question: Question, rows: Mapping[Range, pl.DataFrame], wanted: Sequence[Labels], fresh: Freshness
) -> list[dict[str, Any]]:
    """The items of an answer, in the order wanted; a series without rows is one without events."""
    found = {span: _by_labels(question, span, rows[span], fresh) for span in rows}
    nothing = {name: (empty(question, name), None) for name in question.functions}
    items: list[dict[str, Any]] = []
    for labels, names in zip(wanted, added(question.added, question.by, question.where, wanted), strict=True):
        item: dict[str, Any] = {"labels": dict(zip(question.by, labels, strict=True)), **names}
        now = found[question.range].get(labels, nothing)
        item["value"] = {name: value for name, (value, _) in now.items()}
        if question.window and question.window.over != "avg":
            item["at"] = {name: _moment(at) for name, (_, at) in now.items()}
        if question.comparison:
            before = found[question.comparison.range].get(labels, nothing)
            item["before"] = {name: value for name, (value, _) in before.items()}
            item["change"] = changes(item["value"], item["before"])
        items.append(item)
    return items


Measures = dict[str, tuple[Value, int | None]]
"""function -> its value, and the start of the window that it is of"""


def _by_labels(question: Question, span: Range, rows: pl.DataFrame, fresh: Freshness) -> dict[Labels, Measures]:
    if question.window is None:
        seconds = span.seconds(fresh.now_ms / 1000)
        covered = None if seconds is None else [seconds] * rows.height
        valued = values(rows, question.functions, question.meter, seconds=covered)
        whole: list[Measures] = [{name: (value, None) for name, value in each.items()} for each in valued]
        return dict(zip(_labels(question, rows), whole, strict=True))
    found: dict[Labels, Measures] = {}
    for name in question.functions:
        chosen = measured(question, span, rows, name, fresh)
        pairs = zip(chosen["value"].to_list(), chosen["at"].to_list(), strict=True)
        for labels, pair in zip(_labels(question, chosen), pairs, strict=True):
            found.setdefault(labels, {})[name] = pair
    return found


def _labels(question: Question, rows: pl.DataFrame) -> Iterable[Labels]:
    return rows.select(key_columns(question)).iter_rows() if question.by else [()]


def _moment(start_s: int | None) -> str | None:
    return None if start_s is None else rfc3339_s(start_s)
