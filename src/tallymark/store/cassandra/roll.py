"""Rolling up: closed minutes are summed from seconds, hours from minutes, days from hours, some partitions each time.

Rows of a bucket that is not done are read by nobody, so a slice needs no word before it begins: one that was broken off
leaves rows that the next one overwrites, with a number at least as high.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import polars as pl

from tallymark.aggregates import columns
from tallymark.store.cassandra.book import POINTS, Change, Head, Key, Page
from tallymark.store.cassandra.fold import Fold
from tallymark.store.cassandra.points import KEY, ROW_TYPES, SUMS, WINDOWS, Place
from tallymark.store.cassandra.progress import UNROLLED, Progress, Rolling, progress, unrolled_rows
from tallymark.store.cassandra.reading import Reader
from tallymark.store.folding import LEVELS, Level, closed_through, left_to_roll, moves_to
from tallymark.store.grains import MINUTE_S, floor

_LOWEST = "SELECT b FROM book WHERE store = ? AND book = ? AND kind = ? AND a = ? AND b < ? LIMIT 1"


class Roller:
    def __init__(self, reader: Reader, fold: Fold) -> None:
        self._reader = reader
        self._fold = fold

    def roll(self, *, now_s: int, delay_s: int, slice_series: int) -> bool:
        """Does one slice of what is due, the finest grain first; False when nothing is."""
        with self._fold.lock:
            head = self._reader.book.head(settled=True)
            self._fold.term.check(head)
            time_s = now_s - delay_s
            return any(self._roll_level(head, level, time_s=time_s, slice_series=slice_series) for level in LEVELS)

    def _roll_level(self, head: Head, level: Level, *, time_s: int, slice_series: int) -> bool:
        marks = progress(head)
        closed = closed_through(level, rolled=marks.rolled, time_s=time_s)
        if marks.rolled[level.grain_s] >= closed:
            return False
        bucket_s = self._lowest(level, marks, closed)
        through = moves_to(level, closed_s=closed, lowest_s=bucket_s)
        if bucket_s is None and through <= marks.rolled[level.grain_s]:
            return False
        if marks.folding is not None:
            # One change at a time: what is folded must not be in a rolled hour for one shard only.
            self._fold.fold(most_points=max(slice_series, 1000))
        elif bucket_s is None:
            self._change(head, lambda now: now.with_through(level.grain_s, through))
        else:
            self._roll(head, level, bucket_s, slice_series)
        return True

    def _lowest(self, level: Level, marks: Progress, closed: int) -> int | None:
        """The first bucket that is to be rolled."""
        reader = self._reader
        if level.made_from_bases and not self._sets(level, marks):
            return None
        found = reader.link.rows(_LOWEST, reader.store, POINTS, UNROLLED, level.grain_s, closed)
        return int(found[0][0]) if found else None

    def _sets(self, level: Level, marks: Progress) -> dict[int, int]:
        """The sets that are rolled, in order, each with the grain that it is rolled from."""
        grains = self._reader.grains(marks.meters)
        found = {meter: level.source_of(grains.get(meter, MINUTE_S)) for meter in marks.meters}
        return {meter: source_s for meter, source_s in found.items() if source_s is not None}

    def _roll(self, head: Head, level: Level, bucket_s: int, slice_series: int) -> None:
        grain_s = level.grain_s
        marks = progress(head)
        done = marks.rolling.get(grain_s)
        sets = self._sets(level, marks)
        # In the order in which they are rolled; the sums of a set come first.
        shards = [(meter, shard) for meter in sets for shard in (SUMS, *range(self._reader.points.shards))]
        if done is not None and done.bucket_s == bucket_s:
            shards = [each for each in shards if each > (done.meter, done.shard)]
        sources = [(sets[meter], (meter, shard, floor(bucket_s, WINDOWS[sets[meter]]))) for meter, shard in shards]
        passed = self._write(level, bucket_s, sources, slice_series, marks.mark)
        if passed == len(shards):
            self._finish(head, level, bucket_s)
            return

        def moved(now: Progress) -> Progress:
            rolling = now.rolling | {grain_s: Rolling(bucket_s, *shards[passed - 1])}
            return msgspec.structs.replace(now.with_through(grain_s, bucket_s), mark=now.mark + 1, rolling=rolling)

        self._change(head, moved)

    def _write(
        self, level: Level, bucket_s: int, sources: Sequence[tuple[int, Place]], most_rows: int, mark: int
    ) -> int:
        """Sums the bucket in as many shards as make up a slice, at least one; how many that were."""
        points = self._reader.points
        summed: list[pl.DataFrame] = []
        rows = passed = 0
        for found in points.summed(level.grain_s, sources, bucket_s, mark=mark):
            summed.append(found)
            rows += found.height
            passed += 1
            if rows >= most_rows:
                break
        if rows:
            whole = pl.concat(summed)
            nothing = whole.select(KEY).join(pl.DataFrame(schema=ROW_TYPES), on=KEY, how="left")
            points.write(level.grain_s, whole.select(*KEY, *columns.NAMES), nothing, change=mark + 1)
        return passed

    def _finish(self, head: Head, level: Level, bucket_s: int) -> None:
        grain_s = level.grain_s

        def moved(now: Progress) -> Progress:
            rolling = {grain: each for grain, each in now.rolling.items() if grain != grain_s}
            done = now.with_through(grain_s, bucket_s + grain_s)
            return msgspec.structs.replace(done, mark=now.mark + 1, rolling=rolling)

        put = unrolled_rows(left_to_roll(level, bucket_s))
        self._change(head, moved, put=put, drop=[(UNROLLED, grain_s, bucket_s)])

    def _change(
        self,
        head: Head,
        move: Callable[[Progress], Progress],
        *,
        put: Mapping[Key, bytes] | None = None,
        drop: Sequence[Key] = (),
    ) -> None:
        def decide(page: Page) -> Change | None:
            if page.head.token != head.token:
                return None  # another keeper is at it
            return Change(facts=move(progress(page.head)).encode(), put=put or {}, drop=drop)

        moved = self._reader.book.change(decide, term=self._fold.term, known=Page(head))
        if moved is not None:
            self._fold.rolled(head.token, moved.head.token)
