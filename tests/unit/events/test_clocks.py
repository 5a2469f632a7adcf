"""Times as sent -> epoch milliseconds, the same alone and in a column of many."""

import pytest

from tallymark.events.clocks import WORTH_A_COLUMN, RawTime, column, milliseconds


@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        (1.9, 1),
        (-0.5, -1),
        ("1970-01-01T00:00:00.123Z", 123),
        ("1970-01-01T01:00:00.9999+01:00", 999),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("1970-01-01T00:00:00.1234567891z", 123),
    ],
)
def test_a_time_is_cut_to_the_millisecond_before_it(time: RawTime, wanted: int) -> None:
    assert milliseconds(time) == wanted
    assert column([time] * WORTH_A_COLUMN, missing=7) == [wanted] * WORTH_A_COLUMN
    assert column([None, time], missing=7) == [7, wanted]
