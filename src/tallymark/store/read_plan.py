"""A question to the store: which series, which buckets, which aggregates; and the part of it that deltas answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tallymark.aggregates.columns import NAMES
from tallymark.aggregates.functions import VERSION_COLUMN, columns_for
from tallymark.store.deltas import SEPARATOR
from tallymark.store.grains import EARLIEST_S, LATEST_S
from tallymark.store.model import RegisteredMeter, label_column
from tallymark.store.protocol import StoreError


@dataclass(frozen=True, slots=True)
class Question:
    """Aggregates of a meter over [start_s, end_s), for the series that `where` picks, grouped by labels and step."""

    meter: RegisteredMeter
    where: Mapping[str, Sequence[str]]
    by: tuple[str, ...]
    start_s: int
    end_s: int
    step_s: int | None

    @classmethod
    def between(
        cls,
        meter: RegisteredMeter,
        where: Mapping[str, Sequence[str]],
        by: Sequence[str],
        start_s: int | None,
        end_s: int | None,
        step_s: int | None,
    ) -> "Question":
        """An open end is one far away."""
        start = EARLIEST_S if start_s is None else start_s
        return cls(meter, where, tuple(by), start, LATEST_S if end_s is None else end_s, step_s)

    def __post_init__(self) -> None:
        unknown = sorted({*self.where, *self.by} - set(self.meter.labels))
        if unknown:
            known = ", ".join(self.meter.labels) or "none"
            raise StoreError(f"meter {self.meter.meter.name} has no label {unknown[0]}; it has {known}")
        for name, value in (("start", self.start_s), ("end", self.end_s), ("step", self.step_s or 0)):
            if value % 60:
                raise StoreError(f"{name} = {value} s is not a whole minute, the finest grain kept")

    @property
    def columns(self) -> list[str]:
        """What must be read, in the order of the table; the number of events always."""
        meter = self.meter.meter
        needed = columns_for(("count", *meter.compute), decimals=meter.decimals)
        if self.meter.added:
            needed |= {VERSION_COLUMN}
        return [name for name in NAMES if name in needed]

    @property
    def reads_sums(self) -> bool:
        """Whether the sum over all series answers it."""
        return not self.where and not self.by

    def places(self) -> list[tuple[str, int]]:
        """(label, its place in the series) for each label in `by`."""
        return [(label, self.meter.labels.index(label)) for label in self.by]

    def answer(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """The part of the answer that these rows hold: this meter's deltas, or points with their series as text."""
        is_asked = (pl.col("bucket_s") >= self.start_s) & (pl.col("bucket_s") < self.end_s)
        labels = pl.col("series").str.split(SEPARATOR)
        for label, values in self.where.items():
            is_asked &= labels.list.get(self.meter.labels.index(label)).is_in(list(values))
        columns = [labels.list.get(place).alias(label_column(label)) for label, place in self.places()]
        if self.step_s is not None:
            columns.append(pl.col("bucket_s") // self.step_s * self.step_s)
        return rows.filter(is_asked).select(*columns, *self.columns)

    def answer_deltas(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        is_meter = pl.col("meter") == self.meter.set_id
        return pl.concat([self.answer(part.lazy().filter(is_meter)) for part in parts]).collect()
