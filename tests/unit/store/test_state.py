"""The packed cell of a point: two versions, and which of them a reader gets."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.aggregates.columns import NAMES, TYPES
from tallymark.store.cassandra import state
from tallymark.store.protocol import SnapshotOutdated, StoreError

wholes = st.integers(-(2**63), 2**63 - 1)
floats = st.none() | st.floats(allow_nan=False)
exact = st.none() | st.tuples(wholes, st.integers(0, 2**32 - 1))
sketches = st.none() | st.binary(min_size=1, max_size=20)
versions = st.tuples(wholes, wholes, floats, exact, floats, floats, sketches).map(
    lambda each: (*each[:3], *(each[3] or (None, None)), *each[4:])
)


def frame(*rows, change=None):
    """Rows may leave out the last columns."""
    padded = [(*row, *[None] * (len(TYPES) - len(row))) for row in rows]
    found = pl.DataFrame(padded, schema=TYPES, orient="row")
    return found if change is None else found.with_columns(pl.lit(change, dtype=pl.Int64).alias("change"))


@settings(deadline=None)
@given(st.lists(st.tuples(versions, versions), min_size=1, max_size=5))
def test_what_was_packed_comes_back_as_of_each_mark(rows):
    now, before = frame(*(each for each, _ in rows)), frame(*(each for _, each in rows), change=7)
    packed = state.encode(12, now, before)
    for mark, expected in ((12, now), (99, now), (11, before), (7, before)):
        assert state.decode(packed, mark=mark).select(NAMES).equals(expected.select(NAMES))
    with pytest.raises(SnapshotOutdated, match="changed twice since change 6"):
        state.decode(packed, mark=6)


def test_before_a_row_was_there_it_is_nothing_at_every_mark():
    one = frame((3, 0, *[None] * 6))
    nothing = one.clear().with_columns(pl.lit(None, dtype=pl.Int64).alias("change"))
    packed = state.encode(
        5, one, pl.concat([nothing, pl.DataFrame({"change": [None]}, schema={"change": pl.Int64})], how="diagonal")
    )
    assert state.decode(packed, mark=5)["change"].to_list() == [5]
    assert state.decode(packed, mark=4)["change"].to_list() == [0]
    assert state.decode(packed, mark=0)["change"].to_list() == [0]


# Written by format 2: now (3, 2, null, 1, 7, -1.5, 2.5) since change 12, before it (2, 1, 0.5, null, null, -1.5, null)
# since change 7; and a row that change 12 made.
FORMAT_2 = [
    bytes.fromhex(cell)
    for cell in (
        "0c000000000000000300000000000000020000000000000000000000000000000"
        "1000000000000000700000000000000000000000000f8bf00000000000004400e"
        "070000000000000002000000000000000100000000000000000000000000e03f0"
        "0000000000000000000000000000000000000000000f8bf000000000000000005",
        "0c000000000000000100000000000000" + "00" * 114,
    )
]


def test_cells_of_an_older_format_are_read_also_beside_new_ones():
    def rows(mark):
        return [row[:9] for row in state.decode(cells, mark=mark).rows()]

    one = frame((5, 0, None, None, None, None, None, b"\x01"))
    nothing = frame((0, 0, *[None] * 6)).with_columns(pl.lit(None, pl.Int64).alias("change"))
    cells = [FORMAT_2[0], *state.encode(12, one, nothing), FORMAT_2[1]]
    assert rows(mark=12) == [
        (12, 3, 2, None, 1, 7, -1.5, 2.5, None),
        (12, 5, 0, None, None, None, None, None, b"\x01"),
        (12, 1, 0, *[None] * 6),
    ]
    assert [row[:4] for row in rows(mark=11)] == [(7, 2, 1, 0.5), (0, 0, 0, None), (0, 0, 0, None)]


@pytest.mark.parametrize("cell", [b"", bytes([99, 0, 0, 0])])
def test_a_cell_of_a_newer_format_is_refused(cell):
    with pytest.raises(StoreError, match="a row of points has format"):
        state.decode([cell], mark=1)
