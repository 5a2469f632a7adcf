"""Every minute of a range is answered once, by the coarsest points that may answer for it."""

from hypothesis import given
from hypothesis import strategies as st

from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S, Piece, pieces

minutes = st.integers(-3 * 1440, 6 * 1440).map(lambda minute: minute * 60)


@given(
    start=minutes,
    length=st.integers(0, 5 * 1440),
    step_s=st.sampled_from([None, 60, 300, HOUR_S, 7 * HOUR_S, DAY_S, 7 * DAY_S]),
    days=st.integers(-3, 5),
    more_hours=st.integers(0, 23),
)
def test_a_range_is_covered_once(start: int, length: int, step_s: int | None, days: int, more_hours: int) -> None:
    end, hours_through = start + 60 * length, days * DAY_S + more_hours * HOUR_S
    found = pieces(start, end, step_s=step_s, rolled={HOUR_S: hours_through, DAY_S: days * DAY_S})
    reached = start
    for piece in found:
        assert piece.start_s == reached < piece.end_s
        assert piece.start_s % piece.grain_s == piece.end_s % piece.grain_s == 0
        assert step_s is None or piece.grain_s == MINUTE_S or step_s % piece.grain_s == 0
        assert piece.end_s <= {MINUTE_S: end, HOUR_S: hours_through, DAY_S: days * DAY_S}[piece.grain_s]
        reached = piece.end_s
    assert reached == max(start, end)


def test_days_are_used_where_days_are_rolled_then_hours_then_minutes() -> None:
    #  22:58  23:00   0:00          0:00   2:00  2:05
    #    | minutes | hour | day      | hours | minutes |
    day = 20_000 * DAY_S
    start, end = day - 62 * 60, day + DAY_S + 2 * HOUR_S + 300
    assert pieces(start, end, step_s=None, rolled={HOUR_S: day + DAY_S + 2 * HOUR_S, DAY_S: day + DAY_S}) == [
        Piece(MINUTE_S, start, day - HOUR_S),
        Piece(HOUR_S, day - HOUR_S, day),
        Piece(DAY_S, day, day + DAY_S),
        Piece(HOUR_S, day + DAY_S, day + DAY_S + 2 * HOUR_S),
        Piece(MINUTE_S, day + DAY_S + 2 * HOUR_S, end),
    ]
