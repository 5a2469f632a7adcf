"""Reading: points as they were at a mark, and the journal's tail after it, so that no delta is missed or met twice."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import polars as pl

from tallymark.store.answer import Answer
from tallymark.store.cassandra.book import EVENTS, POINTS, Book, Page
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.index import LabelIndex
from tallymark.store.cassandra.journal import Journal
from tallymark.store.cassandra.points import SUMS, Place, Points, windows
from tallymark.store.cassandra.progress import Progress, progress
from tallymark.store.cassandra.sink import LAG, PARTITION, applied_positions, decode_lag, ledgers, tenant_ledgers
from tallymark.store.grains import Piece, floor, pieces
from tallymark.store.lags import lag_of_all
from tallymark.store.model import Lag, Ledger, RegisteredMeter
from tallymark.store.read_plan import Question
from tallymark.store.tail import Tail

_LAGS = "SELECT b, value FROM book WHERE store = ? AND book = ? AND kind = ? AND a >= ?"
SERIES_A_READ = 100


class Reader:
    """What the snapshots of a store have in common."""

    def __init__(self, link: Link, store: str, shards: int) -> None:
        self.link = link
        self.store = store
        self.events = Book(link, store, EVENTS)
        self.book = Book(link, store, POINTS)
        self.points = Points(link, store, shards)
        self.index = LabelIndex(link, store)
        # At the consistency that is set for questions; what the keeper reads to write it again is above.
        questions = link.for_questions()
        self.asked_points = Points(questions, store, shards)
        self.asked_index = LabelIndex(questions, store)
        self.journal = Journal(link, store)
        self.tail = Tail()

    def snapshot(self) -> "CassandraSnapshot":
        # This order: whatever is folded later than the mark read here is still in the journal for this reader, and
        # the journal's end read after it is at least the one that was folded.
        marks = progress(self.book.head())
        return CassandraSnapshot(self, marks, self.events.page(PARTITION))


class CassandraSnapshots:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @contextmanager
    def take(self) -> Iterator["CassandraSnapshot"]:
        yield self._reader.snapshot()

    def journal_since(self, sequence: int) -> list[tuple[int, pl.DataFrame]]:
        return self._reader.journal.unbroken(after=sequence, through=self.journal_end())

    def journal_end(self) -> int:
        return self._reader.events.head().sequence


class CassandraSnapshot:
    """One moment of the store: points that count at `marks.mark`, and batches up to the sequence of `events`."""

    def __init__(self, reader: Reader, marks: Progress, events: Page) -> None:
        self._reader = reader
        self._events = events
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
        question = Question.between(meter, where, by, start_s, end_s, step_s)
        answer = Answer(question, most_rows=most_rows, most_bytes=most_bytes)
        # The tail first: it is the part of this moment that the keeper prunes.
        answer.add(self._waiting(question))
        for points in self._points(question):
            answer.add(points)
        return answer.whole()

    @property
    def journal_end(self) -> int:
        return self._events.head.sequence

    def ledger(self) -> dict[int, Ledger]:
        return ledgers(self._events)

    def tenant_ledgers(self) -> dict[str, Ledger]:
        return tenant_ledgers(self._events)

    def applied(self) -> dict[int, int]:
        return applied_positions(self._events)

    def lag(self, *, since_ms: int) -> Lag | None:
        rows = self._reader.link.rows(_LAGS, self._reader.store, EVENTS, LAG, since_ms)
        return lag_of_all(decode_lag(value) for sequence, value in rows if sequence <= self.journal_end)

    def _waiting(self, question: Question) -> pl.DataFrame:
        tail = self._reader.tail.waiting(
            self._reader.journal.all_entries,
            folded=self.marks.folded,
            folding=None,
            end=self.journal_end,
            sums=question.reads_sums,
        )
        return question.answer_deltas(tail)

    def _points(self, question: Question) -> Iterator[pl.DataFrame]:
        if question.meter.set_id not in self.marks.meters:
            return
        named = None
        if question.where:
            named = self._reader.asked_index.named(question.meter, question.where)
        # The newest first: these are changed with every fold, and so are the first that this moment loses.
        for piece in reversed(list(self._pieces(question))):
            is_in = (pl.col("bucket_s") >= piece.start_s) & (pl.col("bucket_s") < piece.end_s)
            for rows in self._rows(question, piece, named):
                yield question.answer(rows.lazy().filter(is_in)).collect()

    def _pieces(self, question: Question) -> Iterator[Piece]:
        """Only as far as there are points: an open range would otherwise be every window since the beginning."""
        for piece in pieces(
            question.start_s,
            question.end_s,
            step_s=question.step_s,
            rolled=self.marks.rolled,
        ):
            start = max(piece.start_s, floor(self.marks.first_s, piece.grain_s))
            end = min(piece.end_s, self.marks.last_s + 1)
            if start < end:
                yield Piece(piece.grain_s, start, end)

    def _rows(self, question: Question, piece: Piece, named: set[str] | None) -> Iterator[pl.DataFrame]:
        points, mark, meter = self._reader.asked_points, self.marks.mark, question.meter.set_id
        spans = windows(piece.grain_s, piece.start_s, piece.end_s)[::-1]
        if question.reads_sums:
            named = {""}
        if named is None:
            places: list[Place] = [(meter, shard, span) for span in spans for shard in range(points.shards)]
            return points.of_places(piece.grain_s, places, mark=mark)
        of_shard: dict[int, list[str]] = {}
        for series in sorted(named):
            of_shard.setdefault(SUMS if question.reads_sums else points.shard_of(series), []).append(series)
        some: list[tuple[Place, Sequence[str]]] = [
            ((meter, shard, span), series[first : first + SERIES_A_READ])
            for span in spans
            for shard, series in of_shard.items()
            for first in range(0, len(series), SERIES_A_READ)
        ]
        return points.of_series(piece.grain_s, some, piece.start_s, piece.end_s, mark=mark)
