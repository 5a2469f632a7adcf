"""The reference: the counts in plain Python. What every store must answer; used by the tests of all of them."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tallymark.store import deltas, exact
from tallymark.store.model import RegisteredMeter, StretchResult

Number = TypeVar("Number", int, float)

Cell = tuple[int, int, float | None, int | None, float | None, float | None]
"""n, n_value, sum, exact in units, min, max"""
NOTHING: Cell = (0, 0, None, None, None, None)


def cell(
    n: int,
    n_value: int,
    total: float | None,
    exact_high: int | None,
    exact_low: int | None,
    least: float | None,
    most: float | None,
) -> Cell:
    """The aggregates of one row of deltas or of an answer."""
    return n, n_value, total, exact.whole(exact_high, exact_low), least, most


def add(left: Cell, right: Cell) -> Cell:
    return (
        left[0] + right[0],
        left[1] + right[1],
        _either(left[2], right[2], operator.add),
        _either(left[3], right[3], operator.add),
        _either(left[4], right[4], min),
        _either(left[5], right[5], max),
    )


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
            if meter_id == meter.meter_id:
                yield dict(zip(meter.labels, series.split(deltas.SEPARATOR), strict=False)), bucket_s, found


def _either(left: Number | None, right: Number | None, combine: Callable[[Number, Number], Number]) -> Number | None:
    """null + x = x"""
    if left is None or right is None:
        return right if left is None else left
    return combine(left, right)
