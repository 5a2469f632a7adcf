"""Every question, over a store that is easy to get right."""

from collections import Counter
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.meters.model import Meter
from tallymark.query import reading

DAY = "2026-11-15"
NOON = 1_794_744_000  # 2026-11-15T12:00:00Z


@pytest.fixture
def views(desk):
    desk.store.count(
        "views", (("A", "KR"), NOON, [None] * 3), (("A", "DE"), NOON, [None]), (("B", "KR"), NOON + 60, [None] * 4)
    )
    desk.store.count("views", (("A", "KR"), NOON + 120, [None] * 6))
    return desk


def test_total_of_all_time(views):
    answer = views.ask("/v1/meters/views/total")
    assert answer["value"] == {"count": 14}
    assert answer["meter"] == "views"
    assert answer["where"] == {}
    assert answer["range"] == {"from": None, "to": None, "widened": False}


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ("video=A", 10),
        ("video=A&country=KR", 9),
        ("video=A&video=B&country=KR", 13),
        ("label.video=A", 10),
        ("video=C", 0),
        ("country=", 0),
    ],
)
def test_filters_narrow_and_repeats_widen(views, filters, count):
    assert views.ask(f"/v1/meters/views/total?{filters}")["value"] == {"count": count}


def test_where_is_said_back(views):
    assert views.ask("/v1/meters/views/total?video=A&video=B")["where"] == {"video": ["A", "B"]}


def test_a_range_is_widened_to_whole_minutes_and_said(views):
    answer = views.ask(f"/v1/meters/views/total?from={DAY}T12:00:30Z&to={DAY}T12:01:00Z")
    assert answer["value"] == {"count": 4}
    assert answer["range"] == {"from": f"{DAY}T12:00:00Z", "to": f"{DAY}T12:01:00Z", "widened": True}


@pytest.mark.parametrize(
    ("text", "widened"),
    [
        (f"{DAY}T12:01:00Z", False),
        (f"{DAY}T13:01:00%2B01:00", False),
        (f"{DAY}T13:01:00+01:00", False),  # a plus nobody encoded
        (f"{(NOON + 60) * 1000}", False),
        ("-29m", True),  # 12:01:30
        ("now-29m", True),
    ],
)
def test_ways_to_write_a_time(views, text, widened):
    answer = views.ask(f"/v1/meters/views/total?from={text}&to=now")
    assert answer["range"]["from"] == f"{DAY}T12:01:00Z"
    assert answer["value"] == {"count": 10}
    assert answer["range"]["to"] == f"{DAY}T12:31:00Z"
    assert answer["range"]["widened"] is True  # `now` is 12:30:30
    assert views.ask(f"/v1/meters/views/total?from={text}")["range"]["widened"] is widened


def test_a_date_is_midnight_in_the_zone(views):
    answer = views.ask(f"/v1/meters/views/total?from={DAY}&tz=Asia/Kolkata")
    assert answer["range"]["from"] == "2026-11-14T18:30:00Z"


def test_series_of_the_last_hour_by_minute(views):
    answer = views.ask("/v1/meters/views/series?video=A")
    (line,) = answer["series"]
    assert line["labels"] == {}
    points = {point["time"]: point["count"] for point in line["points"]}
    assert len(points) == 61
    assert (min(points), max(points)) == (f"{DAY}T11:30:00Z", f"{DAY}T12:30:00Z")
    assert [points[f"{DAY}T12:0{minute}:00Z"] for minute in range(4)] == [4, 0, 6, 0]


def test_an_empty_bucket_is_zero_once_complete_and_unknown_until_then(views):
    answer = views.ask(f"/v1/meters/latency/series?from={DAY}T12:29:00Z&to={DAY}T12:32:00Z")
    (line,) = answer["series"]
    #  12:29      12:30      12:31      12:32
    #  [----------)[----------)[----------)
    #              now: 12:30:30, everything in the log is counted
    assert line["points"] == [
        {"time": f"{DAY}T12:29:00Z", "count": 0, "sum": 0, "min": None, "max": None, "avg": None},
        {"time": f"{DAY}T12:30:00Z", "count": None, "sum": None, "min": None, "max": None, "avg": None},
        {"time": f"{DAY}T12:31:00Z", "count": None, "sum": None, "min": None, "max": None, "avg": None},
    ]


