"""Charts: what is drawn where."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.commands.chart import COLOURS, Line, bar_chart, line_chart

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def minutes(count: int) -> list[datetime]:
    return [NOON + timedelta(minutes=place) for place in range(count)]


def drawn(*lines: Line, width: int = 30, height: int = 4, colour: bool = False) -> list[str]:
    return line_chart(lines, minutes(len(lines[0].values)), width=width, height=height, colour=colour)


def test_a_rising_line_goes_from_the_bottom_left_to_the_top_right():
    assert drawn(Line("", [0, 1, 2, 3, 4])) == [
        "4 ┤                     ⣀⡠⠤⠔⠒⠉",
        "3 ┤              ⣀⣀⠤⠔⠒⠊⠉",
        "2 ┤      ⣀⣀⠤⠤⠒⠒⠉⠉",
        "0 ┤⣀⠤⠔⠒⠊⠉",
        "  └───────────────────────────",
        "   12:00      12:02      12:04",
    ]


@pytest.mark.parametrize(
    "values", [[0.1, 0.1 + 2e-17], [3.3, 3.3000000000000003], [1e15, 1e15 + 0.125], [-0.1, -0.1 - 2e-17]]
)
def test_numbers_that_differ_in_their_last_digit_only_are_a_level_line(values):
    assert values[0] != values[1]
    assert len([row for row in drawn(Line("", values), height=6)[:6] if set(row) & set("⠉⠒⠤⣀")]) == 1


def test_numbers_that_are_nearly_no_numbers_are_drawn_as_zero():
    assert drawn(Line("", [5e-324, 0.0]))[:4] == drawn(Line("", [0.0, 0.0]))[:4]


def test_a_gap_is_left_open():
    rows = drawn(Line("", [5, 5, 5, None, None, None, 5, 5, 5]), width=40)
    (line,) = [row[3:] for row in rows[:4] if row[3:].strip()]
    left, right = line.split(maxsplit=1)
    assert abs(len(left) - len(right)) <= 1
    assert line.count(" ") >= 10


def test_a_value_between_gaps_is_a_dot():
    rows = drawn(Line("", [None, 5, None, None]))
    assert sum(0x2800 < ord(letter) < 0x2900 for row in rows for letter in row) == 1


def test_colours_put_lines_into_one_picture_and_without_them_each_has_its_own():
    lines = Line("a", [1, 2]), Line("b", [20, 10])
    coloured = drawn(*lines, colour=True)
    assert len(coloured) == 1 + 4 + 2
    assert all(f"\x1b[{COLOURS[place]}m■ {name}" in coloured[0] for place, name in enumerate("ab"))
    plain = drawn(*lines)
    assert len(plain) == 2 * len(coloured)
    assert "\x1b" not in "".join(plain)
    # On one scale, so that they can be compared.
    assert [row.split("┤")[0] for row in plain[1:5]] == [row.split("┤")[0] for row in plain[8:12]]


@pytest.mark.parametrize(
    ("numbers", "labels"),
    [
        ([0, 100], {"0", "25", "50", "75", "100"}),
        ([1_000_000, 1_200_000], {"1,000,000", "1,050,000", "1,100,000", "1,150,000", "1,200,000"}),
        ([7, 7], {"0", "2", "4", "6", "8"}),
        ([0, 0], {"0.00", "0.25", "0.50", "0.75", "1.00"}),
        ([-4, 4], {"-4", "-2", "0", "2", "4"}),
        ([0.001, 0.004], {"0.000", "0.001", "0.002", "0.003", "0.004"}),
    ],
)
def test_the_axis_has_round_numbers(numbers, labels):
    rows = drawn(Line("", numbers), height=16)
    assert {row.split("┤")[0].strip() for row in rows if "┤" in row} == labels


@pytest.mark.parametrize(
    ("step", "first", "last"),
    [
        (timedelta(minutes=1), "12:00", "12:09"),
        (timedelta(seconds=10), "12:00:00", "12:01:30"),
        (timedelta(hours=6), "11-15 12:00", "11-17 18:00"),
        (timedelta(days=30), "2026-11-15", "2027-08-12"),
    ],
)
def test_the_moments_stand_under_the_picture(step, first, last):
    moments = [NOON + step * place for place in range(10)]
    rows = line_chart([Line("", [1.0] * 10)], moments, width=70, height=4, colour=False)
    assert rows[-1].split("  ", 1)[1].strip().startswith(first)
    assert rows[-1].endswith(last)
    assert len(rows[-1]) <= 70


def test_nothing_is_said_in_words():
    assert drawn(Line("", [None, None])) == ["nothing to draw: there are no numbers in this range"]


@given(
    st.lists(
        st.none() | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300),
        min_size=1,
        max_size=300,
    ),
    st.integers(10, 200),
    st.integers(2, 40),
)
def test_whatever_is_drawn_fits(values, width, height):
    rows = line_chart([Line("", values)], minutes(len(values)), width=width, height=height, colour=False)
    assert len(rows) in (1, height + 2)
    assert all(len(row) <= max(width, 40) for row in rows[1:])


def test_bars_are_as_long_as_their_numbers():
    bars = bar_chart([("video=A", 100), ("video=B", 50), ("video=C", 0), ("video=D", None), ("video=E", -50)],
                     ["100", "50", "0", "-", "-50"], width=40)  # fmt: skip
    full, half, none, unknown, below = (row[len("video=A  100  ") :] for row in bars)
    assert set(full) == {"█"}
    assert len(full) == 2 * len(half) == 2 * len(below)
    assert (none, unknown) == ("", "")
    assert set(below) == {"▒"}
    assert max(map(len, bars)) <= 40


def test_long_names_leave_room_for_the_bars():
    (bar,) = bar_chart([("x" * 200, 1.0)], ["1"], width=60)
    assert len(bar) <= 60
    assert "…" in bar
    assert bar.endswith("███")
