"""Events find their partition by what the client sent, whichever column of the frame that stands in."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.events.labels import label
from tallymark.log.partitioners import partitioner


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name.replace("__", "."): values for name, values in columns.items()})


@given(hashes=st.lists(st.integers(1, 2**64 - 1)), partitions=st.integers(1, 1024))
def test_by_id_is_the_hash_modulo_the_partitions(hashes: list[int], partitions: int):
    events = batch(hash_high=pa.array(hashes, pa.uint64()))
    assert partitioner("id", partitions).assign(events).tolist() == [each % partitions for each in hashes]


values = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-3, 3), st.sampled_from(["", "a", "1", "true"])
)


@given(rows=st.lists(values), partitions=st.integers(1, 7), key=st.sampled_from(["user", 'naïve "key"\\', "é"]))
def test_one_label_is_always_one_partition_wherever_it_stands(rows: list[Any], partitions: int, key: str):
    """A value in a column of its kind, in `rest`, or missing: the partition depends on the label alone."""
    by_key = partitioner(f"key:{key}", partitions)
    texts = [None if value is None else json.dumps({"other": 1, key: value}, ensure_ascii=False) for value in rows]
    in_rest = by_key.assign(batch(rest=pa.array(texts, pa.string()))).tolist()
    for value, partition in zip(rows, in_rest, strict=True):
        alone = pa.RecordBatch.from_pydict({f"prop.{key}": pa.array([value]), "rest": pa.nulls(1, pa.string())})
        assert by_key.assign(alone).tolist() == [partition]
        as_text = pa.RecordBatch.from_pydict({f"prop.{key}": pa.array([label(value) or None], pa.string())})
        assert by_key.assign(as_text).tolist() == [partition]


def test_a_column_with_repeats_and_nulls():
    by_key = partitioner("key:user", 5)
    users = ["a", None, "b", "a", None, "c"]
    assigned = by_key.assign(batch(prop__user=pa.array(users)))
    single = [int(by_key.assign(batch(prop__user=pa.array([user], pa.string())))[0]) for user in users]
    assert assigned.tolist() == single
    assert len({single[0], single[1], single[2], single[5]}) > 1


def test_events_without_the_property_are_together():
    assigned = partitioner("key:user", 5).assign(batch(hash_high=pa.array([1, 2, 3], pa.uint64())))
    assert len(np.unique(assigned)) == 1


@pytest.mark.parametrize("spec", ["", "key:", "user", "ID"])
def test_an_unknown_strategy_names_the_known_ones(spec: str):
    with pytest.raises(ValueError, match=r"`id` or `key:NAME`"):
        partitioner(spec, 2)
