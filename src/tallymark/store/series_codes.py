"""Series of a set as small integers, so that questions compare, group and rank numbers instead of text."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt
import polars as pl

from tallymark.store.deltas import SEPARATOR
from tallymark.store.model import label_column

Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

# Series that are named in full are looked up one by one up to this many, else by a pass over the labels. Not tuned.
MOST_NAMED = 2_000
# Groupings that are kept: each takes memory for every series, and sixteen labels can be put in any order.
MOST_GROUPINGS = 8


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups into which labels put the series."""

    labels: pl.DataFrame
    """a row a group, in order: a text column for each label; none if there is one group of all"""
    of_code: Codes
    """the group of each series"""


class SeriesCodes:
    """The series of one set, numbered in the order in which this process met them; none is ever taken back."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self._lock = threading.Lock()
        self._codes: dict[str, int] = {}
        self._texts: list[str] = []
        self._table = self._table_of([])
        self._groups: dict[tuple[str, ...], Groups] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def of(self, texts: Sequence[str]) -> Codes:
        """One code a text; a text not met before gets the next one."""
        codes = self._codes
        found = [codes.get(text, -1) for text in texts]
        if -1 in found:
            with self._lock:
                for text in texts:
                    if text not in codes:
                        # The text first: a code that somebody can find must have one.
                        self._texts.append(text)
                        codes[text] = len(self._texts) - 1
            found = [codes[text] for text in texts]
        return np.array(found, np.int32)

    def table(self) -> pl.DataFrame:
        """By code: the text (`series`) and a column for each label; of all codes given out so far, perhaps more."""
        with self._lock:
            known, size = self._table, len(self._texts)
            if known.height < size:
                self._table = known = pl.concat([known, self._table_of(self._texts[known.height : size])])
            return known

    def chosen(self, where: Mapping[str, Sequence[str]]) -> Codes:
        """The codes of the series that may have these labels, in order."""
        if set(where) == set(self.labels) and prod(map(len, where.values())) <= MOST_NAMED:
            named = (SEPARATOR.join(values) for values in product(*(where[label] for label in self.labels)))
            found = {self._codes.get(text, -1) for text in named}
            return np.array(sorted(found - {-1}), np.int32)
        is_asked = [pl.col(label_column(label)).is_in(list(values)) for label, values in where.items()]
        return self.table().select(pl.all_horizontal(is_asked).arg_true()).to_series().to_numpy().astype(np.int32)

    def groups(self, by: Sequence[str]) -> Groups:
        """Of all codes given out so far."""
        names = [label_column(label) for label in by]
        table = self.table()
        if not by:
            return Groups(pl.DataFrame(), np.zeros(table.height, np.int32))
        known = self._groups.get(tuple(by))
        if known is not None and len(known.of_code) == table.height:
            return known
        labels = table.select(names).unique().sort(names)
        numbered = labels.with_row_index("_group")
        joined = table.select(names).join(numbered, on=names, how="left", maintain_order="left")
        groups = Groups(labels, joined["_group"].to_numpy().astype(np.int32))
        with self._lock:
            self._groups.pop(tuple(by), None)
            self._groups[tuple(by)] = groups
            while len(self._groups) > MOST_GROUPINGS:
                del self._groups[next(iter(self._groups))]
        return groups

    def beyond(self, series: str) -> Mask:
        """Which codes stand for a series after this one in the order of texts."""
        return (self.table()["series"] > series).to_numpy()

    def _table_of(self, texts: list[str]) -> pl.DataFrame:
        series = pl.Series("series", texts, dtype=pl.String)
        parts = series.str.split(SEPARATOR)
        return pl.DataFrame(
            [
                series,
                *(
                    parts.list.get(place, null_on_oob=True).alias(label_column(label))
                    for place, label in enumerate(self.labels)
                ),
            ]
        )


def is_among(codes: Codes, chosen: Codes) -> Mask:
    """Which of the codes are chosen; `chosen` is in order."""
    if not len(chosen):
        return np.zeros(len(codes), np.bool_)
    places = np.minimum(np.searchsorted(chosen, codes), len(chosen) - 1)
    found: Mask = chosen[places] == codes
    return found
