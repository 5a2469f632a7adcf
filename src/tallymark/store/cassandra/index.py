"""The series of each set, and which of them have a label's value. Written before their first points are."""

from collections.abc import Collection, Iterator, Sequence
from itertools import product
from math import prod

import polars as pl

from tallymark.store.cassandra.connection import Ask, Link
from tallymark.store.deltas import SEPARATOR
from tallymark.store.read_plan import Question

# Series that are read one by one. Of more than that, whole partitions are read instead. Not tuned.
MAX_NAMED = 500
MAX_KNOWN = 1_000_000

_ADD = "INSERT INTO series (store, meter, shard, series) VALUES (?, ?, ?, ?)"
_COUNT = "SELECT COUNT(*) FROM series WHERE store = ? AND meter = ? AND shard = ?"
_LIST = "SELECT series FROM series WHERE store = ? AND meter = ? AND shard = ?"
_WRITE = "INSERT INTO series_by_label (store, meter, label, value, series) VALUES (?, ?, ?, ?, ?)"
_READ = "SELECT series FROM series_by_label WHERE store = ? AND meter = ? AND label = ? AND value = ? LIMIT ?"


class LabelIndex:
    """Labels go by their place in the series, since deltas do not know their names."""

    def __init__(self, link: Link, store: str) -> None:
        self._link = link
        self._store = store
        self._known: set[tuple[int, str]] = set()
        self._grown: set[int] = set()
        self._counts: dict[int, int] = {}

    def add(self, rows: pl.DataFrame) -> None:
        """The series of these rows. Those met before are known to be there; doing it again changes nothing."""
        found = rows.filter(pl.col("shard") >= 0).select("meter", "shard", "series").unique().iter_rows()
        fresh = [(meter, shard, series) for meter, shard, series in found if (meter, series) not in self._known]
        self._link.write([ask] for ask in self._writes(fresh))
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        self._known.update((meter, series) for meter, _, series in fresh)
        self._grown.update(meter for meter, _, _ in fresh)

    def counts(self, sets: Collection[int], shards: int) -> dict[int, int]:
        """Set -> how many series were added since format 6: a series of before is added again with its next points.

        By the server, and only of sets to which this process has added any since it counted them last.
        """
        due = [set_id for set_id in sets if set_id not in self._counts or set_id in self._grown]
        self._grown.clear()
        asks: Iterator[Ask] = ((_COUNT, (self._store, set_id, shard)) for set_id in due for shard in range(shards))
        found = [result.one()[0] for result in self._link.stream(asks)]
        self._counts |= {set_id: sum(found[at * shards : (at + 1) * shards]) for at, set_id in enumerate(due)}
        return self._counts

    def all_series(self, set_id: int, shards: int) -> Iterator[str]:
        """Those added since format 6, in which sets with a limit began."""
        asks: Iterator[Ask] = ((_LIST, (self._store, set_id, shard)) for shard in range(shards))
        for result in self._link.stream(asks):
            for page in self._link.pages(result):
                yield from (series for (series,) in page)

    def _writes(self, fresh: Sequence[tuple[int, int, str]]) -> Iterator[Ask]:
        for meter, shard, text in fresh:
            yield _ADD, (self._store, meter, shard, text)
            for place, value in enumerate(text.split(SEPARATOR)):
                yield _WRITE, (self._store, meter, str(place), value, text)

    def named(self, question: Question) -> set[str] | None:
        """The series that can meet its conditions, perhaps some more; None if they are too many to name."""
        meter, where = question.meter, question.where
        if set(where) == set(meter.labels) and prod(map(len, where.values())) <= MAX_NAMED:
            return {SEPARATOR.join(values) for values in product(*(where[label] for label in meter.labels))}
        fewest: set[str] | None = None
        for label, values in where.items():
            found = self._with(question.set_id, meter.labels.index(label), values)
            if found is not None:
                fewest = found if fewest is None else fewest & found
        return fewest

    def _with(self, set_id: int, place: int, values: Sequence[str]) -> set[str] | None:
        asks: Iterator[Ask] = ((_READ, (self._store, set_id, str(place), value, MAX_NAMED + 1)) for value in values)
        found: set[str] = set()
        for result in self._link.stream(asks):
            found.update(series for page in self._link.pages(result) for (series,) in page)
            if len(found) > MAX_NAMED:
                return None
        return found