def test_an_incomplete_bucket_shows_what_is_counted_so_far(desk):
    desk.store.count("views", (("A", "KR"), NOON + 30 * 60, [None]))
    (line,) = desk.ask("/v1/meters/views/series?from=-1m")["series"]
    assert line["points"][-1] == {"time": f"{DAY}T12:30:00Z", "count": 1}


def test_series_by_a_key_is_sorted_by_label(views):
    answer = views.ask(f"/v1/meters/views/series?by=country&from={DAY}T12:00:00Z&to={DAY}T12:03:00Z")
    lines = [(line["labels"], [point["count"] for point in line["points"]]) for line in answer["series"]]
    assert lines == [({"country": "DE"}, [1, 0, 0]), ({"country": "KR"}, [3, 4, 6])]
    assert answer["range"]["widened"] is False


def test_series_by_two_keys(views):
    for by in ("by=country,video", "by=country&by=video"):
        answer = views.ask(f"/v1/meters/views/series?{by}&from={DAY}T12:00:00Z&to={DAY}T12:03:00Z")
        assert [line["labels"] for line in answer["series"]] == [
            {"country": "DE", "video": "A"},
            {"country": "KR", "video": "A"},
            {"country": "KR", "video": "B"},
        ]


def test_limit_keeps_the_largest_series_and_says_how_many_are_left_out(views):
    answer = views.ask("/v1/meters/views/series?by=country&limit=1")
    assert [line["labels"]["country"] for line in answer["series"]] == ["KR"]
    assert answer["left_out"] == 1


def test_without_by_there_is_one_series_also_of_nothing(desk):
    assert len(desk.ask("/v1/meters/views/series")["series"]) == 1
    assert desk.ask("/v1/meters/views/series?by=video")["series"] == []


def test_top_ranks_and_breaks_ties_by_label(desk):
    desk.store.count(
        "views", *(((video, "KR"), NOON, [None] * n) for video, n in [("D", 2), ("B", 5), ("C", 2), ("A", 2)])
    )
    answer = desk.ask("/v1/meters/views/top?by=video&k=3")
    assert answer["items"] == [
        {"labels": {"video": "B"}, "value": {"count": 5}},
        {"labels": {"video": "A"}, "value": {"count": 2}},
        {"labels": {"video": "C"}, "value": {"count": 2}},
    ]


def test_top_is_of_the_last_hour_unless_told(desk):
    desk.store.count("views", (("A", "KR"), NOON - 3600, [None] * 9), (("B", "KR"), NOON, [None]))
    assert [item["labels"]["video"] for item in desk.ask("/v1/meters/views/top?by=video")["items"]] == ["B"]
    assert [item["labels"]["video"] for item in desk.ask("/v1/meters/views/top?by=video&from=-1d")["items"]] == [
        "A",
        "B",
    ]


def test_top_by_another_aggregate(desk):
    desk.store.count("latency", (("s1",), NOON, [1.0, 2.0]), (("s2",), NOON, [9.0]), (("s3",), NOON, [None]))
    items = desk.ask("/v1/meters/latency/top?fn=avg")["items"]  # its only key needs no by
    assert [(item["labels"]["server"], item["value"]["avg"]) for item in items] == [
        ("s2", 9.0),
        ("s1", 1.5),
        ("s3", None),
    ]


def test_an_event_without_a_value_counts_in_count_only(desk):
    desk.store.count("latency", (("s1",), NOON, [2.0, None, 4.0]))
    assert desk.ask("/v1/meters/latency/total")["value"] == {"count": 3, "sum": 6.0, "min": 2.0, "max": 4.0, "avg": 3.0}


