"""The laws of merging, over the whole table: a new column is covered by adding its row."""

import sqlite3
from collections.abc import Sequence
from functools import reduce

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates import columns, exact
from tallymark.aggregates.rules import Row
from tallymark.store.grains import HOUR_S, MINUTE_S
from tallymark.store.sqlite import points

# Whole numbers, so that even float sums are the same in any order; None is an event without a value.
numbers = st.none() | st.integers(-(2**40), 2**40)
events = st.lists(st.tuples(numbers, st.integers(0, 5), st.none() | st.integers(2, 4)), max_size=8)
"""(value, time, version of the meter that counted it; None is the first)"""
batches = st.lists(events, min_size=1, max_size=6)


def counted(batch: Sequence[tuple[int | None, int, int | None]]) -> Row:
    """One row of deltas; that of no events is one in which all columns are left out."""
    if not batch:
        return columns.NOTHING
    values, times, versions = zip(*batch, strict=True)
    frame = pl.DataFrame(
        {"number": values, "units": values, "time": times},
        schema={"number": pl.Float64, "units": pl.Int64, "time": pl.Int64},
    )
    row = frame.select(columns.of_events(columns.NAMES)).row(0, named=True)
    return normal({**row, "version": None if None in versions else min(versions)})


def normal(row: Row) -> Row:
    """The carry of an exact sum is moved by the first merge: without it two equal sums may look different."""
    units = exact.whole(row[exact.HIGH], row[exact.LOW])
    return {**row, **dict(zip(exact.PARTS, exact.split(units), strict=True))} if units is not None else row


def in_polars(rows: Sequence[Row]) -> Row:
    return columns.merge(pl.DataFrame(rows, schema=columns.TYPES, orient="row"), []).row(0, named=True)


def in_python(rows: Sequence[Row]) -> Row:
    return reduce(columns.of_two, rows)


def by_upserts(rows: Sequence[Row]) -> Row:
    connection = points_of([[row] for row in rows])
    return read(connection, ", ".join(columns.NAMES))


def by_rolling(rows: Sequence[Row]) -> Row:
    """As the store sums the buckets of an hour: in SQL, and in Polars what SQL cannot merge."""
    connection = points_of([rows])
    connection.execute("CREATE TABLE series (series_id INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO series VALUES (1)")
    points.sum_up(connection, MINUTE_S, HOUR_S, points.Slice(0, range(1, 2), None), columns.NAMES)
    return read(connection, ", ".join(columns.NAMES), HOUR_S)


def points_of(writes: Sequence[Sequence[Row]]) -> sqlite3.Connection:
    """A write after the other; the rows of one are different buckets."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE meters (meter_id INTEGER, set_id INTEGER)")
    connection.execute("INSERT INTO meters VALUES (1, 1), (2, 1)")
    kinds = ", ".join(f"{column.name} {column.sql_type}" for column in columns.COLUMNS)
    key = "series_id, bucket_s"
    for grain_s in (MINUTE_S, HOUR_S):
        connection.execute(f"CREATE TABLE points_{grain_s} ({key}, {kinds}, PRIMARY KEY ({key}))")
    for rows in writes:
        frame = pl.DataFrame(rows, schema=columns.TYPES, orient="row").with_columns(
            series_id=pl.lit(1, pl.Int64), bucket_s=pl.int_range(pl.len(), dtype=pl.Int64)
        )
        points.add_points(connection, MINUTE_S, frame)
    return connection


def read(connection: sqlite3.Connection, selected: str, grain_s: int = MINUTE_S) -> Row:
    found = connection.execute(f"SELECT {selected} FROM points_{grain_s}").fetchall()
    return dict(zip(columns.NAMES, found[0], strict=True))


@pytest.mark.parametrize("merge", [in_polars, in_python, by_upserts, by_rolling])
@given(batches=batches, seed=st.randoms(use_true_random=False))
def test_however_events_are_cut_and_ordered_the_row_is_the_same(merge, batches, seed):
    whole = counted([event for batch in batches for event in batch])
    rows = [counted(batch) for batch in batches]
    seed.shuffle(rows)
    assert normal(merge(rows)) == whole


@pytest.mark.parametrize("merge", [in_polars, in_python, by_upserts, by_rolling])
@given(batch=events)
def test_nothing_changes_nothing(merge, batch):
    row = counted(batch)
    assert normal(merge([row, columns.NOTHING])) == normal(merge([columns.NOTHING, row])) == row


@given(batches=st.lists(events, min_size=3, max_size=3))
def test_merging_is_associative(batches):
    a, b, c = map(counted, batches)
    assert in_polars([in_polars([a, b]), c]) == in_polars([a, in_polars([b, c])])


def test_a_column_that_is_not_needed_is_left_out():
    frame = pl.DataFrame({"number": [1.0, 2.0]})
    row = frame.select(columns.of_events({"n", "max"})).row(0, named=True)
    assert row == {**columns.NOTHING, "n": 2, "max": 2.0}


def test_an_event_without_a_value_is_counted_and_poisons_nothing():
    row = counted([(None, 0, None), (7, 1, None)])
    assert (row["n"], row["n_value"], row["sum"], row["min"], row["max"]) == (2, 1, 7.0, 7.0, 7.0)


def test_the_sum_of_no_values_is_null_not_zero():
    assert in_polars([counted([(None, 0, None)]), counted([(None, 1, None)])]) == {**columns.NOTHING, "n": 2}


@pytest.mark.parametrize("keys", [[], ["series"]])
def test_what_was_merged_has_the_columns_in_the_order_of_the_table(keys):
    """So that it can be put together with rows that were not merged yet."""
    rows = pl.DataFrame([counted([(3, 1, None)]), counted([(None, 2, None)])], schema=columns.TYPES, orient="row")
    rows = rows.with_columns(series=pl.lit("a"))
    merged = columns.merge(rows, keys)
    assert merged.columns == [*keys, *columns.NAMES]
    again = columns.merge(pl.concat([merged, rows.select(merged.columns)]), keys)
    assert again["n"].to_list() == [4]
