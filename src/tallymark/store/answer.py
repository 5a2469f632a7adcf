"""An answer as it comes together, part by part."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from tallymark.aggregates import columns
from tallymark.store import numeric
from tallymark.store.model import label_column
from tallymark.store.protocol import TooManyBytes, TooManyRows
from tallymark.store.read_plan import Question

# Rows as Python objects take about 500 bytes, as columns 80: so few of them at a time.
ROWS_AT_ONCE = 20_000
# A sketch of many distinct values takes 8,200 bytes.
SKETCHES_AT_ONCE = 2_000


def rows_at_once(question: Question) -> int:
    return SKETCHES_AT_ONCE if columns.SKETCH in question.columns else ROWS_AT_ONCE


class Answer:
    """Parts are merged as they come, so that a question by few labels of a meter with many series stays small."""

    def __init__(self, question: Question, *, most_rows: int | None, most_bytes: int | None) -> None:
        labels = [label_column(label) for label in question.by]
        self._keys = labels if question.step_s is None else [*labels, "bucket_s"]
        self._read = [*self._keys, *question.columns]
        self._at_once = rows_at_once(question)
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._merged: pl.DataFrame | None = None
        self._parts: list[pl.DataFrame] = []
        self._waiting = 0

    def add(self, part: pl.DataFrame) -> None:
        self._parts.append(part.select(self._read))
        self._waiting += part.height
        # Only when as much has come as there is: so each row is merged a few times, however many parts there are.
        if self._waiting >= max(self._at_once, 0 if self._merged is None else self._merged.height):
            self._merge()

    def whole(self) -> pl.DataFrame:
        """Sorted by its keys, with all columns: those that were not read hold nothing."""
        merged = self._merge()
        missing = [column.left_out for column in columns.COLUMNS if column.name not in self._read]
        whole = merged.with_columns(missing).select(*self._keys, *columns.NAMES)
        return whole.sort(self._keys) if self._keys else whole

    def _merge(self) -> pl.DataFrame:
        rows = pl.concat(self._parts if self._merged is None else [self._merged, *self._parts])
        merged = within(columns.merge(rows, self._keys), most_rows=self._most_rows, most_bytes=self._most_bytes)
        self._merged, self._parts, self._waiting = merged, [], 0
        return merged


def within(found: pl.DataFrame, *, most_rows: int | None, most_bytes: int | None) -> pl.DataFrame:
    """The same, if it is no larger than that."""
    if most_rows is not None and found.height > most_rows:
        raise TooManyRows(most_rows)
    if most_bytes is not None and found.estimated_size() > most_bytes:
        raise TooManyBytes(most_bytes)
    return found


def is_plain(question: Question) -> bool:
    """Whether `plain` answers it: numbers of a range or over time, not of each series, and SQL can merge them."""
    return not question.by and "last" not in question.columns and numeric.can_merge(question.columns)


def plain(question: Question, parts: Sequence[numeric.Arrays]) -> pl.DataFrame:
    """The whole answer from parts that have the question's columns and, if it has a step, `bucket_s`.

    In NumPy: with Polars, 16 calls at 20 to 60 us each were most of what a total took.
    """
    parts = [part for part in parts if len(part["n"])]
    if question.step_s is None:
        merged = numeric.Merged(question.columns, 1)
        for part in parts:
            merged.add(np.zeros(len(part["n"]), np.intp), part, unique=False)
        return pl.DataFrame(merged.series())
    if not parts:
        return pl.DataFrame([pl.Series("bucket_s", [], pl.Int64), *numeric.Merged(question.columns, 0).series()])
    joined = {name: np.concatenate([part[name] for part in parts]) for name in ("bucket_s", *question.columns)}
    buckets, at = np.unique(joined.pop("bucket_s"), return_inverse=True)
    merged = numeric.Merged(question.columns, len(buckets))
    merged.add(at, joined, unique=False)
    return pl.DataFrame([pl.Series("bucket_s", buckets), *merged.series()])
