"""What users ask for: every function has a value, a rank and the columns that it needs."""

from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates import columns, histogram, sketch
from tallymark.aggregates.functions import (
    FUNCTIONS,
    NAMES,
    Context,
    can_ask,
    columns_for,
    function,
    is_percentile,
    percentile_name,
)

EMPTY = pl.select(column.left_out for column in columns.COLUMNS)
# 3 events, two values: 1.50 and 2.50; as floats and, with two decimals, as 400 units. And one distinct text.
LOW, HIGH = histogram.slots_of(np.array([1.5, 2.5])).tolist()
ROW = EMPTY.with_columns(
    n=pl.lit(3),
    n_value=pl.lit(2),
    sum=4.0,
    exact_high=pl.lit(0),
    exact_low=pl.lit(400),
    min=1.5,
    max=2.5,
    sketch=pl.lit(sketch.from_map({LOW: 1, HIGH: 1, sketch.FIRST_REGISTER + 4: 2})),
)
EVERY = (*NAMES, "p50", "p99.9")


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("decimals", [None, 2])
def test_it_needs_only_columns_that_there_are_and_always_the_number_of_events(name, decimals):
    needed = columns_for([name], decimals=decimals)
    assert "n" in needed
    assert needed <= set(columns.NAMES)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("decimals", [None, 2])
def test_its_value_and_rank_need_no_column_beside_those(name, decimals):
    needed = columns_for([name], decimals=decimals)
    frame = ROW.select(needed)
    assert len(function(name).values(frame, Context(decimals, [60.0]))) == 1
    assert frame.select(*(rank.alias(str(n)) for n, rank in enumerate(function(name).ranks(decimals)))).height == 1


@pytest.mark.parametrize(
    ("name", "decimals", "value", "of_nothing"),
    [
        ("count", None, 3, 0),
        ("sum", None, 4.0, 0.0),
        ("sum", 2, Decimal("4.00"), Decimal("0.00")),
        ("min", None, 1.5, None),
        ("max", None, 2.5, None),
        ("avg", None, 2.0, None),
        ("avg", 2, 2.0, None),
        ("rate", None, 0.05, 0.0),
        ("distinct", None, 1, 0),
        ("p50", None, pytest.approx(1.5, 0.0109), None),
        ("p50.001", 2, pytest.approx(2.5, 0.0109), None),
    ],
)
def test_the_value(name, decimals, value, of_nothing):
    rows = pl.concat([ROW, EMPTY], how="vertical_relaxed")
    assert function(name).values(rows, Context(decimals, [60, 60])) == [value, of_nothing]


def test_a_rate_is_over_the_time_that_a_row_covers():
    rows = pl.concat([ROW, ROW, EMPTY], how="vertical_relaxed")
    assert function("rate").values(rows, Context(seconds=[1, 300, 0])) == [3.0, 0.01, None]
    with pytest.raises(ValueError, match="bounds"):
        function("rate").values(rows, Context())


@pytest.mark.parametrize("name", ["p50", "distinct"])
def test_a_top_is_ranked_by_what_sketches_tell(name):
    more = sketch.from_map({HIGH: 5, sketch.FIRST_REGISTER + 1: 1, sketch.FIRST_REGISTER + 2: 1})
    rows = pl.concat([ROW, EMPTY, ROW.with_columns(sketch=pl.lit(more), n=pl.lit(5))], how="vertical_relaxed")
    ranked = rows.sort(*function(name).ranks(None), descending=True, nulls_last=True)
    assert ranked["n"].to_list() == [5, 3, 0]


@pytest.mark.parametrize(
    "name", ["p", "p0", "p100", "p05", "p99.90", "p1.", "p.5", "p99.9999", "p-1", "p1e1", "P99", "p5٠"]
)
def test_what_is_no_percentile_is_no_function(name):
    assert not is_percentile(name)
    with pytest.raises(KeyError):
        function(name)


@pytest.mark.parametrize(
    ("compute", "asked", "can"),
    [
        (["count"], "rate", True),
        (["p99"], "p50", True),
        (["p99"], "count", True),
        (["avg"], "sum", True),
        (["sum"], "avg", True),
        (["count"], "sum", False),
        (["max"], "sum", False),
        (["distinct"], "p50", False),
        (["p50"], "distinct", False),
        (["p50", "distinct"], "distinct", True),
        (["p50"], "max", False),
        (["last"], "last", True),
    ],
)
@pytest.mark.parametrize("decimals", [None, 2])
def test_a_function_can_be_asked_if_all_it_needs_is_kept(compute, asked, can, decimals):
    assert can_ask(compute, decimals, asked) is can


def test_only_sketches_are_approximate_and_their_bound_is_stated():
    assert {name: function(name).relative_error for name in EVERY if function(name).approximate} == {
        "distinct": 0.0163,
        "p50": 0.0109,
        "p99.9": 0.0109,
    }
    assert histogram.RELATIVE_ERROR < 0.0109


def test_exact_sums_beyond_64_bits_rank_and_print_whole():
    large = ROW.with_columns(exact_high=pl.lit(2**40), exact_low=pl.lit(1))
    assert FUNCTIONS["sum"].values(large, Context(2)) == [(Decimal(2**72) + 1) / 100]
    frame = pl.DataFrame({"exact_high": [2**40, 2**40, 0], "exact_low": [1, 2, 2**32 - 1]})
    ranks = FUNCTIONS["sum"].ranks(2)
    assert frame.sort(*ranks, descending=True)["exact_low"].to_list() == [2, 1, 2**32 - 1]


def test_names_cost_the_collector_no_polars():
    import subprocess
    import sys

    code = "import sys, tallymark.aggregates.functions as f; assert f.NAMES; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["p1", "p5", "p10", "p50", "p99", "p99.9", "p99.999", "p0.001", "p0.5", "p10.05"])
def test_a_percentile_has_one_name(name):
    assert is_percentile(name)
    assert percentile_name(Decimal(name[1:])) == percentile_name(float(name[1:])) == name


@pytest.mark.parametrize(
    "name",
    ["p", "p0", "p0.0", "p05", "p100", "p99.90", "p99.", "p99.0", "p.5", "p99.9999", "p-1", "P99", "p99\n", "p٩٩"],
)  # fmt: skip
def test_other_spellings_are_not_names_of_percentiles(name):
    assert not is_percentile(name)


@given(st.integers(1, 99_999))
def test_every_percentile_of_three_decimals_has_a_name(thousandths):
    name = percentile_name(Decimal(thousandths) / 1000)
    assert is_percentile(name)
    assert Decimal(name[1:]) * 1000 == thousandths
    assert percentile_name(thousandths / 1000) == name


@pytest.mark.parametrize("number", [0, 100, -1, 100.5, 99.9999, 1e-9, float("nan"), float("inf"), Decimal("sNaN")])
def test_there_is_no_such_percentile(number):
    with pytest.raises(ValueError, match="over 0 and under 100"):
        percentile_name(number)
