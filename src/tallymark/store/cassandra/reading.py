"""Reading: points as they were at a mark, and the journal's tail after it, so that no delta is missed or met twice."""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import polars as pl

from tallymark.aggregates import columns
from tallymark.store import deltas, numeric
from tallymark.store.admission import Admission, Source
from tallymark.store.answer import Answer
from tallymark.store.cassandra.book import EVENTS, METERS, POINTS, Book, Page
from tallymark.store.cassandra.bootstrap import METER, versions
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.index import LabelIndex
from tallymark.store.cassandra.journal import Journal
from tallymark.store.cassandra.points import SUMS, Place, Points, windows
from tallymark.store.cassandra.progress import Progress, progress
from tallymark.store.cassandra.sink import LAG, PARTITION, applied_positions, decode_lag, ledgers, tenant_ledgers
from tallymark.store.folding import Batch
from tallymark.store.grains import Piece, floor, pieces
from tallymark.store.hot import Found, HotBlocks, Wanted
from tallymark.store.lags import lag_of_all
from tallymark.store.model import Lag, Ledger
from tallymark.store.point_sets import Definitions, PointSets
from tallymark.store.protocol import SnapshotOutdated, TooManyBytes
from tallymark.store.read_plan import Question
from tallymark.store.tail import Tail

_LAGS = "SELECT b, value FROM book WHERE store = ? AND book = ? AND kind = ? AND a >= ?"
SERIES_A_READ = 100
# A keeper that folds meanwhile may outdate the moment that a hot block is read from.
FILL_TRIES = 3


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
        self.hot = HotBlocks(self.tail, self._fill)
        self._meters = Book(link, store, METERS)
        self._sets = PointSets()
        self._admission = Admission()

    def grains(self, sets: Collection[int]) -> Mapping[int, int]:
        """As `base_grains`."""
        return self._sets.grains(sets, self._definitions)

    def limited(self, batches: Generator[Batch], *, folded: int) -> Generator[Batch]:
        """These batches of the journal with the limits to series applied; `folded` was read before."""
        source = Source(
            folded,
            limits=lambda sets: self._sets.limits(sets, self._definitions),
            series=lambda set_id: self.index.all_series(set_id, self.points.shards),
            batches=lambda after, through: self.journal.all_entries(after, through, sketches=False),
        )
        return self._admission.applied(batches, source)

    def _definitions(self) -> Definitions:
        # Those of deleted meters are kept, too.
        return [(each.set_id, each.meter) for each in versions(self._meters.page(METER))]

    def snapshot(self) -> "CassandraSnapshot":
        # This order: whatever is folded later than the mark read here is still in the journal for this reader, and
        # the journal's end read after it is at least the one that was folded.
        marks = progress(self.book.head())
        return CassandraSnapshot(self, marks, self.events.page(PARTITION))

    def _fill(self, wanted: Wanted) -> Found:
        for _ in range(FILL_TRIES - 1):
            with suppress(SnapshotOutdated):
                return self.snapshot().points_since(wanted)
        return self.snapshot().points_since(wanted)


class CassandraSnapshots:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.hot = reader.hot

    @contextmanager
    def take(self) -> Iterator["CassandraSnapshot"]:
        yield self._reader.snapshot()

    def journal_since(self, sequence: int) -> list[tuple[int, pl.DataFrame]]:
        folded = progress(self._reader.book.head()).folded
        found = self._reader.journal.unbroken(after=sequence, through=self.journal_end())
        return list(self._reader.limited((batch for batch in found), folded=folded))

    def journal_end(self) -> int:
        return self._reader.events.head().sequence


class CassandraSnapshot:
    """One moment of the store: points that count at `marks.mark`, and batches up to the sequence of `events`."""

    def __init__(self, reader: Reader, marks: Progress, events: Page) -> None:
        self._reader = reader
        self._events = events
        self.marks = marks

    def read(self, question: Question, *, most_rows: int | None = None, most_bytes: int | None = None) -> pl.DataFrame:
        found = self._reader.hot.answer(
            question,
            self._entries,
            folded=self.marks.folded,
            end=self.journal_end,
            most_rows=most_rows,
            most_bytes=most_bytes,
        )
        if found is not None:
            return found
        answer = Answer(question, most_rows=most_rows, most_bytes=most_bytes)
        # The tail first: it is the part of this moment that the keeper prunes.
        answer.add(self._waiting(question))
        for points in self._points(question):
            answer.add(points)
        return answer.whole()

    @property
    def journal_end(self) -> int:
        return self._events.head.sequence

    def touched(self, *, after: int) -> dict[int, set[int]] | None:
        if after >= self.journal_end:
            return {}
        try:
            return deltas.touched(self._reader.journal.all_entries(after, self.journal_end, sketches=False))
        except SnapshotOutdated:
            return None

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
        tail = self._reader.tail
        codes = tail.codes(question.set_id, question.meter)
        rows = tail.waiting(
            self._entries,
            question.set_id,
            codes,
            folded=self.marks.folded,
            folding=None,
            end=self.journal_end,
            sums=question.reads_sums,
            sketches=columns.SKETCH in question.columns,
        )
        return question.answer_coded(rows, codes)

    def points_since(self, wanted: Wanted) -> Found:
        """The latest points of a set, at this moment's mark."""
        grain_s, points = wanted.meter.meter.grain_s, self._reader.asked_points
        spans = windows(grain_s, wanted.start_s, self.marks.last_s + 1)[::-1]
        places: list[Place] = [(wanted.set_id, shard, span) for span in spans for shard in range(points.shards)]
        parts, left = [], wanted.most_bytes
        if wanted.set_id in self.marks.meters:
            for rows in points.of_places(grain_s, places, mark=self.marks.mark):
                recent = rows.filter(pl.col("bucket_s") >= wanted.start_s)
                part = numeric.from_frame(recent, ["bucket_s", *wanted.names])
                parts.append({**part, "code": wanted.codes.of(recent["series"].to_list())})
                left -= sum(column.nbytes for column in parts[-1].values())
                if left < 0:
                    raise TooManyBytes(wanted.most_bytes)
        return Found(self.marks.folded, parts)

    def _entries(self, after: int, through: int, sketches: bool) -> Generator[Batch]:
        batches = self._reader.journal.all_entries(after, through, sketches)
        return self._reader.limited(batches, folded=self.marks.folded)

    def _points(self, question: Question) -> Iterator[pl.DataFrame]:
        if question.set_id not in self.marks.meters:
            return
        named = None
        if question.where:
            named = self._reader.asked_index.named(question)
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
            base_s=question.grain_s,
        ):
            start = max(piece.start_s, floor(self.marks.first_s, piece.grain_s))
            end = min(piece.end_s, self.marks.last_s + 1)
            if start < end:
                yield Piece(piece.grain_s, start, end)

    def _rows(self, question: Question, piece: Piece, named: set[str] | None) -> Iterator[pl.DataFrame]:
        points, mark, meter = self._reader.asked_points, self.marks.mark, question.set_id
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
