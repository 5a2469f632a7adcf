"""Which partition an event goes to. Only from what the client sent, so that a retry lands where its first copy did."""

import json
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from tallymark.events.frame import PROP
from tallymark.events.labels import label

Assignment = npt.NDArray[np.int64]


class Partitioner(Protocol):
    """A strategy of one stream."""

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """The partition of each event of a batch that has the columns of a frame."""
        ...


def partitioner(spec: str, partitions: int) -> Partitioner:
    """The strategy that `log.partition_by` names."""
    if spec == "id":
        return ById(partitions)
    if spec.startswith("key:") and len(spec) > len("key:"):
        return ByKey(spec.removeprefix("key:"), partitions)
    raise ValueError(f"log.partition_by = {spec!r} is not known; it is `id` or `key:NAME`")


class ById:
    """Spreads every key evenly, however popular, and brings all copies of one event together."""

    def __init__(self, partitions: int) -> None:
        self._partitions = np.uint64(partitions)

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        hashes = batch.column("hash_high").to_numpy(zero_copy_only=False).astype(np.uint64, copy=False)
        return (hashes % self._partitions).astype(np.int64)


class ByKey:
    """Keeps together all events with one label of a property; those without it are together too, as the empty label."""

    def __init__(self, key: str, partitions: int) -> None:
        self._key = key
        self._partitions = partitions

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        names = batch.schema.names
        column = PROP + self._key
        if column in names:
            assigned = self._by_column(batch.column(column))
        else:
            assigned = np.full(batch.num_rows, self._partition(None), np.int64)
        if "rest" in names and batch.column("rest").null_count < batch.num_rows:
            self._correct_by_rest(assigned, batch.column("rest"))
        return assigned

    def _by_column(self, values: "pa.Array[Any]") -> Assignment:
        """Hashes each distinct value once: batches repeat few values many times."""
        encoded = values.dictionary_encode()
        # The place after the last value is that of null.
        partition_of = [self._partition(value) for value in encoded.dictionary.to_pylist()] + [self._partition(None)]
        places: npt.NDArray[np.int32] = encoded.indices.fill_null(len(partition_of) - 1).to_numpy(zero_copy_only=False)
        return np.array(partition_of, np.int64)[places]

    def _correct_by_rest(self, assigned: Assignment, rest: "pa.Array[Any]") -> None:
        """A property whose values are of mixed kinds has no column: it stands in the JSON text of `rest`."""
        quoted = json.dumps(self._key, ensure_ascii=False)
        for row, text in enumerate(rest.to_pylist()):
            if text and (quoted in text or "\\" in text):
                properties = json.loads(text)
                if self._key in properties:
                    assigned[row] = self._partition(properties[self._key])

    def _partition(self, value: object) -> int:
        return int(xxh3_64_intdigest(label(value).encode())) % self._partitions
