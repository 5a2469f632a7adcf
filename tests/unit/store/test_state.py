"""The packed cell of a point: two versions, and which of them a reader gets."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.aggregates.columns import NAMES as AGGREGATES
from tallymark.store.cassandra import state
from tallymark.store.deltas import SCHEMA
from tallymark.store.protocol import SnapshotOutdated

TYPES = {name: SCHEMA[name] for name in AGGREGATES}
wholes = st.integers(-(2**63), 2**63 - 1)
floats = st.none() | st.floats(allow_nan=False)
exact = st.none() | st.tuples(wholes, st.integers(0, 2**32 - 1))
versions = st.tuples(wholes, wholes, floats, exact, floats, floats).map(
    lambda each: (*each[:3], *(each[3] or (None, None)), *each[4:])
)


def frame(*rows, change=None):
    found = pl.DataFrame(list(rows), schema=TYPES, orient="row")
    return found if change is None else found.with_columns(pl.lit(change, dtype=pl.Int64).alias("change"))


@settings(deadline=None)
@given(st.lists(st.tuples(versions, versions), min_size=1, max_size=5))
def test_what_was_packed_comes_back_as_of_each_mark(rows):
    now, before = frame(*(each for each, _ in rows)), frame(*(each for _, each in rows), change=7)
    packed = state.encode(12, now, before)
    assert len({len(each) for each in packed}) == 1
    for mark, expected in ((12, now), (99, now), (11, before), (7, before)):
        assert state.decode(packed, mark=mark).select(AGGREGATES).equals(expected.select(AGGREGATES))
    with pytest.raises(SnapshotOutdated, match="changed twice since change 6"):
        state.decode(packed, mark=6)


def test_before_a_row_was_there_it_is_nothing_at_every_mark():
    one = frame((3, 0, None, None, None, None, None))
    nothing = one.clear().with_columns(pl.lit(None, dtype=pl.Int64).alias("change"))
    packed = state.encode(
        5, one, pl.concat([nothing, pl.DataFrame({"change": [None]}, schema={"change": pl.Int64})], how="diagonal")
    )
    assert state.decode(packed, mark=5)["change"].to_list() == [5]
    assert state.decode(packed, mark=4)["change"].to_list() == [0]
    assert state.decode(packed, mark=0)["change"].to_list() == [0]
