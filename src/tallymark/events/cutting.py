"""Where to cut a batch that is too large for one frame, and what a piece of it must carry."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Column = Any  # a pyarrow array of whatever type

# Numbers of one event, its indexes into dictionaries and its offsets into texts; the same for all, so it needs no care.
_FIXED_BYTES = 96
_NUMBER_BYTES = 8


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with only those tenants and event names in its dictionaries that its rows use.

    A slice shares the dictionary of the whole, and a frame writes all of it: cut into 1,000 pieces, 10,000 names of
    1.3 MB would become 1.3 GB.
    """
    for column in ("tenant", "event"):
        place = batch.schema.get_field_index(column)
        names: Column = batch.column(place)
        own = _own_dictionary(names) if len(names.dictionary) > 1 else names
        if own is not names:
            batch = batch.set_column(place, batch.schema.field(place), own)
    return batch


def _own_dictionary(column: Column) -> Column:
    places = column.indices.to_numpy()
    used = np.zeros(len(column.dictionary), dtype=bool)
    used[places] = True
    if used.all():
        return column
    moved = np.cumsum(used, dtype=np.int32) - 1
    kept: Column = pa.array(np.flatnonzero(used))
    indexes: Column = pa.array(moved[places].astype(np.int32, copy=False))
    return pa.DictionaryArray.from_arrays(indexes, column.dictionary.take(kept))


def cuts(batch: pa.RecordBatch, pieces: int) -> list[tuple[int, int]]:
    """(first row, rows) of about so many pieces of about equal weight: at least two, none of them empty."""
    ends = np.cumsum(row_bytes(batch))
    targets = np.arange(1, pieces) * (ends[-1] / pieces)
    # Bounded on both sides, so that one row that outweighs all others is still parted from them.
    firsts = np.unique(np.clip(np.searchsorted(ends, targets), 1, batch.num_rows - 1)).tolist()
    bounds = [0, *firsts, batch.num_rows]
    return [(first, last - first) for first, last in pairwise(bounds)]


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """About what each row takes before compression."""
    sizes = np.full(batch.num_rows, _FIXED_BYTES, dtype=np.int64)
    column: Column
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            sizes += _lengths(column.dictionary)[column.indices.to_numpy()]
        elif pa.types.is_string(column.type):
            sizes += _lengths(column)
        elif pa.types.is_map(column.type):
            sizes += _map_bytes(column)
    return sizes


def _lengths(texts: Column) -> npt.NDArray[np.int64]:
    lengths: Column = pc.binary_length(texts)
    return np.asarray(lengths.fill_null(0), dtype=np.int64)


def _map_bytes(maps: Column) -> npt.NDArray[np.int64]:
    # `keys` are those of the whole batch, also if `maps` is a slice; the offsets say which are its own.
    keys: Column = maps.keys
    texts = _lengths(keys) if pa.types.is_string(keys.type) else np.zeros(len(keys), dtype=np.int64)
    ends = np.concatenate(([0], np.cumsum(texts + 2 * _NUMBER_BYTES)))
    bounds = maps.offsets.to_numpy()
    sizes: npt.NDArray[np.int64] = np.diff(ends[bounds])
    return sizes
