"""Computes windows of many queries at once: the rows of a stretch of time are read once for all queries about them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from tallymark.aggregates import columns
from tallymark.aggregates.functions import VERSION_COLUMN, columns_for
from tallymark.evaluation.content import Content
from tallymark.evaluation.plan import Plan
from tallymark.evaluation.values import by_function, largest
from tallymark.store.model import label_column
from tallymark.store.protocol import Snapshot, TooManyBytes, TooManyRows
from tallymark.store.read_plan import Question

# Of what is read for all queries at once, and of what is read for one.
MOST_BYTES = 60_000_000
# Series that one window may have.
MOST_SERIES = 10_000
# Queries about one stretch of time that are read one by one: each reads its own series only.
FEW = 3
# Rows that are merged at once; those with sketches take a hundred times the room.
MOST_ROWS, MOST_SKETCHES = 400_000, 20_000

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One window of one query."""

    plan: Plan
    start_s: int
    end_s: int


Found = Content | str
"""what the window holds, or why that cannot be computed"""


def compute(snapshot: Snapshot, wanted: Sequence[Wanted]) -> list[Found]:
    """In the order of what is wanted."""
    found: list[Found] = [""] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda place: _stretch(wanted[place]))
    for _, group in groupby(order, key=lambda place: _stretch(wanted[place])):
        places = list(group)
        for place, content in zip(places, _of_stretch(snapshot, [wanted[place] for place in places]), strict=True):
            found[place] = content
    return found


def _stretch(each: Wanted) -> tuple[int, int, int]:
    return each.plan.meter.meter_id, each.start_s, each.end_s


def _of_stretch(snapshot: Snapshot, wanted: Sequence[Wanted]) -> list[Found]:
    """Of one meter and one stretch of time."""
    sums = [place for place, each in enumerate(wanted) if not each.plan.labels]
    others = [place for place, each in enumerate(wanted) if each.plan.labels]
    found: list[Found] = [""] * len(wanted)
    groups = [sums, *([[place] for place in others] if len(others) <= FEW else [others])]
    while groups:
        group = groups.pop()
        if not group:
            continue
        plans = [wanted[place].plan for place in group]
        try:
            rows = _read(snapshot, [wanted[place] for place in group])
        except (TooManyRows, TooManyBytes) as error:
            if len(group) > 1:
                groups += [[place] for place in group]
            else:
                found[group[0]] = _too_large(error)
            continue
        for place, content in zip(group, _contents(rows, plans, wanted[0]), strict=True):
            found[place] = content
    return found


def _too_large(error: Exception) -> str:
    return f"its windows are too large to be stored: {error}"


def _read(snapshot: Snapshot, wanted: Sequence[Wanted]) -> pl.DataFrame:
    """The rows of all of these, by the labels that they filter or group by."""
    plans, first = [each.plan for each in wanted], wanted[0]
    alone = plans[0] if len(plans) == 1 else None
    labels = plans[0].by if alone else sorted({label for each in plans for label in each.labels})
    question = Question(
        first.plan.meter,
        where=alone.where if alone else {},
        by=labels,
        start_s=first.start_s,
        end_s=first.end_s,
        functions=tuple(dict.fromkeys(name for each in plans for name in each.functions)),
    )
    return snapshot.read(question, most_bytes=MOST_BYTES).filter(pl.col("n") > 0)


@dataclass
class _Rows:
    """What was read, and where in it each value of a label is found."""

    frame: pl.DataFrame
    _index: dict[str, dict[str, Places]] = field(default_factory=dict)

    @cached_property
    def every(self) -> Places:
        return np.arange(self.frame.height)

    def places(self, plan: Plan) -> Places:
        """Of the rows that the plan asks for."""
        chosen: Places | None = None
        for label, values in plan.where.items():
            if label_column(label) not in self.frame.columns:
                continue  # read for this plan alone, already filtered
            index = self._of(label)
            parts = [index[value] for value in dict.fromkeys(values) if value in index]
            own = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
            chosen = own if chosen is None else np.intersect1d(chosen, own, assume_unique=True)
        return self.every if chosen is None else chosen

    def _of(self, label: str) -> dict[str, Places]:
        if label not in self._index:
            column = label_column(label)
            grouped = self.frame.select(column).with_row_index("_place").group_by(column).agg("_place")
            pairs = zip(grouped[column].to_list(), grouped["_place"], strict=True)
            self._index[label] = {value: places.to_numpy().astype(np.int64) for value, places in pairs}
        return self._index[label]