def test_fn_picks_aggregates(desk):
    desk.store.count("latency", (("s1",), NOON, [2.0, 4.0]))
    assert desk.ask("/v1/meters/latency/total?fn=max&fn=avg")["value"] == {"max": 4.0, "avg": 3.0}


def test_decimals_are_exact_in_the_text_of_the_answer(desk):
    desk.store.count("revenue", ((), NOON, [0.1]), ((), NOON + 60, [0.2]))
    assert b'"sum":0.30,' in desk.send("GET", "/v1/meters/revenue/total").body
    desk.store.count("revenue", ((), NOON, [0.1] * 997))
    assert b'"sum":100.00,"avg":0.1' in desk.send("GET", "/v1/meters/revenue/total").body
    desk.store.count("revenue", ((), NOON, [90_000_000_000_000.05]))
    assert b'"sum":90000000000100.05,' in desk.send("GET", "/v1/meters/revenue/total").body


def test_an_answer_says_that_its_sums_are_exact(desk):
    desk.store.count("revenue", ((), NOON, [0.1]))
    for question in ("total", "series"):
        assert desk.ask(f"/v1/meters/revenue/{question}")["decimals"] == 2
        assert "decimals" not in desk.ask(f"/v1/meters/latency/{question}")


def test_sums_beyond_64_bits_are_exact_in_the_text_of_the_answer(desk):
    for _ in range(3):
        desk.store.count("revenue", ((), NOON, [90_000_000_000_000.25] * 1000))
    assert b'"sum":270000000000000750.00,' in desk.send("GET", "/v1/meters/revenue/total").body
    assert b'"sum":270000000000000750.00,' in desk.send("GET", "/v1/meters/revenue/series?step=1h").body


def test_top_ranks_sums_beyond_64_bits(desk):
    desk.ask("/v1/meters/shops", "PUT", {"event": "sale", "by": ["shop"], "compute": ["sum"], "decimals": 2})
    sales = {"A": [9e13] * 2000, "B": [9e13] * 2000 + [0.01], "C": [-9e13] * 2000, "D": [0.02]}
    desk.store.count("shops", *(((shop,), NOON, amounts) for shop, amounts in sales.items()))
    items = desk.ask("/v1/meters/shops/top")["items"]
    assert [item["labels"]["shop"] for item in items] == ["B", "A", "D", "C"]


@pytest.mark.parametrize(
    ("question", "shown", "left_out"),
    [("by=video&limit=2", "EC", 3), ("by=video,country&limit=1", "E", 4), ("by=video&limit=5", "ABCDE", None)],
)
def test_limit_keeps_the_largest_over_the_whole_range(desk, question, shown, left_out):
    for minute in range(3):
        counts = {"A": 1, "B": 2, "C": 3, "D": 9 if minute == 0 else 0, "E": 4}
        desk.store.count(
            "views", *(((video, "KR"), NOON + 60 * minute, [None] * n) for video, n in counts.items() if n)
        )
    answer = desk.ask(f"/v1/meters/views/series?{question}&from={DAY}T12:00:00Z&to={DAY}T12:03:00Z")
    lines = {line["labels"]["video"]: [point["count"] for point in line["points"]] for line in answer["series"]}
    assert sorted(lines) == sorted(shown)
    assert lines["E"] == [4, 4, 4]
    assert answer.get("left_out") == left_out


def test_limit_of_nothing_is_nothing(desk):
    assert desk.ask("/v1/meters/views/series?by=video&limit=3")["series"] == []


