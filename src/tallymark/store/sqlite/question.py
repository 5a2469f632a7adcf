"""A question to the points of one grain, as SQL: which series, which buckets, which aggregates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tallymark.store import exact
from tallymark.store.deltas import AGGREGATES
from tallymark.store.grains import Piece
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import StoreError
from tallymark.store.sqlite.series import SUM_OF_ALL, labels_text

# Series that are named in full are looked up one by one up to this many, else by the label index. Not tuned.
MAX_NAMED_SERIES = 200

_SUMMED = {
    "n": "SUM(n)",
    "n_value": "SUM(n_value)",
    "sum": "SUM(sum)",
    # The carry is left to `deltas.merged`: 2^31 rows are far off.
    "exact_high": "SUM(exact_high)",
    "exact_low": "SUM(exact_low)",
    "min": "MIN(min)",
    "max": "MAX(max)",
}


@dataclass(frozen=True, slots=True)
class Statement:
    sql: str
    parameters: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """Aggregates of a meter over [start_s, end_s), for the series that `where` picks, grouped by labels and step."""

    meter: RegisteredMeter
    where: Mapping[str, Sequence[str]]
    by: tuple[str, ...]
    start_s: int
    end_s: int
    step_s: int | None

    def __post_init__(self) -> None:
        unknown = sorted({*self.where, *self.by} - set(self.meter.labels))
        if unknown:
            known = ", ".join(self.meter.labels) or "none"
            raise StoreError(f"meter {self.meter.meter.name} has no label {unknown[0]}; it has {known}")
        for name, value in (("start", self.start_s), ("end", self.end_s), ("step", self.step_s or 0)):
            if value % 60:
                raise StoreError(f"{name} = {value} s is not a whole minute, the finest grain kept")

    @property
    def computed(self) -> frozenset[str]:
        """The aggregates that this meter's answers need; reading fewer columns halves the time of a wide question."""
        wanted = set(self.meter.meter.compute)
        total = exact.PARTS if self.meter.meter.decimals is not None else ("sum",)
        needed = {"n"}
        if wanted - {"count"}:
            needed.add("n_value")
        if wanted & {"sum", "avg"}:
            needed.update(total)
        return frozenset(needed | (wanted & {"min", "max"}))

    @property
    def reads_sums(self) -> bool:
        """Whether the sum over all series answers it."""
        return not self.where and not self.by

    def places(self) -> list[tuple[str, int]]:
        """(label, its place in the series) for each label in `by`."""
        return [(label, self.meter.labels.index(label)) for label in self.by]

    def statement(self, piece: Piece) -> Statement:
        """One row a series and step; without `by` one row a step."""
        columns, groups = [], []
        if self.by:
            columns.append("series.series_id")
            groups.append("series.series_id")
        if self.step_s is not None:
            columns.append(f"{self._bucket(piece)} AS step_s")
            groups.append("step_s")
        columns += [_SUMMED[name] if name in self.computed else "NULL" for name in AGGREGATES]
        chosen, parameters = self._series()
        # From series to points: a seek for each series. The CROSS JOIN keeps SQLite from turning that round.
        sql = (
            f"SELECT {', '.join(columns)} FROM series CROSS JOIN points_{piece.grain_s} AS points"
            " ON points.series_id = series.series_id AND points.bucket_s >= ? AND points.bucket_s < ?"
            f" WHERE {chosen}"
        )
        if groups:
            sql += f" GROUP BY {', '.join(groups)}"
        return Statement(sql, (piece.start_s, piece.end_s, *parameters))

    def _bucket(self, piece: Piece) -> str:
        if self.step_s == piece.grain_s:
            return "points.bucket_s"
        # SQLite's remainder takes the sign of the left side; this one rounds down before 1970 too.
        return f"points.bucket_s - ((points.bucket_s % {self.step_s}) + {self.step_s}) % {self.step_s}"

    def _series(self) -> tuple[str, list[object]]:
        meter_id = self.meter.meter_id
        if not self.where:
            # The number of that series rather than its labels: so the index over meters suffices.
            is_sum = "IS" if self.reads_sums else "IS NOT"
            the_sum = "(SELECT series_id FROM series WHERE meter_id = ? AND labels = ?)"
            return f"series.meter_id = ? AND series.series_id {is_sum} {the_sum}", [meter_id, meter_id, SUM_OF_ALL]
        if set(self.where) == set(self.meter.labels) and prod(map(len, self.where.values())) <= MAX_NAMED_SERIES:
            named = [labels_text(values) for values in product(*(self.where[label] for label in self.meter.labels))]
            return f"series.meter_id = ? AND series.labels IN ({_marks(named)})", [meter_id, *named]
        conditions: list[str] = []
        parameters: list[object] = []
        for label, values in self.where.items():
            conditions.append(
                "series.series_id IN (SELECT series_id FROM series_labels"
                f" WHERE meter_id = ? AND key = ? AND value IN ({_marks(values)}))"
            )
            parameters += [meter_id, self.meter.labels.index(label), *values]
        return " AND ".join(conditions), parameters


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
