"""What users ask for: every function has a value, a rank and the columns that it needs."""

from decimal import Decimal
from types import SimpleNamespace

import polars as pl
import pytest

from tallymark.aggregates import columns
from tallymark.aggregates.functions import FUNCTIONS, columns_for

EMPTY = SimpleNamespace(**columns.NOTHING)
# 3 events, two values: 1.50 and 2.50; as floats and, with two decimals, as 400 units.
ROW = SimpleNamespace(
    **{**columns.NOTHING, "n": 3, "n_value": 2, "sum": 4.0, "exact_high": 0, "exact_low": 400, "min": 1.5, "max": 2.5}
)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("decimals", [None, 2])
def test_it_needs_only_columns_that_there_are_and_always_the_number_of_events(name, decimals):
    needed = columns_for([name], decimals=decimals)
    assert "n" in needed
    assert needed <= set(columns.NAMES)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("decimals", [None, 2])
def test_its_value_and_rank_need_no_column_beside_those(name, decimals):
    needed = columns_for([name], decimals=decimals)
    row = SimpleNamespace(**{column: getattr(ROW, column) for column in needed})
    FUNCTIONS[name].value(row, decimals)
    frame = pl.DataFrame([{column: getattr(ROW, column) for column in needed}])
    assert frame.select(*(rank.alias(str(n)) for n, rank in enumerate(FUNCTIONS[name].ranks(decimals)))).height == 1


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
    ],
)
def test_the_value(name, decimals, value, of_nothing):
    assert FUNCTIONS[name].value(ROW, decimals) == value
    assert FUNCTIONS[name].value(EMPTY, decimals) == of_nothing


def test_exact_sums_beyond_64_bits_rank_and_print_whole():
    large = SimpleNamespace(**{**vars(ROW), "exact_high": 2**40, "exact_low": 1})
    assert FUNCTIONS["sum"].value(large, 2) == (Decimal(2**72) + 1) / 100
    frame = pl.DataFrame({"exact_high": [2**40, 2**40, 0], "exact_low": [1, 2, 2**32 - 1]})
    ranks = FUNCTIONS["sum"].ranks(2)
    assert frame.sort(*ranks, descending=True)["exact_low"].to_list() == [2, 1, 2**32 - 1]


def test_names_cost_the_collector_no_polars():
    import subprocess
    import sys

    code = "import sys, tallymark.aggregates.functions as f; assert f.NAMES; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
