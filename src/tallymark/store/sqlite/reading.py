"""Reading: points and the journal's tail in one snapshot, so that total = rolled + not yet rolled + tail."""

import sqlite3
from collections.abc import Mapping, Sequence

import polars as pl

from tallymark.store.deltas import AGGREGATES, SCHEMA, SEPARATOR, merged
from tallymark.store.grains import EARLIEST_S, LATEST_S, pieces
from tallymark.store.lags import lag_of_all
from tallymark.store.model import Lag, Ledger, Marks, RegisteredMeter, label_column
from tallymark.store.sqlite.journal import Tail
from tallymark.store.sqlite.labels import LabelTables
from tallymark.store.sqlite.marks import read_folding
from tallymark.store.sqlite.positions import EVENTS, read_positions
from tallymark.store.sqlite.question import Question

_AGGREGATE_TYPES = {name: SCHEMA[name] for name in AGGREGATES}


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
    ) -> pl.DataFrame:
        """Without `by` and `step_s` one row, also when nothing was counted. What a meter does not compute is null."""
        start = EARLIEST_S if start_s is None else start_s
        end = LATEST_S if end_s is None else end_s
        question = Question(meter, where, tuple(by), start, end, step_s)
        return _combined(question, [self._points(question), self._waiting(question)])

    def ledger(self) -> dict[int, Ledger]:
        return {partition: Ledger(*terms) for partition, *terms in self._connection.execute("SELECT * FROM ledger")}

    def applied(self) -> dict[int, int]:
        return read_positions(self._connection, EVENTS)

    def lag(self, *, since_ms: int) -> Lag | None:
        rows = self._connection.execute(
            "SELECT at_ms, events, p50, p95, p99, highest FROM lags WHERE at_ms >= ?", (since_ms,)
        )
        return lag_of_all(Lag(*row) for row in rows)

    def _points(self, question: Question) -> pl.DataFrame:
        """The part of the answer that is in points, one row a series and step, or less."""
        keys = ["series_id"] * bool(question.by) + ["bucket_s"] * (question.step_s is not None)
        types = dict.fromkeys(keys, pl.Int64()) | _AGGREGATE_TYPES
        rows: list[tuple[object, ...]] = []
        for piece in pieces(
            question.start_s,
            question.end_s,
            step_s=question.step_s,
            hours_through=self.marks.hours_through,
            days_through=self.marks.days_through,
        ):
            if self.marks.first_s < piece.end_s and piece.start_s <= self.marks.last_s:
                statement = question.statement(piece)
                rows += self._connection.execute(statement.sql, statement.parameters)
        columns = zip(*rows, strict=True) if rows else [()] * len(types)
        found = [pl.Series(name, values, dtype=types[name]) for name, values in zip(types, columns, strict=True)]
        # A sum over no rows is one row of nulls.
        points = pl.DataFrame(found).with_columns(pl.col("n", "n_value").fill_null(0))
        if not question.by:
            return points
        labels = self._labels.of(self._connection, question.meter).select("series_id", *map(label_column, question.by))
        return points.join(labels, on="series_id").select(_keys(question) + list(AGGREGATES))

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


def _combined(question: Question, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    keys = _keys(question)
    rows = pl.concat(parts)
    if not keys:
        return rows.select(merged())
    return rows.group_by(keys).agg(merged()).sort(keys)


def _keys(question: Question) -> list[str]:
    labels = [label_column(label) for label in question.by]
    return labels if question.step_s is None else [*labels, "bucket_s"]
