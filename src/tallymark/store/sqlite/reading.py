"""Reading: points and the journal's tail in one snapshot, so that total = rolled + not yet rolled + tail."""

import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import numpy as np
import polars as pl

from tallymark.aggregates import columns
from tallymark.store import answer as answers
from tallymark.store import deltas, numeric
from tallymark.store.deltas import SEPARATOR
from tallymark.store.folding import Batch
from tallymark.store.grains import pieces
from tallymark.store.hot import Found, HotBlocks, Wanted
from tallymark.store.lags import lag_of_all
from tallymark.store.model import Lag, Ledger, Marks, label_column
from tallymark.store.protocol import TooManyBytes
from tallymark.store.read_plan import Question
from tallymark.store.series_codes import SeriesCodes
from tallymark.store.sqlite.connection import Connections, reading
from tallymark.store.sqlite.journal import entries
from tallymark.store.sqlite.labels import LabelTables
from tallymark.store.sqlite.ledger import read_ledgers, read_tenant_ledgers
from tallymark.store.sqlite.limited import LimitedJournal
from tallymark.store.sqlite.marks import read_folding, read_mark, read_marks
from tallymark.store.sqlite.positions import EVENTS, read_positions
from tallymark.store.sqlite.sql import recent_points, statement_for
from tallymark.store.tail import Tail


class SqliteSnapshots:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._tail = Tail()
        self._labels = LabelTables()
        self._journal = LimitedJournal()
        self.hot = HotBlocks(self._tail, self._fill)

    @contextmanager
    def take(self) -> Iterator["SqliteSnapshot"]:
        with self._connections.spare() as connection, reading(connection):
            yield SqliteSnapshot(connection, read_marks(connection), self._tail, self._labels, self._journal, self.hot)

    def journal_since(self, sequence: int) -> list[tuple[int, pl.DataFrame]]:
        connection = self._connections.mine()
        with reading(connection):
            batches = entries(connection, after=sequence)
            return list(self._journal.applied(connection, batches, folded=read_mark(connection, "folded")))

    def journal_end(self) -> int:
        return read_mark(self._connections.mine(), "journal_end")

    def _fill(self, wanted: Wanted) -> Found:
        with self.take() as snapshot:
            return snapshot.points_since(wanted)


