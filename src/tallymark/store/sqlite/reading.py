"""Reading: points and the journal's tail in one snapshot, so that total = rolled + not yet rolled + tail."""

import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import polars as pl

from tallymark.aggregates import columns
from tallymark.store import answer as answers
from tallymark.store.grains import pieces
from tallymark.store.lags import lag_of_all
from tallymark.store.model import Lag, Ledger, Marks, RegisteredMeter, label_column
from tallymark.store.read_plan import Question
from tallymark.store.sqlite.connection import Connections, reading
from tallymark.store.sqlite.journal import entries
from tallymark.store.sqlite.labels import LabelTables
from tallymark.store.sqlite.ledger import read_ledgers, read_tenant_ledgers
from tallymark.store.sqlite.marks import read_folding, read_mark, read_marks
from tallymark.store.sqlite.positions import EVENTS, read_positions
from tallymark.store.sqlite.sql import statement_for
from tallymark.store.tail import Tail


class SqliteSnapshots:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._tail = Tail()
        self._labels = LabelTables()

    @contextmanager
    def take(self) -> Iterator["SqliteSnapshot"]:
        with self._connections.spare() as connection, reading(connection):
            yield SqliteSnapshot(connection, read_marks(connection), self._tail, self._labels)

    def journal_since(self, sequence: int) -> list[tuple[int, pl.DataFrame]]:
        return list(entries(self._connections.mine(), after=sequence))

    def journal_end(self) -> int:
        return read_mark(self._connections.mine(), "journal_end")


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
        most_bytes: int | None = None,
    ) -> pl.DataFrame:
        """Without `by` and `step_s` one row, also when nothing was counted. What a meter does not compute is null."""
        question = Question.between(meter, where, by, start_s, end_s, step_s)
        answer = answers.Answer(question, most_rows=most_rows, most_bytes=most_bytes)
        # Closed by name: a statement left open by a too large answer would hold this snapshot for whoever is next.
        with closing(self._points(question)) as parts:
            for points in parts:
                answer.add(points)
        answer.add(self._waiting(question))
        return answer.whole()

    @property
    def journal_end(self) -> int:
        return self.marks.journal_end

    def ledger(self) -> dict[int, Ledger]:
        return read_ledgers(self._connection)

    def tenant_ledgers(self) -> dict[str, Ledger]:
        return read_tenant_ledgers(self._connection)

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
        types = dict.fromkeys(keys, pl.Int64()) | {name: columns.TYPES[name] for name in question.columns}
        labels = pl.DataFrame()
        if question.by:
            labels = self._labels.of(self._connection, question.meter).select(
                "series_id", *map(label_column, question.by)
            )
        for piece in pieces(
            question.start_s,
            question.end_s,
            step_s=question.step_s,
            rolled=self.marks.rolled,
        ):
            if self.marks.first_s < piece.end_s and piece.start_s <= self.marks.last_s:
                statement = statement_for(question, piece)
                with closing(self._connection.execute(statement.sql, statement.parameters)) as cursor:
                    while rows := cursor.fetchmany(answers.ROWS_AT_ONCE):
                        points = _frame(rows, types)
                        yield points.join(labels, on="series_id") if question.by else points

    def _waiting(self, question: Question) -> pl.DataFrame:
        """The part of the answer that is still in the journal."""
        tail = self._tail.waiting(
            lambda after, through: entries(self._connection, after=after, through=through),
            folded=self.marks.folded,
            folding=read_folding(self._connection),
            end=self.marks.journal_end,
            sums=question.reads_sums,
        )
        return question.answer_deltas(tail)


def _frame(rows: Sequence[tuple[object, ...]], types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    named = zip(types.items(), zip(*rows, strict=True), strict=True)
    found = [pl.Series(name, values, dtype=kind) for (name, kind), values in named]
    # A sum over no rows is one row of nulls.
    if len(rows) == 1:
        found = [_not_null(series) for series in found]
    return pl.DataFrame(found)


def _not_null(series: pl.Series) -> pl.Series:
    nothing = columns.NOTHING.get(series.name)
    return series if nothing is None else series.fill_null(nothing)
