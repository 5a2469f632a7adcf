"""Merging in NumPy gives what the table of columns says, null for null."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates import columns, exact
from tallymark.store import numeric

NAMES = [name for name in columns.NAMES if numeric.can_merge([name, "n_value"])]
SCHEMA = {"key": pl.Int64(), **{name: columns.TYPES[name] for name in NAMES}}
quarters = st.integers(-400, 400).map(lambda quarter: quarter / 4)


@st.composite
def rows(draw: st.DrawFn) -> tuple[int | float | None, ...]:
    """A key and what some events add: with values or without."""
    key, n = draw(st.integers(0, 4)), draw(st.integers(1, 5))
    if draw(st.booleans()):
        return (key, n, 0, *[None] * (len(NAMES) - 2))
    number, moment = draw(quarters), draw(st.integers(0, 3))
    high, low = exact.split(draw(st.integers(-(2**60), 2**60)))
    return (key, n, draw(st.integers(1, n)), number, high, low, number, number, moment, draw(quarters))


def split(found: pl.DataFrame) -> list[tuple[object, ...]]:
    """Two frames with the same exact sums may have other parts of them."""
    whole = [exact.whole(*pair) for pair in found.select(exact.PARTS).iter_rows()]
    return list(zip(whole, *found.drop(exact.PARTS).select(NAMES[:3] + NAMES[5:]), strict=True))


@given(st.lists(rows(), max_size=20), st.booleans())
def test_merging_is_that_of_the_table(found, from_rows):
    frame = pl.DataFrame(
        found, schema={"key": pl.Int64(), **{name: columns.TYPES[name] for name in NAMES}}, orient="row"
    )
    merged = numeric.Merged(NAMES, 5)
    if from_rows and found:
        arrays = numeric.from_rows(found, ["key", *NAMES])
    else:
        arrays = numeric.from_frame(frame, ["key", *NAMES])
    merged.add(arrays.pop("key"), arrays, unique=False)
    present = merged.present()
    expected = columns.merge(frame, ["key"]).sort("key")
    assert present.tolist() == expected["key"].to_list()
    assert split(pl.DataFrame(merged.series(present))) == split(expected.drop("key"))


@given(st.lists(rows(), max_size=20, unique_by=lambda row: row[0]))
def test_places_that_come_once_merge_as_those_that_come_again(found):
    arrays = numeric.from_frame(pl.DataFrame(found, schema=SCHEMA, orient="row"), ["key", *NAMES])
    keys = arrays.pop("key")
    once, again = numeric.Merged(NAMES, 5), numeric.Merged(NAMES, 5)
    for _ in range(2):
        once.add(keys, arrays, unique=True)
        again.add(keys, arrays, unique=False)
    assert pl.DataFrame(once.series()).equals(pl.DataFrame(again.series()))


def test_columns_that_were_not_asked_for_hold_nothing():
    found = pl.DataFrame(numeric.Merged(["n"], 2).series())
    assert found.columns == list(columns.NAMES)
    assert found.schema == pl.Schema(columns.TYPES)
    assert found.row(0, named=True) == columns.NOTHING


def test_a_sketch_or_a_version_is_no_plain_number():
    assert numeric.can_merge(["n"])
    assert numeric.can_merge(["n", "n_value", "sum"])
    assert not numeric.can_merge(["n", "sum"])
    assert not numeric.can_merge(["n", "n_value", columns.SKETCH])
    assert not numeric.can_merge(["n", "version"])
