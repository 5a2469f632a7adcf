"""A question to the points of one grain, as SQL: which series, which buckets, which aggregates."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tallymark.aggregates.columns import COLUMNS
from tallymark.store.grains import Piece
from tallymark.store.hot import Wanted
from tallymark.store.read_plan import Question
from tallymark.store.sqlite.series import SUM_OF_ALL, labels_text

# Series that are named in full are looked up one by one up to this many, else by the label index. Not tuned.
MAX_NAMED_SERIES = 200

_BY_NAME = {column.name: column for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class Statement:
    sql: str
    parameters: tuple[object, ...]


def statement_for(question: Question, piece: Piece) -> Statement:
    """One row a series and step; without `by` one row a step. Several of each where SQL cannot merge them."""
    # What SQL cannot merge comes row by row, and `Answer` merges it.
    merged = [_BY_NAME[name].rule.merged_sql(name) for name in question.columns]
    is_merged = None not in merged
    columns: list[str] = []
    groups: list[str] = []
    if question.by:
        columns.append("series.series_id")
        groups.append("series.series_id")
    if question.step_s is not None:
        columns.append(f"{_bucket(question, piece)} AS step_s")
        groups.append("step_s")
    columns += [
        sql if is_merged and sql else f"points.{name}" for name, sql in zip(question.columns, merged, strict=True)
    ]
    chosen, parameters = _series(question)
    # From series to points: a seek for each series. The CROSS JOIN keeps SQLite from turning that round.
    sql = (
        f"SELECT {', '.join(columns)} FROM series CROSS JOIN points_{piece.grain_s} AS points"
        " ON points.series_id = series.series_id AND points.bucket_s >= ? AND points.bucket_s < ?"
        f" WHERE {chosen}"
    )
    if groups and is_merged:
        sql += f" GROUP BY {', '.join(groups)}"
    return Statement(sql, (piece.start_s, piece.end_s, *parameters))


def recent_points(wanted: Wanted) -> Statement:
    """All points of a set from some moment on: number of the series, bucket, columns."""
    named = ", ".join(f"points.{name}" for name in wanted.names)
    return Statement(
        f"SELECT series.series_id, points.bucket_s, {named} FROM series"
        f" CROSS JOIN points_{wanted.meter.meter.grain_s} AS points"
        " ON points.series_id = series.series_id AND points.bucket_s >= ?"
        " WHERE series.set_id = ? AND series.labels <> ?",
        (wanted.start_s, wanted.set_id, SUM_OF_ALL),
    )


def _bucket(question: Question, piece: Piece) -> str:
    if question.step_s == piece.grain_s:
        return "points.bucket_s"
    # SQLite's remainder takes the sign of the left side; this one rounds down before 1970 too.
    return f"points.bucket_s - ((points.bucket_s % {question.step_s}) + {question.step_s}) % {question.step_s}"


def _series(question: Question) -> tuple[str, list[object]]:
    set_id = question.set_id
    if not question.where:
        # The number of that series rather than its labels: so the index over meters suffices.
        is_sum = "IS" if question.reads_sums else "IS NOT"
        the_sum = "(SELECT series_id FROM series WHERE set_id = ? AND labels = ?)"
        return f"series.set_id = ? AND series.series_id {is_sum} {the_sum}", [set_id, set_id, SUM_OF_ALL]
    if (
        set(question.where) == set(question.meter.labels)
        and prod(map(len, question.where.values())) <= MAX_NAMED_SERIES
    ):
        named = [labels_text(values) for values in product(*(question.where[label] for label in question.meter.labels))]
        return f"series.set_id = ? AND series.labels IN ({_marks(named)})", [set_id, *named]
    conditions: list[str] = []
    parameters: list[object] = []
    for label, values in question.where.items():
        conditions.append(
            "series.series_id IN (SELECT series_id FROM series_labels"
            f" WHERE set_id = ? AND key = ? AND value IN ({_marks(values)}))"
        )
        parameters += [set_id, question.meter.labels.index(label), *values]
    return " AND ".join(conditions), parameters


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
