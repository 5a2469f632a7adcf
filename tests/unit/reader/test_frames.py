"""Answers as data frames."""

import sys
from datetime import UTC, datetime
from decimal import Decimal

import polars as pl
import pytest

from tallymark.reader import answers

SERIES = {
    "meter": "views",
    "series": [
        {
            "labels": {"country": "KR"},
            "points": [
                {"time": "2026-11-15T12:00:00Z", "count": 3, "avg": None},
                {"time": "2026-11-15T12:01:00Z", "count": None, "avg": 1.5},
            ],
        }
    ],
}


def test_polars_gets_columns_of_the_right_type():
    frame = answers.series(SERIES).to_polars()
    assert frame.schema == {
        "time": pl.Datetime("ms", "UTC"), "country": pl.String, "count": pl.Int64, "avg": pl.Float64
    }  # fmt: skip
    assert frame["time"][1] == datetime(2026, 11, 15, 12, 1, tzinfo=UTC)
    assert frame["count"].to_list() == [3, None]


def test_exact_sums_stay_exact_in_polars():
    body = b'{"meter": "m", "decimals": 2, "items": [{"labels": {"a": "x"}, "value": {"sum": 12345678901234567.10}}]}'
    frame = answers.items(answers.decode(body) or {}).to_polars()
    assert frame["sum"].to_list() == [Decimal("12345678901234567.10")]


def test_a_column_of_nulls_is_of_floats():
    assert answers.total({"meter": "m", "value": {"avg": None}}).to_polars().schema == {"avg": pl.Float64}


def test_no_items_still_have_their_columns():
    found = answers.items({"meter": "m", "items": []}, ("video",))
    assert found.to_polars().schema == {"video": pl.String}
    assert list(found.to_pandas().columns) == ["video"]


def test_no_lines_still_have_a_time_and_their_labels():
    found = answers.series({"meter": "m", "series": []}, ("video", "time"))
    assert found.to_polars().schema == {
        "time": pl.Datetime("ms", "UTC"), "video": pl.String, "label.time": pl.String
    }  # fmt: skip
    assert list(found.to_pandas().columns) == ["time", "video", "label.time"]


def test_pandas_gets_times_with_their_zone():
    frame = answers.series(SERIES).to_pandas()
    assert list(frame.columns) == ["time", "country", "count", "avg"]
    assert frame["time"].dt.tz is not None
    assert frame["avg"].isna().tolist() == [True, False]


@pytest.mark.parametrize("package", ["polars", "pandas"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    total = answers.total({"meter": "m", "value": {"count": 1}})
    with pytest.raises(ModuleNotFoundError, match=rf"tallymark\[{package}\]"):
        getattr(total, f"to_{package}")()
