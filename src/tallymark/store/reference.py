"""The reference: the counts in plain Python. What every store must answer; used by the tests of all of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallymark.aggregates import columns, exact
from tallymark.meters.model import OTHER
from tallymark.store import deltas
from tallymark.store.model import StretchResult
from tallymark.store.read_plan import Question

Cell = tuple[Any, ...]
"""a number for each of `columns.NAMES`"""
WIDTH = len(columns.NAMES)
NOTHING: Cell = tuple(columns.NOTHING.values())


def cell(*aggregates: Any) -> Cell:
    """The aggregates of one row of deltas or of an answer. Two rows with the same exact sum have the same parts."""
    row = _named(aggregates)
    units = exact.whole(row[exact.HIGH], row[exact.LOW])
    parts = (None, None) if units is None else exact.split(units)
    return tuple({**row, **dict(zip(exact.PARTS, parts, strict=True))}.values())


def add(left: Cell, right: Cell) -> Cell:
    return tuple(columns.of_two(_named(left), _named(right)).values())


@dataclass
class Reference:
    """Counts by (set, series, bucket), and the rule of which stretch counts."""

    limits: Mapping[int, int] = field(default_factory=dict)
    """set -> its `max_series`"""
    cells: dict[tuple[int, str, int], Cell] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)
    admitted: dict[int, set[str]] = field(default_factory=dict)

    def apply(self, results: Sequence[StretchResult]) -> None:
        """One batch."""
        rows: list[tuple[Any, ...]] = []
        for result in results:
            stretch = result.stretch
            if self.applied.get(stretch.partition, 0) == stretch.start:
                self.applied[stretch.partition] = stretch.end
                rows += deltas.decode(result.deltas).rows()
        for set_id, series, bucket_s, *aggregates in sorted(rows, key=lambda row: row[:2]):
            key = (set_id, self._name(set_id, series), bucket_s)
            self.cells[key] = add(self.cells.get(key, NOTHING), cell(*aggregates))

    def _name(self, set_id: int, series: str) -> str:
        """Under which series it counts."""
        other = deltas.SEPARATOR.join(OTHER for _ in series.split(deltas.SEPARATOR))
        admitted = self.admitted.setdefault(set_id, set())
        if set_id not in self.limits or series in admitted:
            return series
        if series == other or len(admitted) == self.limits[set_id]:
            return other
        admitted.add(series)
        return series

    def read(self, question: Question) -> dict[tuple[str | int, ...], Cell]:
        """The rows of `Snapshot.read` as (labels of `by`, bucket) -> cell."""
        step_s = question.step_s
        answer: dict[tuple[str | int, ...], Cell] = {} if question.by or step_s else {(): NOTHING}
        for labels, bucket_s, found in self._of(question):
            is_in_range = question.start_s <= bucket_s < question.end_s
            if is_in_range and all(labels[label] in values for label, values in question.where.items()):
                key = tuple(labels[label] for label in question.by) + ((bucket_s // step_s * step_s,) if step_s else ())
                answer[key] = add(answer.get(key, NOTHING), found)
        return answer

    def _of(self, question: Question) -> Iterator[tuple[dict[str, str], int, Cell]]:
        for (meter_id, series, bucket_s), found in self.cells.items():
            if meter_id == question.set_id:
                yield dict(zip(question.meter.labels, series.split(deltas.SEPARATOR), strict=False)), bucket_s, found


def _named(aggregates: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(columns.NAMES, aggregates, strict=True))
