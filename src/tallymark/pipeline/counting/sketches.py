"""From events to sketches: the bucket of each number and the register of each text, then a blob a series and bucket.

Each is worked out once an event, as one more column. Grouping hands them on as lists, which costs next to nothing, and
everything after that is numpy over all groups at once.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import polars as pl

from tallymark.aggregates import columns, distinct, histogram, sketch
from tallymark.aggregates.functions import HISTOGRAM, REGISTERS

TEXT = "text"
"""the column whose different texts are counted; the empty one does not count"""

_SLOT, _MARK = "slot", "mark"
# Stands where an event has no number, or no text.
_NOTHING = np.iinfo(np.int32).min


def with_slots(rows: pl.DataFrame, kept: Collection[str]) -> pl.DataFrame:
    """With what `lists` gathers, of the columns `number` and TEXT."""
    found = []
    if HISTOGRAM in kept:
        has_number = rows["number"].is_not_null().to_numpy()
        slots = histogram.slots_of(rows["number"].fill_null(0.0).to_numpy())
        found.append(pl.Series(_SLOT, np.where(has_number, slots, np.int32(_NOTHING))))
    if REGISTERS in kept:
        found.append(pl.Series(_MARK, _marks(rows[TEXT])))
    return rows.with_columns(found)


def _marks(texts: pl.Series) -> npt.NDArray[np.int32]:
    """Each different text is hashed once: that takes longer than finding out which are."""
    places = pl.DataFrame({TEXT: texts, "place": np.arange(len(texts))}).filter(pl.col(TEXT) != "")
    grouped = places.group_by(TEXT).agg("place")
    marks = np.full(len(texts), _NOTHING, np.int32)
    marks[_flat(grouped["place"])] = np.repeat(distinct.marks_of(grouped[TEXT]), grouped["place"].list.len().to_numpy())
    return marks


def lists(kept: Collection[str]) -> list[pl.Expr]:
    """For the grouping of rows `with_slots`."""
    return [pl.col(name) for name, kind in ((_SLOT, HISTOGRAM), (_MARK, REGISTERS)) if kind in kept]


def encoded(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups with their `lists` as sketches."""
    nothing = np.zeros(0, np.int64)
    found = sketch.Slots(nothing, nothing, nothing)
    if _SLOT in groups.columns:
        found = histogram.count(*_by_group(groups[_SLOT]))
    if _MARK in groups.columns:
        found = sketch.side_by_side(found, distinct.count(*_by_group(groups[_MARK])))
    blobs = sketch.write(found, groups.height).alias(columns.SKETCH)
    return groups.drop(_SLOT, _MARK, strict=False).with_columns(blobs)


def _by_group(found: pl.Series) -> tuple[sketch.Integers, sketch.Integers]:
    """(number of the group, what it holds) for everything in the lists."""
    group = np.repeat(np.arange(len(found)), found.list.len().to_numpy())
    each = _flat(found).astype(np.int64)
    is_something = each != _NOTHING
    return group[is_something], each[is_something]


def _flat(found: pl.Series) -> npt.NDArray[np.int32]:
    return found.explode(empty_as_null=False).to_numpy()
