"""Every bucket of a range is answered once, by the coarsest points that may answer for it."""

from hypothesis import given
from hypothesis import strategies as st

from tallymark.store.grains import BASES, DAY_S, HOUR_S, MINUTE_S, Piece, pieces


@given(
    base_s=st.sampled_from(BASES),
    start=st.integers(-3 * DAY_S // 10, 6 * DAY_S // 10),
    length=st.integers(0, 5 * DAY_S // 10),
    step_s=st.sampled_from([None, 10, 60, 90, 300, HOUR_S, 7 * HOUR_S, DAY_S, 7 * DAY_S]),
    days=st.integers(-3, 5),
    more_hours=st.integers(0, 23),
    more_minutes=st.integers(0, 59),
)
def test_a_range_is_covered_once(
    base_s: int, start: int, length: int, step_s: int | None, days: int, more_hours: int, more_minutes: int
) -> None:
    start, end = start * 10 // base_s * base_s, (start + length) * 10 // base_s * base_s
    hours = days * DAY_S + more_hours * HOUR_S
    rolled = {MINUTE_S: hours + more_minutes * MINUTE_S, HOUR_S: hours, DAY_S: days * DAY_S}
    found = pieces(start, end, step_s=step_s, rolled=rolled, base_s=base_s)
    reached = start
    for piece in found:
        assert piece.start_s == reached < piece.end_s
        assert piece.grain_s == base_s or base_s < piece.grain_s in rolled
        assert piece.start_s % piece.grain_s == piece.end_s % piece.grain_s == 0
        if piece.grain_s != base_s:
            assert step_s is None or step_s % piece.grain_s == 0
            assert piece.end_s <= rolled[piece.grain_s]
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
