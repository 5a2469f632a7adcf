"""A question to the store: which series, which buckets, which aggregates; and the part of it that deltas answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from tallymark.aggregates.columns import NAMES
from tallymark.aggregates.functions import VERSION_COLUMN, columns_for
from tallymark.store import numeric
from tallymark.store.deltas import SEPARATOR
from tallymark.store.grains import EARLIEST_S, LATEST_S
from tallymark.store.model import RegisteredMeter, label_column
from tallymark.store.protocol import StoreError
from tallymark.store.series_codes import Codes, SeriesCodes, is_among


@dataclass(frozen=True, slots=True)
class Question:
    """Aggregates of a meter over [start_s, end_s), for the series that `where` picks, grouped by labels and step."""

    meter: RegisteredMeter
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """label -> the values that it may have"""
    by: Sequence[str] = ()
    start_s: int = EARLIEST_S
    end_s: int = LATEST_S
    step_s: int | None = None
    """width of a bucket, multiples of it since the epoch; None for one number over the whole range"""
    functions: Sequence[str] | None = None
    """those whose columns are wanted; None for all that the meter computes"""
    late: bool = False
    """asks for the events that the meter put aside because they were late, instead of the others"""
    dropped: bool = False
    """asks how many named numbers the meter did not store because no saved query selects them: only `count` is known"""

    @classmethod
    def between(cls, meter: RegisteredMeter, *, start_s: int | None, end_s: int | None, **rest: Any) -> "Question":
        """An open end is one far away."""
        start, end = EARLIEST_S if start_s is None else start_s, LATEST_S if end_s is None else end_s
        return cls(meter, start_s=start, end_s=end, **rest)

    def __post_init__(self) -> None:
        unknown = sorted({*self.where, *self.by} - set(self.meter.labels))
        if unknown:
            known = ", ".join(self.meter.labels) or "none"
            raise StoreError(f"meter {self.meter.meter.name} has no label {unknown[0]}; it has {known}")
        meter = self.meter.meter
        for name, value in (("start", self.start_s), ("end", self.end_s), ("step", self.step_s or 0)):
            if value % meter.grain_s:
                raise StoreError(
                    f"{name} = {value} s is not a multiple of {meter.grain_s} s, the grain of the meter {meter.name}"
                )
        if self.late and meter.late is None:
            raise StoreError(f"the meter {meter.name} does not say what becomes of late events; it has no `late`")

    @property
    def set_id(self) -> int:
        """Whose points answer it."""
        if self.dropped:
            return self.meter.dropped_set_id
        return self.meter.late_set_id if self.late else self.meter.set_id

    @property
    def grain_s(self) -> int:
        """The finest that is kept of it."""
        return self.meter.meter.grain_s

    @property
    def columns(self) -> list[str]:
        """What must be read, in the order of the table; the number of events always."""
        meter = self.meter.meter
        functions = meter.compute if self.functions is None else self.functions
        needed = columns_for(("count", *functions), decimals=meter.decimals)
        # Only where it can matter: with it, neither hot blocks nor NumPy answer.
        if any(self.meter.added_for(name) is not None for name in functions):
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

    def answer_coded(self, parts: Sequence[pl.DataFrame], codes: SeriesCodes) -> pl.DataFrame:
        """The same of rows of `tail`, which have codes for their series, or are sums over all of them."""
        chosen = codes.chosen(self.where) if self.where else None
        return pl.concat([self._answer_coded(part, codes, chosen) for part in parts])

    def plain_coded(self, parts: Sequence[pl.DataFrame], codes: SeriesCodes) -> list[numeric.Arrays]:
        """The same for `answer.plain`."""
        chosen = codes.chosen(self.where) if self.where else None
        return [self._plain_coded(part, chosen) for part in parts]

    def _plain_coded(self, rows: pl.DataFrame, chosen: Codes | None) -> numeric.Arrays:
        bucket_s = rows["bucket_s"].to_numpy()
        is_asked = (bucket_s >= self.start_s) & (bucket_s < self.end_s)
        if chosen is not None:
            is_asked &= is_among(rows["code"].to_numpy(), chosen)
        at = np.flatnonzero(is_asked)
        found = {name: values[at] for name, values in numeric.from_frame(rows, self.columns).items()}
        if self.step_s is not None:
            found["bucket_s"] = bucket_s[at] // self.step_s * self.step_s
        return found

    def _answer_coded(self, rows: pl.DataFrame, codes: SeriesCodes, chosen: Codes | None) -> pl.DataFrame:
        bucket_s = rows["bucket_s"].to_numpy()
        is_asked = (bucket_s >= self.start_s) & (bucket_s < self.end_s)
        if chosen is not None:
            is_asked &= is_among(rows["code"].to_numpy(), chosen)
        found = rows if is_asked.all() else rows.filter(is_asked)
        keys: list[pl.Series] = []
        if self.by:
            table, code = codes.table(), found["code"]
            keys = [table[label_column(label)].gather(code) for label in self.by]
        if self.step_s is not None:
            keys.append(found["bucket_s"] // self.step_s * self.step_s)
        return pl.DataFrame([*keys, *(found[name] for name in self.columns)])
