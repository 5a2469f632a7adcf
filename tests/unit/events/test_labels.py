"""Labels are text, and equal numbers are one label."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.events.labels import label


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (200, "200"),
        (200.0, "200"),
        ("200", "200"),
        (True, "true"),
        (False, "false"),
        (None, ""),
        ("", ""),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (2.0**53, "9007199254740992.0"),
        (2.0**53 - 1, "9007199254740991"),
        (2**63, "9223372036854775808"),
    ],
)
def test_label_text(value: object, text: str) -> None:
    assert label(value) == text


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_whole_number_is_one_label_however_it_is_written(number: int) -> None:
    assert label(number) == label(float(number)) == label(str(number))


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_different_floats_are_different_labels(one: float, other: float) -> None:
    assert (label(one) == label(other)) == (one == other)