class SqliteSnapshot:
    """One moment of the store; lives as long as the transaction of its connection."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        marks: Marks,
        tail: Tail,
        labels: LabelTables,
        journal: LimitedJournal,
        hot: HotBlocks,
    ) -> None:
        self._connection = connection
        self._journal = journal
        self._tail = tail
        self._labels = labels
        self._hot = hot
        self.marks = marks

    def read(self, question: Question, *, most_rows: int | None = None, most_bytes: int | None = None) -> pl.DataFrame:
        """Without `by` and `step_s` one row, also when nothing was counted. What a meter does not compute is null."""
        found = self._hot.answer(
            question,
            self._entries,
            folded=self.marks.folded,
            end=self.marks.journal_end,
            most_rows=most_rows,
            most_bytes=most_bytes,
        )
        if found is not None:
            return found
        if answers.is_plain(question):
            found = answers.plain(question, [*self._plain_points(question), *self._plain_waiting(question)])
            return answers.within(found, most_rows=most_rows, most_bytes=most_bytes)
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

    def touched(self, *, after: int) -> dict[int, set[int]] | None:
        if after >= self.journal_end:
            return {}
        (first,) = self._connection.execute("SELECT MIN(sequence) FROM journal WHERE sequence > ?", (after,)).fetchone()
        if first != after + 1:
            return None
        return deltas.touched(entries(self._connection, after=after, through=self.journal_end, sketches=False))

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

    def points_since(self, wanted: Wanted) -> Found:
        """The latest points of a set, at the mark through which all of them have come."""
        labels = self._labels.of(self._connection, wanted.meter, wanted.set_id)
        texts = labels.select(pl.concat_str(pl.exclude("series_id"), separator=SEPARATOR)).to_series().to_list()
        numbers = labels["series_id"].to_numpy()
        of_number = np.full(numbers.max(initial=0) + 1, -1, np.int32)
        of_number[numbers] = wanted.codes.of(texts)
        parts, left = [], wanted.most_bytes
        statement = recent_points(wanted)
        with closing(self._connection.execute(statement.sql, statement.parameters)) as cursor:
            while rows := cursor.fetchmany(answers.ROWS_AT_ONCE):
                part = numeric.from_rows(rows, ["code", "bucket_s", *wanted.names])
                parts.append({**part, "code": of_number[part["code"]]})
                left -= sum(column.nbytes for column in parts[-1].values())
                if left < 0:
                    raise TooManyBytes(wanted.most_bytes)
        folding = read_folding(self._connection)
        if folding is None:
            return Found(self.marks.folded, parts)
        # In the points for some series already: with the others the block stands at the end of that fold.
        rest = self._tail.waiting(
            self._entries,
            wanted.set_id,
            wanted.codes,
            folded=self.marks.folded,
            folding=folding,
            end=folding.through,
            sums=False,
            sketches=False,
        )
        return Found(folding.through, parts, pl.concat(rest))

    def _points(self, question: Question) -> Generator[pl.DataFrame]:
        """The part of the answer that is in points, one row a series and step, or less; some rows at a time."""
        keys = ["series_id"] * bool(question.by) + ["bucket_s"] * (question.step_s is not None)
        types = dict.fromkeys(keys, pl.Int64()) | {name: columns.TYPES[name] for name in question.columns}
        labels = pl.DataFrame()
        if question.by:
            labels = self._labels.of(self._connection, question.meter, question.set_id).select(
                "series_id", *map(label_column, question.by)
            )
        at_once = answers.rows_at_once(question)
        for cursor in self._cursors(question):
            while rows := cursor.fetchmany(at_once):
                points = _frame(rows, types)
                yield points.join(labels, on="series_id") if question.by else points

    def _plain_points(self, question: Question) -> Iterator[numeric.Arrays]:
        keys = [] if question.step_s is None else ["bucket_s"]
        for cursor in self._cursors(question):
            if rows := cursor.fetchall():
                yield numeric.from_rows(rows, [*keys, *question.columns])

    def _cursors(self, question: Question) -> Iterator[sqlite3.Cursor]:
        """For each grain that answers a part of the range."""
        for piece in pieces(
            question.start_s,
            question.end_s,
            step_s=question.step_s,
            rolled=self.marks.rolled,
            base_s=question.grain_s,
        ):
            if self.marks.first_s < piece.end_s and piece.start_s <= self.marks.last_s:
                statement = statement_for(question, piece)
                with closing(self._connection.execute(statement.sql, statement.parameters)) as cursor:
                    yield cursor

    def _waiting(self, question: Question) -> pl.DataFrame:
        """The part of the answer that is still in the journal."""
        rows, codes = self._tail_rows(question)
        return question.answer_coded(rows, codes)

    def _plain_waiting(self, question: Question) -> list[numeric.Arrays]:
        rows, codes = self._tail_rows(question)
        return question.plain_coded(rows, codes)

    def _tail_rows(self, question: Question) -> tuple[list[pl.DataFrame], SeriesCodes]:
        codes = self._tail.codes(question.set_id, question.meter)
        rows = self._tail.waiting(
            self._entries,
            question.set_id,
            codes,
            folded=self.marks.folded,
            folding=read_folding(self._connection),
            end=self.marks.journal_end,
            sums=question.reads_sums,
            sketches=columns.SKETCH in question.columns,
        )
        return rows, codes

    def _entries(self, after: int, through: int, sketches: bool) -> Generator[Batch]:
        batches = entries(self._connection, after=after, through=through, sketches=sketches)
        return self._journal.applied(self._connection, batches, folded=self.marks.folded)


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