def test_too_many_series_are_refused_before_they_are_read(desk):
    desk.settings.query.max_points = 200
    desk.store.count("views", *(((f"v{n}", "KR"), NOON + 60 * m, [None]) for n in range(100) for m in range(3)))
    series = f"/v1/meters/views/series?from={DAY}T12:00:00Z&to={DAY}T12:03:00Z"
    problem = desk.refused(f"{series}&by=video")
    assert (problem.status, problem.code, problem.extra["limit"]) == (400, "over_limit", 200)
    for way_out in ("a limit", "longer steps", "fewer keys", "query.max_points = 200"):
        assert way_out in problem.detail
    for asked in ("&by=country", "&by=video&limit=66", "&by=video&video=v1&video=v2", "&by=video&step=1h"):
        assert desk.ask(series + asked)["series"]


def test_few_rows_of_too_many_points_are_refused_too(desk):
    desk.settings.query.max_points = 200
    desk.store.count("views", *(((f"v{n}", "KR"), NOON, [None]) for n in range(100)))
    problem = desk.refused(f"/v1/meters/views/series?by=video&from={DAY}T12:00:00Z&to={DAY}T12:03:00Z")
    assert (problem.code, problem.extra["limit"], problem.extra["actual"]) == ("over_limit", 200, 300)


def test_top_of_more_series_than_can_be_ranked_is_refused(desk, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 500)
    desk.store.count("views", *(((f"v{n}", "KR"), NOON, [None]) for n in range(51)))
    for target in ("top?by=video", "series?by=video&step=1h", "series?by=video&step=1h&limit=3"):
        problem = desk.refused(f"/v1/meters/views/{target}")
        assert (problem.code, problem.extra["limit"]) == ("over_limit", 500)
        assert "fewer keys to group by" in problem.detail
    assert desk.ask("/v1/meters/views/top?by=country")["items"]


def test_too_many_functions_are_refused(views):
    names = ",".join(f"p{number / 100:g}" for number in range(65))
    problem = views.refused(f"/v1/meters/views/total?fn={names}")
    assert (problem.code, problem.extra["limit"], problem.extra["actual"]) == ("over_limit", 64, 65)


def test_a_label_with_a_comma_can_be_grouped_by(desk):
    desk.store.registry.put_meter("main", Meter("odd", ("odd",), by=("a,b", "c")), now_ms=0)
    desk.store.count("odd", (("x", "y"), NOON, [None] * 2))
    asked = "/v1/meters/odd/total?by=a%2Cb"
    assert desk.ask(asked)["items"] == [{"labels": {"a,b": "x"}, "value": {"count": 2}}]
    assert desk.ask(f"{asked}&by=c")["items"][0]["labels"] == {"a,b": "x", "c": "y"}


def test_an_answer_says_how_many_events_lost_their_labels(desk):
    desk.store.registry.put_meter("main", Meter("few", ("few",), by=("video",), max_series=1), now_ms=0)
    desk.store.count("few", (("A",), NOON, [None] * 3), (("__other__",), NOON, [None] * 5))
    bounds = f"from={DAY}T12:00:00Z&to={DAY}T12:01:00Z"
    for asked in ("total?video=B", f"series?video=B&{bounds}", f"top?by=video&{bounds}"):
        assert desk.ask(f"/v1/meters/few/{asked}")["other"] == {"count": 5}
    for asked in ("total", "total?video=__other__", f"total?video=B&to={DAY}T11:00:00Z"):
        assert "other" not in desk.ask(f"/v1/meters/few/{asked}")
    assert desk.ask("/v1/meters/few/total")["value"] == {"count": 8}


def test_a_broken_meter_says_so_in_its_answers(desk):
    desk.store.break_meter("views", "division by zero")
    assert desk.ask("/v1/meters/views/total")["broken"] == "division by zero"


def test_what_a_meter_missed_is_a_loss_of_its_answers_also_after_it_was_resumed(desk):
    desk.store.break_meter("views", "division by zero", missed=7)
    assert desk.ask("/v1/meters/views/total")["freshness"]["loss"] == 7
    assert desk.ask("/v1/meters/events/total")["freshness"]["loss"] == 0
    desk.store.registry.resume_meter("main", "views")
    assert desk.ask("/v1/meters/views/total")["freshness"]["loss"] == 7


