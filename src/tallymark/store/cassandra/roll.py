"""Rolling up: closed hours are summed from minutes and closed days from hours, some partitions at a time.

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
from tallymark.store.folding import LEVELS, Level, closed_through, left_to_roll
from tallymark.store.grains import floor

_LOWEST = "SELECT b FROM book WHERE store = ? AND book = ? AND kind = ? AND a = ? AND b < ? LIMIT 1"

Shard = tuple[int, int]
"""(meter, shard)"""


class Roller:
    def __init__(self, reader: Reader, fold: Fold) -> None:
        self._reader = reader
        self._fold = fold

    def roll(self, *, now_s: int, delay_s: int, slice_series: int) -> bool:
        """Does one slice of what is due, hours before days; False when nothing is."""
        with self._fold.lock:
            head = self._reader.book.head(settled=True)
            self._fold.term.check(head)
            marks = progress(head)
            for level in LEVELS:
                closed = closed_through(level, rolled=marks.rolled, time_s=now_s - delay_s)
                if marks.rolled[level.grain_s] < closed:
                    if marks.folding is not None:
                        # One change at a time: what is folded must not be in a rolled hour for one shard only.
                        self._fold.fold(most_points=max(slice_series, 1000))
                    else:
                        self._roll(head, level, closed, slice_series)
                    return True
        return False

    def _roll(self, head: Head, level: Level, closed: int, slice_series: int) -> None:
        grain_s = level.grain_s
        reader = self._reader
        found = reader.link.rows(_LOWEST, reader.store, POINTS, UNROLLED, grain_s, closed)
        if not found:
            self._change(head, lambda now: now.with_through(grain_s, closed))
            return
        bucket_s = int(found[0][0])
        marks = progress(head)
        done = marks.rolling.get(grain_s)
        shards = _shards(marks, reader.points.shards)
        if done is not None and done.bucket_s == bucket_s:
            shards = [each for each in shards if each > (done.meter, done.shard)]
        passed = self._write(level, bucket_s, shards, slice_series, marks.mark)
        if passed == len(shards):
            self._finish(head, level, bucket_s)
            return

        def moved(now: Progress) -> Progress:
            rolling = now.rolling | {grain_s: Rolling(bucket_s, *shards[passed - 1])}
            return msgspec.structs.replace(now.with_through(grain_s, bucket_s), mark=now.mark + 1, rolling=rolling)

        self._change(head, moved)

    def _write(self, level: Level, bucket_s: int, shards: list[Shard], most_rows: int, mark: int) -> int:
        """Sums the bucket in as many shards as make up a slice, at least one; how many that were."""
        points = self._reader.points
        window_s = floor(bucket_s, WINDOWS[level.finer_s])
        places: list[Place] = [(*shard, window_s) for shard in shards]
        summed: list[pl.DataFrame] = []
        rows = passed = 0
        for found in points.summed(level.finer_s, level.grain_s, places, bucket_s, mark=mark):
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
            self._fold.write_cache.follow(head.token, moved.head.token)


def _shards(marks: Progress, count: int) -> list[Shard]:
    """In the order in which they are rolled; the sums of a meter come first."""
    return [(meter, shard) for meter in marks.meters for shard in (SUMS, *range(count))]
