"""What the store has for a question: rows of its range, or of the range it is compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from tallymark.aggregates import columns
from tallymark.meters.model import OTHER
from tallymark.query import joining, limits
from tallymark.query.parsing import Question
from tallymark.query.ranges import Range
from tallymark.store.model import label_column
from tallymark.store.protocol import Snapshot, TooManyRows
from tallymark.store.read_plan import Question as StoreQuestion

# Of what the store reads for one question, as columns. A top reads one row per series, so this also bounds how many can
# be ranked: with a label of 12 letters one takes 20 bytes if it only counts, and 52 with sum, min and max.
MOST_BYTES = 120_000_000
# Labels to filter by, one by one, when only the kept series are read again; SQLite takes at least 32,766 parameters.
MOST_NAMED = 10_000
# Of labels whose series become fewer by what a table says of them.
MOST_MERGED_ROWS = 1_000_000


def key_columns(question: Question) -> list[str]:
    return [label_column(label) for label in question.by]


def read(
    snapshot: Snapshot,
    question: Question,
    span: Range,
    *,
    only: pl.DataFrame | None = None,
    step_s: int | None = None,
    most_rows: int | None = None,
) -> pl.DataFrame:
    """In any order. `only` has the labels of the series that are wanted."""
    lates = {"without": [False], "only": [True], "with": [False, True]}[question.late]
    where = question.where if only is None else _named(question, only)
    plan = joining.planned(question.by, where, question.joined, most_named=MOST_NAMED)
    try:
        parts = [
            snapshot.read(
                StoreQuestion.between(
                    question.meter,
                    where=plan.where,
                    by=plan.by,
                    start_s=span.start_s,
                    end_s=span.end_s,
                    step_s=step_s,
                    functions=question.functions,
                    late=late,
                ),
                most_rows=MOST_MERGED_ROWS if plan.is_merged else most_rows,
                most_bytes=MOST_BYTES,
            )
            for late in lates
        ]
    except TooManyRows:
        if plan.is_merged:
            raise limits.too_many_merged_rows(MOST_MERGED_ROWS) from None
        raise
    keys = [*key_columns(question), *(["bucket_s"] if step_s is not None else [])]
    rows = joining.translated(pl.concat(parts), plan, question.by, question.joined)
    if plan.is_merged or len(parts) > 1:
        rows = columns.merge(rows, keys)
    if plan.is_merged and most_rows is not None and rows.height > most_rows:
        raise TooManyRows(most_rows)
    return rows.join(only, on=key_columns(question), how="semi") if only is not None and question.by else rows


def others(snapshot: Snapshot, question: Question) -> int:
    """Events of a meter with `max_series` that lost their labels: some may be of the series asked about."""
    asked, labels = question.where, question.meter.labels
    if question.meter.meter.max_series is None or not (asked or question.by):
        return 0
    if any(OTHER in wanted for wanted in asked.values()):
        return 0  # asked for themselves
    all_other = replace(question, where=dict.fromkeys(labels, (OTHER,)), by=(), functions=("count",))
    return int(read(snapshot, all_other, question.range)["n"].sum())


def _named(question: Question, only: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    """A filter that lets all these series through, and others only if they share labels with several of them."""
    if only.is_empty() or only.height * len(question.by) > MOST_NAMED:
        return question.where
    labels = {label: only[label_column(label)].unique(maintain_order=True).to_list() for label in question.by}
    return {**question.where, **labels}
