"""Reading: points and the journal's tail in one snapshot, so that total = rolled + not yet rolled + tail."""

import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing

import polars as pl

from tallymark.store import deltas
from tallymark.store.deltas import AGGREGATES, SCHEMA, SEPARATOR
from tallymark.store.grains import EARLIEST_S, LATEST_S, pieces
from tallymark.store.lags import lag_of_all
from tallymark.store.model import Lag, Ledger, Marks, RegisteredMeter, label_column
from tallymark.store.protocol import TooManyRows
from tallymark.store.sqlite.journal import Tail
from tallymark.store.sqlite.labels import LabelTables
from tallymark.store.sqlite.marks import read_folding
from tallymark.store.sqlite.positions import EVENTS, read_positions
from tallymark.store.sqlite.question import Question

_AGGREGATE_TYPES = {name: SCHEMA[name] for name in AGGREGATES}
# Rows as Python objects take about 500 bytes, as columns 80: so few of them at a time.
_ROWS_AT_ONCE = 20_000


class SqliteSnapshot:
    """One moment of the store; lives as long as the transaction of its connection."""

    def __init__(self, connection: sqlite3.Connection, marks: Marks, tail: Tail, labels: LabelTables) -> None:
        self._connection = connection
        self._tail = tail
        self._labels = labels
        self.marks = marks

    def read(
        self,
        meter: RegisteredMeter,
        *,
        where: Mapping[str, Sequence[str]],
        by: Sequence[str],
        start_s: int | None,
        end_s: int | None,
        step_s: int | None,
        most_rows: int | None = None,
    ) -> pl.DataFrame:
        """Without `by` and `step_s` one row, also when nothing was counted. What a meter does not compute is null."""
        start = EARLIEST_S if start_s is None else start_s
        end = LATEST_S if end_s is None else end_s
        question = Question(meter, where, tuple(by), start, end, step_s)
        answer = _Answer(question, most_rows)
        # Closed by name: a statement left open by TooManyRows would hold this snapshot for whoever reads next.
        with closing(self._points(question)) as parts:
            for points in parts:
                answer.add(points)
        answer.add(self._waiting(question))
        return answer.whole()

    @property
    def journal_end(self) -> int:
        return self.marks.journal_end

    def ledger(self) -> dict[int, Ledger]:
        return {partition: Ledger(*terms) for partition, *terms in self._connection.execute("SELECT * FROM ledger")}

    def applied(self) -> dict[int, int]:
        return read_positions(self._connection, EVENTS)

    def lag(self, *, since_ms: int) -> Lag | None:
        rows = self._connection.execute(
            "SELECT at_ms, events, p50, p95, p99, highest FROM lags WHERE at_ms >= ?", (since_ms,)
        )
        return lag_of_all(Lag(*row) for row in rows)

    def _points(self, question: Question) -> Generator[pl.DataFrame]:
        """The part of the answer that is in points, one row a series and step, or less; some rows at a time."""
        keys = ["series_id"] * bool(question.by) + ["bucket_s"] * (question.step_s is not None)
        types = dict.fromkeys(keys, pl.Int64()) | _AGGREGATE_TYPES
        labels = pl.DataFrame()
        if question.by:
            labels = self._labels.of(self._connection, question.meter).select(
                "series_id", *map(label_column, question.by)
            )
        for piece in pieces(
            question.start_s,
            question.end_s,
            step_s=question.step_s,
            hours_through=self.marks.hours_through,
            days_through=self.marks.days_through,
        ):
            if self.marks.first_s < piece.end_s and piece.start_s <= self.marks.last_s:
                statement = question.statement(piece)
                with closing(self._connection.execute(statement.sql, statement.parameters)) as cursor:
                    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                        points = _columns(rows, types)
                        yield points.join(labels, on="series_id") if question.by else points

    def _waiting(self, question: Question) -> pl.DataFrame:
        """The part of the answer that is still in the journal."""
        tail = self._tail.waiting(
            self._connection,
            folded=self.marks.folded,
            folding=read_folding(self._connection),
            end=self.marks.journal_end,
            sums=question.reads_sums,
        )
        is_asked = (
            (pl.col("meter") == question.meter.meter_id)
            & (pl.col("bucket_s") >= question.start_s)
            & (pl.col("bucket_s") < question.end_s)
        )
        labels = pl.col("series").str.split(SEPARATOR)
        for label, values in question.where.items():
            is_asked &= labels.list.get(question.meter.labels.index(label)).is_in(list(values))
        columns = [labels.list.get(place).alias(label_column(label)) for label, place in question.places()]
        if question.step_s is not None:
            columns.append(pl.col("bucket_s") // question.step_s * question.step_s)
        for name, kind in _AGGREGATE_TYPES.items():
            left_out = pl.lit(0 if name == "n_value" else None, dtype=kind).alias(name)
            columns.append(pl.col(name) if name in question.computed else left_out)
        return pl.concat([part.lazy().filter(is_asked).select(columns) for part in tail]).collect()


class _Answer:
    """Parts are merged as they come, so that a question by few labels of a meter with many series stays small."""

    def __init__(self, question: Question, most_rows: int | None) -> None:
        labels = [label_column(label) for label in question.by]
        self._keys = labels if question.step_s is None else [*labels, "bucket_s"]
        self._most_rows = most_rows
        self._merged: pl.DataFrame | None = None
        self._parts: list[pl.DataFrame] = []
        self._waiting = 0

    def add(self, part: pl.DataFrame) -> None:
        self._parts.append(part.select([*self._keys, *AGGREGATES]))
        self._waiting += part.height
        # Only when as much has come as there is: so each row is merged a few times, however many parts there are.
        if self._waiting >= max(_ROWS_AT_ONCE, 0 if self._merged is None else self._merged.height):
            self._merge()

    def whole(self) -> pl.DataFrame:
        merged = self._merge()
        return merged.sort(self._keys) if self._keys else merged

    def _merge(self) -> pl.DataFrame:
        rows = pl.concat(self._parts if self._merged is None else [self._merged, *self._parts])
        merged = rows.group_by(self._keys).agg(deltas.merged()) if self._keys else rows.select(deltas.merged())
        if self._most_rows is not None and merged.height > self._most_rows:
            raise TooManyRows(self._most_rows)
        self._merged, self._parts, self._waiting = merged, [], 0
        return merged


def _columns(rows: Sequence[tuple[object, ...]], types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    columns = zip(types.items(), zip(*rows, strict=True), strict=True)
    found = [pl.Series(name, values, dtype=kind) for (name, kind), values in columns]
    # A sum over no rows is one row of nulls.
    return pl.DataFrame(found).with_columns(pl.col("n", "n_value").fill_null(0))
