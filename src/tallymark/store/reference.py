"""The reference: the counts in plain Python. What every store must answer; used by the tests of all of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallymark.aggregates import columns, exact
from tallymark.store import deltas
from tallymark.store.model import RegisteredMeter, StretchResult

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
    """Counts by (meter, series, minute), and the rule of which stretch counts."""

    cells: dict[tuple[int, str, int], Cell] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)

    def apply(self, results: Sequence[StretchResult]) -> None:
        for result in results:
            stretch = result.stretch
            if self.applied.get(stretch.partition, 0) == stretch.start:
                self.applied[stretch.partition] = stretch.end
                for meter, series, bucket_s, *aggregates in deltas.decode(result.deltas).rows():
                    key = (meter, series, bucket_s)
                    self.cells[key] = add(self.cells.get(key, NOTHING), cell(*aggregates))

    def read(
        self,
        meter: RegisteredMeter,
        *,
        where: Mapping[str, Sequence[str]],
        by: Sequence[str],
        start_s: int | None,
        end_s: int | None,
        step_s: int | None,
    ) -> dict[tuple[str | int, ...], Cell]:
        """The rows of `Snapshot.read` as (labels of `by`, bucket) -> cell."""
        answer: dict[tuple[str | int, ...], Cell] = {} if by or step_s else {(): NOTHING}
        for labels, bucket_s, found in self._of(meter):
            is_in_range = (start_s is None or bucket_s >= start_s) and (end_s is None or bucket_s < end_s)
            if is_in_range and all(labels[label] in values for label, values in where.items()):
                key = tuple(labels[label] for label in by) + ((bucket_s // step_s * step_s,) if step_s else ())
                answer[key] = add(answer.get(key, NOTHING), found)
        return answer

    def _of(self, meter: RegisteredMeter) -> Iterator[tuple[dict[str, str], int, Cell]]:
        for (meter_id, series, bucket_s), found in self.cells.items():
            if meter_id == meter.set_id:
                yield dict(zip(meter.labels, series.split(deltas.SEPARATOR), strict=False)), bucket_s, found


def _named(aggregates: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(columns.NAMES, aggregates, strict=True))