def _contents(read: pl.DataFrame, plans: Sequence[Plan], stretch: Wanted) -> list[Found]:
    """Queries that look at the same labels share rows that are merged by these; those of one shape are merged together.

    So a percentile over a thousand servers by route reads a row for each route: the servers are merged once for all.
    """
    found: list[Found] = [""] * len(plans)
    by_labels: dict[frozenset[str], list[int]] = {}
    for place, each in enumerate(plans):
        by_labels.setdefault(each.labels, []).append(place)
    for labels, group in by_labels.items():
        rows = _Rows(_merged_by(read, labels, [plans[place] for place in group]))
        shapes: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
        for place in group:
            shapes.setdefault((plans[place].by, plans[place].functions), []).append(place)
        for shape in shapes.values():
            for part, places in _portions(rows, plans, shape):
                contents = _merged(rows, [plans[each] for each in part], places, stretch)
                for place, content in zip(part, contents, strict=True):
                    found[place] = content
    return found


def _merged_by(read: pl.DataFrame, labels: frozenset[str], plans: Sequence[Plan]) -> pl.DataFrame:
    """By these labels alone, with the columns that the plans need."""
    keys = [column for label in sorted(labels) if (column := label_column(label)) in read.columns]
    needed = _needed({name for each in plans for name in each.functions}, plans[0])
    others = [name for name in read.columns if name not in keys and name not in columns.TYPES]
    return columns.merge(read.select(*keys, *needed), keys) if others else read.select(*keys, *needed)


def _needed(functions: Collection[str], plan: Plan) -> list[str]:
    """Columns; with the version, which says where a function has had all that it needs."""
    own = columns_for(("count", *functions), decimals=plan.meter.meter.decimals) | {VERSION_COLUMN}
    return [name for name in columns.NAMES if name in own]


def _portions(rows: _Rows, plans: Sequence[Plan], group: Sequence[int]) -> Iterator[tuple[list[int], list[Places]]]:
    has_sketches = columns.SKETCH in _needed(plans[group[0]].functions, plans[group[0]])
    most = MOST_SKETCHES if has_sketches else MOST_ROWS
    part: list[int] = []
    places: list[Places] = []
    held = 0
    for each in group:
        own = rows.places(plans[each])
        if part and held + len(own) > most:
            yield part, places
            part, places, held = [], [], 0
        part.append(each)
        places.append(own)
        held += len(own)
    yield part, places


def _merged(rows: _Rows, plans: Sequence[Plan], places: Sequence[Places], stretch: Wanted) -> list[Found]:
    keys = [label_column(label) for label in plans[0].by]
    query = pl.Series("_query", np.repeat(np.arange(len(plans)), [len(each) for each in places]))
    needed = _needed(plans[0].functions, plans[0])
    chosen = rows.frame.select(*keys, *needed)[np.concatenate(places)].with_columns(query)
    merged = columns.merge(chosen, ["_query", *keys]).sort("_query", *keys)
    ends = np.searchsorted(merged["_query"].to_numpy(), np.arange(len(plans) + 1)).tolist()
    if any(each.most is not None for each in plans):
        merged, ends = _limited(merged, ends, plans, keys)
    length_s = float(stretch.end_s - stretch.start_s)
    values = by_function(merged, plans[0].functions, plans[0].meter, seconds=[length_s] * merged.height)
    labels = [merged[key].to_list() for key in keys]
    found: list[Found] = []
    for first, end in pairwise(ends):
        if end - first > MOST_SERIES:
            found.append(
                f"a window has {end - first:,} series, and at most {MOST_SERIES:,} are stored; use fewer labels in BY,"
                " or a LIMIT"
            )
        else:
            found.append(Content([each[first:end] for each in labels], [each[first:end] for each in values]))
    return found


def _limited(
    merged: pl.DataFrame, ends: Sequence[int], plans: Sequence[Plan], keys: Sequence[str]
) -> tuple[pl.DataFrame, list[int]]:
    """Of each query that has a limit, the largest by its first function."""
    parts = []
    for each, first, end in zip(plans, ends, ends[1:], strict=False):
        own = merged[first:end]
        if each.most is not None and own.height > each.most:
            own = largest(own, keys, each.functions[0], each.meter, most=each.most)
        parts.append(own)
    return pl.concat(parts), [0, *np.cumsum([each.height for each in parts]).tolist()]
