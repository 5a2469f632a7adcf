"""Folding: the journal's oldest entries, merged, become points.

A fold is a change with a number. Which batches it takes is written down before its first row, and its rows carry its
number as their timestamp. So it may be broken off anywhere and done again, by this keeper or another: the same rows are
written again, and a keeper that wakes up late writes what is there already or what a later change has replaced. It
counts for readers from the moment that the book says so.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec
import polars as pl

from tallymark.aggregates import columns
from tallymark.store import deltas
from tallymark.store.cassandra.book import Book, Change, Head, Key, Page, Term
from tallymark.store.cassandra.points import KEY, Points, coarser
from tallymark.store.cassandra.progress import Progress, Rolling, progress, unrolled_rows
from tallymark.store.cassandra.reading import Reader
from tallymark.store.cassandra.write_cache import WriteCache
from tallymark.store.folding import FoldPlan, Part, UnderWay, by_base, gather, plan_fold
from tallymark.store.grains import BASES
from tallymark.store.model import Folded

# A row remembers one version before the last. With this pause a reader has at least that long for an answer.
MIN_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left to write of the fold under way."""

    token: str
    """of the book, as long as nobody else goes on with it"""
    through: int
    plan: FoldPlan
    """its parts are taken off as they are written"""
    meters: frozenset[int]
    deltas: int
    cut_short: bool


class Fold:
    """Keeps the merged rest of a fold between its slices; one that was lost is merged again."""

    def __init__(self, reader: Reader, *, pause_s: float = MIN_PAUSE_S, clock: Callable[[], float] = time.monotonic):
        self.term = Term("keeper")
        self.lock = threading.RLock()
        self._write_caches = {base_s: WriteCache(reader.points, base_s) for base_s in BASES}
        self._reader = reader
        self._book: Book = reader.book
        self._points: Points = reader.points
        self._pause_s = pause_s
        self._clock = clock
        # Another keeper may have ended a fold just now.
        self._not_before = clock() + pause_s
        self._rest: _Rest | None = None

    def fold(self, *, most_points: int) -> Folded:
        """Writes the next slice, at most this many points."""
        with self.lock:
            head = self._book.head(settled=True)
            self.term.check(head)
            rest = self._rest
            if rest is None or rest.token != head.token:
                rest = self._begin(head)
            if rest is None:
                return Folded()
            return self._write_slice(head, rest, max(1, most_points))

    def rolled(self, before: str, after: str) -> None:
        """This keeper's roll moved the book from one token to another, and left what was counted alone."""
        for cache in self._write_caches.values():
            cache.follow(before, after)

    def forget(self) -> None:
        """What another keeper may have changed: this one's time begins now."""
        with self.lock:
            self._rest = None
            self._not_before = self._clock() + self._pause_s

    def _begin(self, head: Head) -> _Rest | None:
        marks = progress(head)
        if marks.folding is None and self._clock() < self._not_before:
            return None
        through = self._reader.events.head().sequence if marks.folding is None else marks.folding
        batches = self._reader.journal.all_entries(marks.folded, through)
        waiting = self._reader.limited(batches, folded=marks.folded)
        gathered, cut_short = gather(waiting, whole=marks.folding is not None)
        if not gathered:
            return None
        through = gathered[-1][0]
        token = head.token
        for cache in self._write_caches.values():
            cache.begin(token)
        if marks.folding is None:
            begun = self._change(head, lambda now: msgspec.structs.replace(now, folding=through))
            if begun is None:
                return None
            token = begun.head.token
        rows = sum(frame.height for _, frame in gathered)
        return self._planned(marks, token, through, deltas.merge(frame for _, frame in gathered), rows, cut_short)

    def _planned(
        self, marks: Progress, token: str, through: int, merged: pl.DataFrame, rows: int, cut_short: bool
    ) -> _Rest:
        both = pl.concat([deltas.sums(merged), merged])
        meters = frozenset(both["meter"].unique())
        plan = plan_fold(
            {
                base_s: self._points.placed(rows, base_s).sort(KEY)
                for base_s, rows in by_base(both, self._reader.grains(meters)).items()
            },
            rolled=marks.rolled,
            under_way={grain_s: _under_way(rolling) for grain_s, rolling in marks.rolling.items()},
            first_s=marks.first_s,
            last_s=marks.last_s,
            coarser=coarser,
        )
        return _Rest(token, through, plan, meters | frozenset(marks.meters), rows, cut_short)

    def _write_slice(self, head: Head, rest: _Rest, most_points: int) -> Folded:
        mark = progress(head).mark
        self._rest = rest
        written = 0
        while rest.plan.parts and written < most_points:
            part, *later = rest.plan.parts
            room = most_points - written
            now, left = part._replace(rows=part.rows.head(room)), part._replace(rows=part.rows[room:])
            self._add(now, mark)
            written += now.rows.height
            parts = (*((left,) if left.rows.height else ()), *later)
            rest = replace(rest, plan=replace(rest.plan, parts=parts))
            self._rest = rest
        if rest.plan.parts:
            return Folded(0, written, more=True)
        ended = self._finish(head, rest)
        self._rest = None
        return Folded(rest.deltas, written, more=rest.cut_short) if ended else Folded()

    def _add(self, part: Part, mark: int) -> None:
        grain_s, rows, is_base = part
        if is_base:
            self._reader.index.add(rows)
            there = self._write_caches[grain_s].bases(rows, mark=mark)
        else:
            there = self._points.at(grain_s, rows, mark=mark)
        before = rows.select(KEY).join(there, on=KEY, how="left", maintain_order="left")
        after = _sum(rows, there)
        self._points.write(grain_s, after, before, change=mark + 1)
        if is_base:
            self._write_caches[grain_s].add(after, change=mark + 1)

    def _finish(self, head: Head, rest: _Rest) -> bool:
        def moved(now: Progress) -> Progress:
            return msgspec.structs.replace(
                now,
                mark=now.mark + 1,
                folded=rest.through,
                folding=None,
                first_s=rest.plan.first_s,
                last_s=rest.plan.last_s,
                meters=tuple(sorted(rest.meters)),
            )

        ended = self._change(replace(head, token=rest.token), moved, put=unrolled_rows(rest.plan.unrolled), known=False)
        if ended is None:
            return False
        for cache in self._write_caches.values():
            cache.finish(ended.head.token)
        self._not_before = self._clock() + self._pause_s
        return True

    def _change(
        self,
        head: Head,
        move: Callable[[Progress], Progress],
        *,
        put: Mapping[Key, bytes] | None = None,
        known: bool = True,
    ) -> Page | None:
        """Moves the book on from `head`; None if somebody else did."""

        def decide(page: Page) -> Change | None:
            if page.head.token != head.token:
                return None
            return Change(facts=move(progress(page.head)).encode(), put=put or {})

        return self._book.change(decide, term=self.term, known=Page(head) if known else None)


def _sum(rows: pl.DataFrame, there: pl.DataFrame) -> pl.DataFrame:
    """Each row with what was there before it, in the same order."""
    both = pl.concat([rows, there.select(*KEY, *columns.NAMES)])
    return rows.select(KEY).join(columns.merge(both, KEY), on=KEY, maintain_order="left")


def _under_way(rolling: Rolling) -> UnderWay:
    meter, shard = pl.col("meter"), pl.col("shard")
    is_passed = (meter < rolling.meter) | ((meter == rolling.meter) & (shard <= rolling.shard))
    return UnderWay(rolling.bucket_s, is_passed)