@pytest.mark.parametrize(
    ("step", "first", "count"),
    [
        ("5m", f"{DAY}T11:30:00Z", 13),
        ("15m", f"{DAY}T11:30:00Z", 5),
        ("1h", f"{DAY}T11:00:00Z", 2),
        ("7m", f"{DAY}T11:25:00Z", 10),
        ("120s", f"{DAY}T11:30:00Z", 31),
    ],
)
def test_steps_count_from_the_epoch(views, step, first, count):
    (line,) = views.ask(f"/v1/meters/views/series?step={step}")["series"]
    assert (line["points"][0]["time"], len(line["points"])) == (first, count)
    assert sum(point["count"] or 0 for point in line["points"]) == 14


@pytest.mark.parametrize(
    ("zone", "midnight"),
    [
        ("Asia/Seoul", "2026-11-14T15:00:00Z"),
        ("Asia/Kolkata", "2026-11-14T18:30:00Z"),
        ("Asia/Kathmandu", "2026-11-14T18:15:00Z"),
    ],
)
def test_days_of_a_zone(desk, zone, midnight):
    edge = int(datetime.fromisoformat(midnight).timestamp())
    desk.store.count("views", (("A", "KR"), edge - 60, [None]), (("A", "KR"), edge, [None] * 2))
    answer = desk.ask(f"/v1/meters/views/series?step=1d&tz={zone}&from=2026-11-14&to=2026-11-16")
    (line,) = answer["series"]
    assert [point["count"] for point in line["points"]] == [1, 2]
    assert line["points"][1]["time"] == midnight
    assert answer["tz"] == zone


def test_a_day_with_25_hours(desk):
    zone = "Europe/Vienna"  # clocks went back on 25 October 2026
    answer = desk.ask(f"/v1/meters/views/series?step=1d&tz={zone}&from=2026-10-25&to=2026-10-27")
    assert [point["time"] for point in answer["series"][0]["points"]] == [
        "2026-10-24T22:00:00Z",
        "2026-10-25T23:00:00Z",
    ]


def test_months(desk):
    desk.store.count("views", (("A", "KR"), NOON, [None] * 3))
    (line,) = desk.ask("/v1/meters/views/series?step=1mo&from=2026-09-10&to=2026-11-15")["series"]
    assert [(point["time"][:10], point["count"]) for point in line["points"]] == [
        ("2026-09-01", 0),
        ("2026-10-01", 0),
        ("2026-11-01", 3),
    ]


minutes = st.integers(NOON // 60 - 3000, NOON // 60)
zones = st.sampled_from(["UTC", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe", "Asia/Seoul"])


@given(st.lists(minutes, max_size=30), zones, st.sampled_from(["1d", "1mo", "2d"]))
def test_whatever_the_zone_and_step_no_event_is_lost_or_met_twice(new_desk, events, zone, step):
    desk = new_desk()
    for minute, n in Counter(events).items():
        desk.store.count("views", (("A", "KR"), minute * 60, [None] * n))
    (line,) = desk.ask(f"/v1/meters/views/series?step={step}&tz={zone}&from=-60h")["series"]
    total = {point["time"]: point["count"] or 0 for point in line["points"]}
    assert sum(total.values()) == len(events)
    if step == "1d":
        own = ZoneInfo(zone)
        by_day = Counter(datetime.fromtimestamp(minute * 60, own).date() for minute in events)
        served = {datetime.fromisoformat(time).astimezone(own).date(): count for time, count in total.items() if count}
        assert served == by_day


def test_the_zone_utc_is_the_default(views):
    plain, named = (views.ask(f"/v1/meters/views/series?step=1d&from=-2d{tz}")["series"] for tz in ("", "&tz=UTC"))
    assert plain == named
    assert plain[0]["points"][-1]["count"] == 14
    assert datetime.fromisoformat(plain[0]["points"][0]["time"]).tzinfo == UTC
