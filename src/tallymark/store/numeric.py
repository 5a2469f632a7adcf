"""Columns as NumPy arrays: the same merging as `aggregates.columns`, for the columns that are plain numbers.

For questions that read few rows, where each Polars call would cost more than the work in it, and for those that add up
many aligned ones. Nulls are filled with what changes nothing; afterwards the number of values says where nulls belong.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from tallymark.aggregates import columns, exact

# Whole numbers or floats, as the column is; NumPy's types cannot say which of a dict's values is what.
Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Places = npt.NDArray[np.integer] | slice

_LEAST = np.iinfo(np.int64).min
# Column -> (how two numbers merge, what changes nothing).
_RULES: dict[str, tuple[np.ufunc, float | int]] = {
    "n": (np.add, 0),
    "n_value": (np.add, 0),
    "sum": (np.add, 0.0),
    exact.HIGH: (np.add, 0),
    exact.LOW: (np.add, 0),
    "min": (np.minimum, np.inf),
    "max": (np.maximum, -np.inf),
    "last_ms": (np.maximum, _LEAST),
    "last": (np.maximum, -np.inf),
}
_TYPES = {column.name: np.dtype(column.numpy_type) for column in columns.COLUMNS if column.name in _RULES}
_ALWAYS = {"n", "n_value"}


def can_merge(names: Iterable[str]) -> bool:
    """Whether these columns are all plain numbers; null is then where there were no values, which `n_value` tells."""
    asked = set(names)
    return asked <= _RULES.keys() and ("n_value" in asked or asked <= _ALWAYS)


def from_rows(rows: Sequence[Sequence[object]], names: Sequence[str]) -> dict[str, Array]:
    """Rows as a database gives them, in the order of the names; a name without a rule is a key, and never null."""
    found: dict[str, Array] = {}
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        if name in _RULES:
            _, nothing = _RULES[name]
            filled = values if None not in values else [nothing if value is None else value for value in values]
            found[name] = np.array(filled, _TYPES[name])
        else:
            found[name] = np.array(values, np.int64)
    return found


def from_frame(rows: pl.DataFrame, names: Sequence[str]) -> dict[str, Array]:
    return {name: _filled(rows[name]) for name in names}


class Merged:
    """So many merged rows, all without events at first."""

    def __init__(self, names: Sequence[str], size: int) -> None:
        self.size = size
        self.columns = {name: np.full(size, _RULES[name][1], _TYPES[name]) for name in names}

    def add(self, at: Places, rows: Arrays, *, unique: bool) -> None:
        """Merges each row into the one at its place; `unique` if no place comes twice."""
        if "last" in self.columns:
            self._add_last(at, rows, unique=unique)
        for name, mine in self.columns.items():
            rule = _RULES[name][0]
            if name in {"last", "last_ms"}:
                continue
            if unique:
                mine[at] = rule(mine[at], rows[name])
            else:
                assert not isinstance(at, slice)
                rule.at(mine, at, rows[name])

    def _add_last(self, at: Places, rows: Arrays, *, unique: bool) -> None:
        """The latest pair of moment and value."""
        moments, values = rows["last_ms"], rows["last"]
        if not unique:
            assert not isinstance(at, slice)
            order = np.lexsort((values, moments, at))
            is_last = np.append(np.diff(at[order]) != 0, True)[: len(order)]
            order = order[is_last]
            at, moments, values = at[order], moments[order], values[order]
        known_ms, known = self.columns["last_ms"], self.columns["last"]
        is_later = (moments > known_ms[at]) | ((moments == known_ms[at]) & (values > known[at]))
        known_ms[at] = np.where(is_later, moments, known_ms[at])
        known[at] = np.where(is_later, values, known[at])

    def present(self) -> npt.NDArray[np.intp]:
        """The places of rows that have events."""
        return np.flatnonzero(self.columns["n"])

    def series(self, at: Places = slice(None)) -> list[pl.Series]:
        """All columns of `aggregates.columns` for these rows, with nulls where they belong."""
        found = {name: values[at] for name, values in self.columns.items()}
        if exact.LOW in found:
            carry = found[exact.LOW] >> exact.LOW_BITS
            found[exact.HIGH], found[exact.LOW] = found[exact.HIGH] + carry, found[exact.LOW] & (exact.BASE - 1)
        lacks_value = found["n_value"] == 0 if "n_value" in found else None
        made = []
        for column in columns.COLUMNS:
            values = found.get(column.name)
            if values is None:
                made.append(nothing(column.name, len(found["n"])))
            elif column.name in _ALWAYS or lacks_value is None or not lacks_value.any():
                made.append(pl.Series(column.name, values))
            else:
                made.append(pl.Series(column.name, pa.array(values, mask=lacks_value)))
        return made


def nothing(name: str, height: int) -> pl.Series:
    """A column of so many rows without events."""
    found = columns.NOTHING[name]
    if found is not None:
        return pl.Series(name, np.full(height, found, np.int64))
    return pl.Series(name, pa.nulls(height, _ARROW_TYPES[name]))


def _filled(values: pl.Series) -> Array:
    if values.name not in _RULES or not values.null_count():
        return values.to_numpy()
    nothing = _RULES[values.name][1]
    if values.dtype.is_float():
        found = values.to_numpy()  # nulls are NaN, which no value is
        return np.where(np.isnan(found), nothing, found)
    return values.fill_null(nothing).to_numpy()


_ARROW_TYPES = {name: pl.Series([], dtype=kind).to_arrow().type for name, kind in columns.TYPES.items()}
