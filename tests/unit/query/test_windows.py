"""Windows, hopping and sliding, against a plain model."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.meters.model import Meter
from tallymark.query import totals, windows

NOON = 1_794_744_000  # 2026-11-15T12:00:00Z
DAY = "2026-11-15"
HOUR = f"from={DAY}T12:00:00Z&to={DAY}T12:30:00Z"


def moment(minute: int) -> str:
    return f"{DAY}T12:{minute:02d}:00Z"


def test_hopping_windows_begin_at_every_step_and_fit_wholly(desk):
    #  12:00 12:01 12:02 12:03 12:04 12:05
    #    1     2     0     4     0
    #  [----- 3 m -----)
    #        [-----------------)
    #              [-----------------)
    for minute, n in enumerate([1, 2, 0, 4, 0]):
        desk.store.count("views", (("A", "KR"), NOON + 60 * minute, [None] * n))
    answer = desk.ask(f"/v1/meters/views/series?step=1m&window=3m&from={moment(0)}&to={moment(5)}")
    (line,) = answer["series"]
    assert line["points"] == [
        {"time": moment(0), "count": 3},
        {"time": moment(1), "count": 6},
        {"time": moment(2), "count": 4},
    ]
    assert answer["window"] == "3m"


def test_a_window_without_events_is_zero_once_complete_and_unknown_until_then(desk):
    (line,) = desk.ask(f"/v1/meters/views/series?step=1m&window=2m&from={moment(28)}&to={moment(32)}")["series"]
    assert [point["count"] for point in line["points"]] == [0, None, None]  # it is 12:30:30


def test_days_of_a_zone_in_a_window_of_a_week(desk):
    desk.store.count("views", (("A", "KR"), NOON - 6 * 86_400, [None]), (("A", "KR"), NOON, [None] * 2))
    week = "/v1/meters/views/series?step=1d&window=7d&tz=Europe/Vienna&from=2026-11-08&to=2026-11-16"
    (line,) = desk.ask(week)["series"]
    assert [(point["time"][:10], point["count"]) for point in line["points"]] == [("2026-11-07", 1), ("2026-11-08", 3)]
    assert desk.ask(week.replace("7d", "1w"))["series"] == [line]


def test_a_card_used_more_than_five_times_within_any_ten_minutes(desk):
    desk.ask("/v1/meters/uses", "PUT", {"event": "use", "by": ["card"]})
    for minute in (0, 3, 8, 9, 12, 12, 12, 14):
        desk.store.count("uses", (("c1",), NOON + 60 * minute, [None]))
    desk.store.count("uses", *((("c2",), NOON + 60 * minute, [None]) for minute in range(0, 30, 5)))
    answer = desk.ask(f"/v1/meters/uses/total?card=c1&window=10m&{HOUR}")
    #  12:00  :03  :08  :09  :12 :12 :12  :14
    #         [-------- 6 times --------)
    assert answer["value"] == {"count": 6}
    assert answer["at"] == {"count": moment(3)}
    assert (answer["window"], answer["over"]) == ("10m", "max")
    items = desk.ask(f"/v1/meters/uses/top?window=10m&{HOUR}")["items"]
    assert [(item["labels"]["card"], item["value"]["count"]) for item in items] == [("c1", 6), ("c2", 2)]


counted = st.lists(
    st.tuples(st.sampled_from("ABC"), st.integers(0, 29), st.one_of(st.none(), st.integers(-9, 9).map(float))),
    max_size=25,
)


def plain(events, start: int, end: int) -> dict[str, float | None]:
    """What a window has, from its events alone."""
    inside = [(minute, value) for _, minute, value in events if start <= minute < end]
    numbers = [value for _, value in inside if value is not None]
    return {
        "count": len(inside),
        "sum": sum(numbers),
        "min": min(numbers, default=None),
        "max": max(numbers, default=None),
        "avg": sum(numbers) / len(numbers) if numbers else None,
    }


def count_all(desk, events) -> None:
    meter = Meter("m", ("e",), by=("key",), compute=("count", "sum", "min", "max", "avg"))
    desk.store.registry.put_meter("main", meter, now_ms=0)
    for key, minute, value in events:
        desk.store.count("m", ((key,), NOON + 60 * minute, [value]))


@given(counted, st.integers(1, 30), st.sampled_from(windows.OVER))
def test_sliding_windows_equal_the_model(new_desk, events, length, over):
    desk = new_desk()
    count_all(desk, events)
    answer = desk.ask(f"/v1/meters/m/total?by=key&window={length}m&over={over}&{HOUR}")
    assert {item["labels"]["key"] for item in answer["items"]} == {key for key, *_ in events}
    whole = desk.ask(f"/v1/meters/m/total?window={length}m&over={over}&{HOUR}")
    for item in [*answer["items"], {**whole, "labels": None}]:
        own = [event for event in events if item["labels"] is None or event[0] == item["labels"]["key"]]
        every = [plain(own, start, start + length) for start in range(31 - length)]
        for name, value in item["value"].items():
            found = [window[name] for window in every if window[name] is not None]
            if not found:
                assert value is None
            elif over == "avg":
                assert value == pytest.approx(sum(found) / len(found))
            else:
                assert value == pytest.approx(max(found) if over == "max" else min(found))
                first = next(start for start, window in enumerate(every) if window[name] == pytest.approx(value))
                assert item["at"][name] == moment(first)


@given(counted, st.integers(1, 3), st.integers(1, 5))
def test_hopping_windows_equal_the_model(new_desk, events, step, buckets):
    desk = new_desk()
    count_all(desk, events)
    answer = desk.ask(f"/v1/meters/m/series?by=key&step={step}m&window={step * buckets}m&{HOUR}")
    for line in answer["series"]:
        own = [event for event in events if event[0] == line["labels"]["key"]]
        starts = range(0, 31 - step * buckets, step)
        assert [point["time"] for point in line["points"]] == [moment(start) for start in starts]
        for start, point in zip(starts, line["points"], strict=True):
            wanted = plain(own, start, start + step * buckets)
            assert {name: point[name] for name in wanted} == pytest.approx(wanted)


def test_too_many_rows_to_slide_over_are_refused(desk, monkeypatch):
    monkeypatch.setattr(totals, "MOST_WINDOW_ROWS", 5)
    desk.store.count("views", *(((f"v{n}", "KR"), NOON, [None]) for n in range(6)))
    problem = desk.refused(f"/v1/meters/views/top?by=video&window=5m&{HOUR}")
    assert (problem.code, problem.extra["limit"]) == ("over_limit", 5)


def test_a_day_of_seconds_is_not_quadratic(desk):
    """It was 27 s for these windows one by one; merging by halves takes well under a second."""
    import numpy as np
    import polars as pl

    rows = pl.DataFrame({"bucket_s": np.arange(86_400), "n": np.ones(86_400, np.int64), "max": np.arange(86_400.0)})
    began = time.perf_counter()
    slid = windows.over_grains(rows, [], (0, 86_400), buckets=43_200, grain_s=1)
    assert time.perf_counter() - began < 10
    assert slid.height == 43_201
    assert slid["n"].unique().to_list() == [43_200]
    assert slid["max"].to_list() == [float(start + 43_199) for start in range(43_201)]


def test_the_average_of_exact_sums_is_no_longer_exact(desk):
    desk.store.count("revenue", ((), NOON, [0.3]))
    answer = desk.ask(f"/v1/meters/revenue/total?window=10m&over=avg&fn=sum&compare=previous&{HOUR}")
    assert answer["value"] == {"sum": pytest.approx(0.3 / 21)}
    assert answer["before"] == {"sum": 0.0}


def test_windows_that_still_fill_count_for_the_greatest_only(desk):
    #  12:28    12:29    12:30:00    12:30:30
    #  [-------)[-------)[-----------now -----)
    #      3        5          9
    desk.store.count(
        "views", *((("A", "KR"), NOON + 1680 + 60 * n, [None] * count) for n, count in enumerate((3, 5, 9)))
    )
    question = "/v1/meters/views/total?window=1m&from=2026-11-15T12:28:00Z"
    found = {over: desk.ask(f"{question}&over={over}")["value"]["count"] for over in ("max", "min", "avg")}
    assert found == {"max": 9, "min": 3, "avg": 4.0}
    ahead = desk.ask(f"{question}&over=min&to=2026-11-15T13:00:00Z&by=video")
    assert [(item["value"], item["at"]) for item in ahead["items"]] == [
        ({"count": 3}, {"count": "2026-11-15T12:28:00Z"})
    ]
    # Without one that is over, what there is counts.
    assert desk.ask("/v1/meters/views/total?window=1m&over=min&from=2026-11-15T12:30:00Z")["value"] == {"count": 9}


def test_exact_sums_stay_exact_where_every_window_with_events_still_fills(desk):
    desk.ask("/v1/meters/sales", "PUT", {"event": "sale", "by": ["shop"], "decimals": 2, "compute": ["sum"]})
    desk.store.count("sales", (("s1",), NOON + 1800, [0.3]))
    answer = desk.ask(f"/v1/meters/sales/top?window=1m&over=min&compare=1h&from={moment(28)}&to={moment(31)}")
    (item,) = answer["items"]
    assert repr(item["value"]["sum"]) == repr(item["before"]["sum"])
    assert item["change"]["sum"]["difference"] == 0
