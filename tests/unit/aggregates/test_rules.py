"""Rules that no column of the table uses yet, or that need a closer look."""

import sqlite3
from contextlib import closing
from functools import reduce

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates.rules import Greatest, Latest

moments = st.none() | st.integers(0, 3)
rows = st.lists(
    st.one_of(st.just((None, None)), st.tuples(st.integers(0, 3), st.floats(-9, 9))), min_size=1, max_size=6
).map(lambda found: [{"at": at, "value": value} for at, value in found])


@given(rows)
def test_the_latest_value_is_the_same_in_all_three_languages_and_in_any_order(rows):
    known = sorted((row["at"], row["value"]) for row in rows if row["at"] is not None)
    expected = known[-1] if known else (None, None)
    at, value = Greatest(), Latest("at")

    def of_two(left, right):
        return {"at": at.of_two("at", left, right), "value": value.of_two("value", left, right)}

    assert tuple(reduce(of_two, rows).values()) == expected
    frame = pl.DataFrame(rows, schema={"at": pl.Int64, "value": pl.Float64})
    assert frame.select(at.merged("at"), value.merged("value")).row(0) == expected
    with closing(sqlite3.connect(":memory:")) as file:
        file.execute("CREATE TABLE points (key PRIMARY KEY, at INTEGER, value REAL)")
        added = f"at = {at.added_sql('at')}, value = {value.added_sql('value')}"
        for row in rows:
            file.execute(f"INSERT INTO points VALUES (1, :at, :value) ON CONFLICT DO UPDATE SET {added}", row)
        assert file.execute("SELECT at, value FROM points").fetchone() == expected
