"""An answer as it comes together, part by part."""

import polars as pl

from tallymark.aggregates import columns
from tallymark.store.model import label_column
from tallymark.store.protocol import TooManyBytes, TooManyRows
from tallymark.store.read_plan import Question

# Rows as Python objects take about 500 bytes, as columns 80: so few of them at a time.
ROWS_AT_ONCE = 20_000


class Answer:
    """Parts are merged as they come, so that a question by few labels of a meter with many series stays small."""

    def __init__(self, question: Question, *, most_rows: int | None, most_bytes: int | None) -> None:
        labels = [label_column(label) for label in question.by]
        self._keys = labels if question.step_s is None else [*labels, "bucket_s"]
        self._read = [*self._keys, *question.columns]
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._merged: pl.DataFrame | None = None
        self._parts: list[pl.DataFrame] = []
        self._waiting = 0

    def add(self, part: pl.DataFrame) -> None:
        self._parts.append(part.select(self._read))
        self._waiting += part.height
        # Only when as much has come as there is: so each row is merged a few times, however many parts there are.
        if self._waiting >= max(ROWS_AT_ONCE, 0 if self._merged is None else self._merged.height):
            self._merge()

    def whole(self) -> pl.DataFrame:
        """Sorted by its keys, with all columns: those that were not read hold nothing."""
        merged = self._merge()
        missing = [column.left_out for column in columns.COLUMNS if column.name not in self._read]
        whole = merged.with_columns(missing).select(*self._keys, *columns.NAMES)
        return whole.sort(self._keys) if self._keys else whole

    def _merge(self) -> pl.DataFrame:
        rows = pl.concat(self._parts if self._merged is None else [self._merged, *self._parts])
        merged = columns.merge(rows, self._keys)
        if self._most_rows is not None and merged.height > self._most_rows:
            raise TooManyRows(self._most_rows)
        if self._most_bytes is not None and merged.estimated_size() > self._most_bytes:
            raise TooManyBytes(self._most_bytes)
        self._merged, self._parts, self._waiting = merged, [], 0
        return merged
