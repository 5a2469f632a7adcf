"""States: what a row of points holds, as one cell.

Two versions: what the last change made of it, and what it was before. So a reader takes the newest that counts for it,
and a change under way shows in no answer however much of it is written. One cell, because then no row is ever mixed
from two writers, and because a thousand of them are decoded at once.

A cell is the version of its format, the two versions of its numbers in fixed places, then the two sketches, if any.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

from tallymark.aggregates.columns import COLUMNS, SKETCH, TYPES
from tallymark.store.format import VERSION, newer
from tallymark.store.protocol import SnapshotOutdated, StoreError

Versions = npt.NDArray[np.void]

_UNVERSIONED = 2
"""the last format whose cells do not say their version; they are told by their size"""


class _Layout:
    """The fixed part of the cells of one format."""

    def __init__(self, version: int) -> None:
        self.columns = [column for column in COLUMNS if column.since <= version and not column.is_sketch]
        numbers = [(column.name, column.numpy_type) for column in self.columns]
        nullable = [column.name for column in self.columns if column.may_be_null]
        sides: list[tuple[str, str]] = []
        if version == _UNVERSIONED:
            # Both parts of an exact sum shared a bit.
            self.bits = {"sum": 1, "exact_high": 2, "exact_low": 2, "min": 4, "max": 8}
            sides = [("change", "<i8"), *numbers, ("has", "u1")]
            self.begins = 0
        else:
            self.bits = {name: 1 << place for place, name in enumerate(nullable)}
            sides = [("change", "<i8"), *numbers, ("has", "<u2"), ("sketch_bytes", "<u4")]
            self.begins = 1
        side = np.dtype(sides)
        self.cell = np.dtype([("now", side), ("before", side)])
        self.ends = self.begins + self.cell.itemsize


_layout = cache(_Layout)


def encode(change: int, now: pl.DataFrame, before: pl.DataFrame) -> list[bytes]:
    """A state a row. `before` has the column `change` beside the aggregates, null where there was no row."""
    layout = _layout(VERSION)
    states = np.zeros(now.height, layout.cell)
    states["now"]["change"] = change
    states["before"]["change"] = before["change"].fill_null(0).to_numpy()
    for side, rows in (("now", now), ("before", before)):
        _fill(states[side], rows, layout)
    packed, size, version = states.tobytes(), layout.cell.itemsize, bytes([VERSION])
    cells = [version + packed[start : start + size] for start in range(0, len(packed), size)]
    if now[SKETCH].null_count() == now.height and before[SKETCH].null_count() == before.height:
        return cells
    sketches = zip(cells, now[SKETCH], before[SKETCH], strict=True)
    return [cell + (new or b"") + (old or b"") for cell, new, old in sketches]


def decode(states: Sequence[bytes], *, mark: int) -> pl.DataFrame:
    """For each the version that counts at this mark: `change` and the aggregates; `change` 0 where there was none."""
    formats = [_format(state) for state in states]
    if len(set(formats)) <= 1:
        return _decode(states, formats[0] if formats else VERSION, mark)
    # Cells that were written before an upgrade and since then, in one answer.
    parts = []
    for each in sorted(set(formats)):
        places = [place for place, found in enumerate(formats) if found == each]
        part = _decode([states[place] for place in places], each, mark)
        parts.append(part.with_columns(pl.Series("place", places)))
    return pl.concat(parts).sort("place").drop("place")


def _format(state: bytes) -> int:
    if len(state) == _layout(_UNVERSIONED).ends:
        return _UNVERSIONED
    if not state or not _UNVERSIONED < state[0] <= VERSION:
        raise StoreError(newer("a row of points", state[0] if state else "none"))
    return state[0]


def _decode(states: Sequence[bytes], version: int, mark: int) -> pl.DataFrame:
    layout = _layout(version)
    found = np.frombuffer(b"".join(state[layout.begins : layout.ends] for state in states), layout.cell)
    is_now = found["now"]["change"] <= mark
    chosen = np.where(is_now, found["now"], found["before"])
    if len(chosen) and int(chosen["change"].max()) > mark:
        raise SnapshotOutdated(
            f"points were changed twice since change {mark}, which this snapshot stands for: take a new one"
        )
    has = chosen["has"]
    columns = {"change": pl.Series("change", chosen["change"])}
    for column in layout.columns:
        values = pl.Series(column.name, np.ascontiguousarray(chosen[column.name]))
        if column.may_be_null:
            values = values.set(pl.Series((has & layout.bits[column.name]) == 0), None)
        columns[column.name] = values
    missing = [column.left_out for column in COLUMNS if column.name not in columns]
    frame = pl.DataFrame(columns).with_columns(missing)
    if version > _UNVERSIONED and chosen["sketch_bytes"].any():
        frame = frame.with_columns(_sketches(states, layout, found, is_now))
    return frame.select("change", *TYPES)


def _sketches(states: Sequence[bytes], layout: _Layout, found: Versions, is_now: npt.NDArray[np.bool_]) -> pl.Series:
    new = found["now"]["sketch_bytes"].astype(np.int64)
    start = np.where(is_now, layout.ends, layout.ends + new)
    end = start + np.where(is_now, new, found["before"]["sketch_bytes"])
    spans = zip(states, start.tolist(), end.tolist(), strict=True)
    return pl.Series(SKETCH, [state[first:last] or None for state, first, last in spans], dtype=pl.Binary)


def _fill(versions: Versions, rows: pl.DataFrame, layout: _Layout) -> None:
    for column in layout.columns:
        versions[column.name] = rows[column.name].fill_null(0).to_numpy()
    for name, bit in layout.bits.items():
        versions["has"] |= rows[name].is_not_null().to_numpy().astype(np.uint16) * np.uint16(bit)
    versions["sketch_bytes"] = rows[SKETCH].bin.size().fill_null(0).to_numpy()
