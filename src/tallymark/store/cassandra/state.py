"""States: what a row of points holds, as one cell of fixed size.

Two versions: what the last change made of it, and what it was before. So a reader takes the newest that counts for it,
and a change under way shows in no answer however much of it is written. One cell, because then no row is ever mixed
from two writers, and because a thousand of them are decoded at once.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from tallymark.aggregates.columns import COLUMNS, NAMES
from tallymark.store.protocol import SnapshotOutdated

# Aggregates that may be null, and the bit that says that they are not.
_BITS = {"sum": 1, "exact_high": 2, "exact_low": 2, "min": 4, "max": 8}
_VERSION = np.dtype([("change", "<i8"), *((column.name, column.numpy_type) for column in COLUMNS), ("has", "u1")])
_STATE = np.dtype([("now", _VERSION), ("before", _VERSION)])

Versions = npt.NDArray[np.void]


def encode(change: int, now: pl.DataFrame, before: pl.DataFrame) -> list[bytes]:
    """A state a row. `before` has the column `change` beside the aggregates, null where there was no row."""
    states = np.zeros(now.height, _STATE)
    states["now"]["change"] = change
    _fill(states["now"], now)
    states["before"]["change"] = before["change"].fill_null(0).to_numpy()
    _fill(states["before"], before)
    packed = states.tobytes()
    size = _STATE.itemsize
    return [packed[start : start + size] for start in range(0, len(packed), size)]


def decode(states: Sequence[bytes], *, mark: int) -> pl.DataFrame:
    """For each the version that counts at this mark: `change` and the aggregates; `change` 0 where there was none."""
    found = np.frombuffer(b"".join(states), _STATE)
    chosen = np.where(found["now"]["change"] <= mark, found["now"], found["before"])
    if len(chosen) and int(chosen["change"].max()) > mark:
        raise SnapshotOutdated(
            f"points were changed twice since change {mark}, which this snapshot stands for: take a new one"
        )
    has = chosen["has"]
    columns = [pl.Series("change", chosen["change"])]
    for name in NAMES:
        values = pl.Series(name, np.ascontiguousarray(chosen[name]))
        if name in _BITS:
            values = values.set(pl.Series((has & _BITS[name]) == 0), None)
        columns.append(values)
    return pl.DataFrame(columns)


def _fill(versions: Versions, rows: pl.DataFrame) -> None:
    for name in NAMES:
        versions[name] = rows[name].fill_null(0).to_numpy()
    for name, bit in _BITS.items():
        versions["has"] |= rows[name].is_not_null().to_numpy().astype(np.uint8) * np.uint8(bit)
