"""The index over labels: which series of a meter have a value. Written before their first points are."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import polars as pl

from tallymark.store.cassandra.connection import Ask, Link
from tallymark.store.deltas import SEPARATOR
from tallymark.store.model import RegisteredMeter

# Series that are read one by one. Of more than that, whole partitions are read instead. Not tuned.
MAX_NAMED = 500
MAX_KNOWN = 1_000_000

_WRITE = "INSERT INTO series_by_label (store, meter, label, value, series) VALUES (?, ?, ?, ?, ?)"
_READ = "SELECT series FROM series_by_label WHERE store = ? AND meter = ? AND label = ? AND value = ? LIMIT ?"


class LabelIndex:
    """Labels go by their place in the series, since deltas do not know their names."""

    def __init__(self, link: Link, store: str) -> None:
        self._link = link
        self._store = store
        self._known: set[tuple[int, str]] = set()

    def add(self, rows: pl.DataFrame) -> None:
        """The series of these rows. Those met before are known to be there; doing it again changes nothing."""
        pairs: list[tuple[int, str]] = rows.filter(pl.col("shard") >= 0).select("meter", "series").unique().rows()
        fresh = [pair for pair in pairs if pair not in self._known]
        self._link.write([ask] for ask in self._writes(fresh))
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        self._known.update(fresh)

    def _writes(self, series: Sequence[tuple[int, str]]) -> Iterator[Ask]:
        for meter, text in series:
            for place, value in enumerate(text.split(SEPARATOR)):
                yield _WRITE, (self._store, meter, str(place), value, text)

    def named(self, meter: RegisteredMeter, where: Mapping[str, Sequence[str]]) -> set[str] | None:
        """The series that can meet these conditions, perhaps some more; None if they are too many to name."""
        if set(where) == set(meter.labels) and prod(map(len, where.values())) <= MAX_NAMED:
            return {SEPARATOR.join(values) for values in product(*(where[label] for label in meter.labels))}
        fewest: set[str] | None = None
        for label, values in where.items():
            found = self._with(meter, label, values)
            if found is not None:
                fewest = found if fewest is None else fewest & found
        return fewest

    def _with(self, meter: RegisteredMeter, label: str, values: Sequence[str]) -> set[str] | None:
        place = str(meter.labels.index(label))
        asks: Iterator[Ask] = ((_READ, (self._store, meter.set_id, place, value, MAX_NAMED + 1)) for value in values)
        found: set[str] = set()
        for result in self._link.stream(asks):
            found.update(series for page in self._link.pages(result) for (series,) in page)
            if len(found) > MAX_NAMED:
                return None
        return found
