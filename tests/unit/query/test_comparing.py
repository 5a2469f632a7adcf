"""Comparisons with an earlier range, and what grew most."""

from calendar import monthrange
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.evaluation.lengths import Length, earlier
from tallymark.meters.model import Meter
from tallymark.query import comparing

NOON = 1_794_744_000  # 2026-11-15T12:00:00Z
DAY = "2026-11-15"
DAY_S = 86_400


def test_total_beside_that_of_a_day_before(desk):
    desk.store.count("views", (("A", "KR"), NOON, [None] * 6), (("A", "KR"), NOON - DAY_S, [None] * 4))
    answer = desk.ask(f"/v1/meters/views/total?from={DAY}T12:00:00Z&to={DAY}T13:00:00Z&compare=1d")
    assert answer["value"] == {"count": 6}
    assert answer["before"] == {"count": 4}
    assert answer["change"] == {"count": {"difference": 2, "percent": 50.0}}
    assert answer["compare"] == {"with": "1d", "from": "2026-11-14T12:00:00Z", "to": "2026-11-14T13:00:00Z"}


def test_nothing_before_has_no_percentage(desk):
    desk.store.count("latency", (("s",), NOON, [2.0]))
    answer = desk.ask("/v1/meters/latency/total?from=-1h&compare=previous&fn=count&fn=avg")
    assert answer["change"]["count"] == {"difference": 1, "percent": None}
    assert answer["change"]["avg"] == {"difference": None, "percent": None}


def test_without_to_like_is_compared_with_like(desk):
    desk.store.count("views", (("A", "KR"), NOON - DAY_S, [None] * 3), (("A", "KR"), NOON - DAY_S + 7200, [None] * 9))
    answer = desk.ask(f"/v1/meters/views/total?from={DAY}T11:00:00Z&compare=1d")
    assert answer["range"]["to"] == f"{DAY}T12:31:00Z"  # it is 12:30:30
    assert answer["before"] == {"count": 3}


@pytest.mark.parametrize(
    ("compare", "first", "last"),
    [
        ("previous", "2026-03-01", "2026-04-01"),
        ("1mo", "2026-03-01", "2026-04-01"),
        ("1w", "2026-03-25", "2026-04-24"),
        ("12mo", "2025-04-01", "2025-05-01"),
    ],
)
def test_calendar_ranges(desk, compare, first, last):
    zone = "Europe/Vienna"  # clocks go forward on 29 March 2026
    april = f"from=2026-04-01&to=2026-05-01&tz={zone}"
    own = ZoneInfo(zone)
    for question in (f"total?{april}", f"series?step=1mo&{april}"):
        if compare == "1w" and "1mo" in question:
            continue
        if compare == "previous" and "total" in question:
            continue  # of a total that is as long as the range itself, not a month
        found = desk.ask(f"/v1/meters/views/{question}&compare={compare}")["compare"]
        bounds = [datetime.fromisoformat(found[end]).astimezone(own) for end in ("from", "to")]
        assert bounds == [datetime.fromisoformat(day).replace(tzinfo=own) for day in (first, last)]


def test_ranges_of_two_zones_that_differ_only_at_their_end_are_two_questions(keeping_desk):
    # Clocks go forward at 01:00 UTC: a day before 14:00 in Vienna is 13:00 UTC, and before 01:00 it is 00:00 in both.
    question = "/v1/meters/views/total?from=2026-03-29T00:00:00Z&to=2026-03-29T12:00:00Z&compare=1d"
    ends = [keeping_desk.ask(question + zone)["compare"]["to"] for zone in ("", "&tz=Europe/Vienna")]
    assert ends == ["2026-03-28T12:00:00Z", "2026-03-28T13:00:00Z"]


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("from=2026-03-29&to=2026-03-30&compare=1mo", "2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"),
        ("from=2026-03-30T12:00Z&to=2026-03-31T06:00Z&compare=1mo", "2026-02-28T12:00:00Z", "2026-03-01T06:00:00Z"),
        # Clocks go back at 01:00 UTC: from 02:30 to 02:15 on the clocks, 45 minutes later.
        (
            "from=2025-10-26T00:30Z&to=2025-10-26T01:15Z&compare=1d&tz=Europe/Vienna",
            "2025-10-25T00:30:00Z",
            "2025-10-25T01:15:00Z",
        ),
    ],
)
def test_a_range_that_would_shrink_to_nothing_keeps_its_length(desk, asked, first, last):
    found = desk.ask(f"/v1/meters/views/total?{asked}")["compare"]
    assert (found["from"], found["to"]) == (first, last)


@pytest.mark.parametrize("question", ["total?", "top?by=video&rank=growth&", "series?step=120mo&"])
def test_calendars_begin_with_the_year_1(desk, question):
    problem = desk.refused(f"/v1/meters/views/{question}from=1970-01-01&to=9899-01-01&compare=previous")
    assert (problem.status, problem.code) == (400, "bad_compare")


def test_each_bucket_of_a_series_has_its_counterpart(desk):
    for day, counts in ((0, [1, 2, 3]), (1, [1, 1, 0])):
        desk.store.count(
            "views",
            *((("A", "KR"), NOON - day * DAY_S + 60 * minute, [None] * n) for minute, n in enumerate(counts) if n),
        )
    desk.store.count("views", (("B", "KR"), NOON, [None]), (("C", "KR"), NOON - DAY_S, [None]))
    question = f"/v1/meters/views/series?by=video&from={DAY}T12:00:00Z&to={DAY}T12:03:00Z&compare=1d"
    lines = {line["labels"]["video"]: line["points"] for line in desk.ask(question)["series"]}
    assert [(point["count"], point["before"]["count"]) for point in lines["A"]] == [(1, 1), (2, 1), (3, 0)]
    assert lines["A"][1]["change"] == {"count": {"difference": 1, "percent": 100.0}}
    assert [(point["count"], point["before"]["count"]) for point in lines["B"]] == [(1, 0), (0, 0), (0, 0)]


def test_a_shift_that_is_not_a_multiple_of_the_step(desk):
    desk.store.count("views", (("A", "KR"), NOON, [None] * 2), (("A", "KR"), NOON - 5400, [None] * 5))
    (line,) = desk.ask(f"/v1/meters/views/series?step=1h&from={DAY}T12:00:00Z&to={DAY}T13:00:00Z&compare=90m")["series"]
    assert [point["before"] for point in line["points"]] == [{"count": 5}]  # 10:30 to 11:30


def test_exact_sums_have_exact_differences(desk):
    desk.store.count("revenue", ((), NOON, [90_000_000_000_000.05]), ((), NOON - 3600, [0.1]))
    body = desk.send("GET", "/v1/meters/revenue/total?from=-1h&compare=1h&fn=sum").body
    assert b'"difference":89999999999999.95,' in body


@pytest.fixture
def trending(desk):
    before = {"A": 100, "B": 1, "C": 50}
    now = {"A": 101, "B": 9, "D": 3}
    for counts, start in ((before, NOON - 3600), (now, NOON)):
        desk.store.count("views", *(((video, "KR"), start, [None] * n) for video, n in counts.items()))
    return desk


def test_top_by_growth(trending):
    answer = trending.ask(f"/v1/meters/views/top?by=video&rank=growth&from={DAY}T12:00:00Z&to={DAY}T13:00:00Z")
    assert [(item["labels"]["video"], item["change"]["count"]["difference"]) for item in answer["items"]] == [
        ("B", 8),
        ("D", 3),
        ("A", 1),
        ("C", -50),
    ]
    assert answer["items"][1]["before"] == {"count": 0}
    assert answer["compare"]["with"] == "previous"


def test_top_with_a_comparison_ranks_by_value(trending):
    question = f"/v1/meters/views/top?by=video&k=2&compare=1h&from={DAY}T12:00:00Z&to={DAY}T13:00:00Z"
    items = trending.ask(question)["items"]
    assert [(item["labels"]["video"], item["value"]["count"], item["before"]["count"]) for item in items] == [
        ("A", 101, 100),
        ("B", 9, 1),
    ]


def test_growth_of_exact_sums_and_of_averages(desk):
    desk.ask("/v1/meters/shops", "PUT", {"event": "sale", "by": ["shop"], "compute": ["sum", "avg"], "decimals": 2})
    for start, sales in ((NOON - 3600, {"A": [9e13], "B": [5.0]}), (NOON, {"A": [9e13, 0.01], "C": [1.0]})):
        desk.store.count("shops", *(((shop,), start, amounts) for shop, amounts in sales.items()))
    span = f"from={DAY}T12:00:00Z&to={DAY}T13:00:00Z"
    items = desk.ask(f"/v1/meters/shops/top?rank=growth&{span}")["items"]
    assert [item["labels"]["shop"] for item in items] == ["C", "A", "B"]
    items = desk.ask(f"/v1/meters/shops/top?rank=growth&fn=avg&{span}")["items"]
    assert [(item["labels"]["shop"], item["change"]["avg"]["difference"]) for item in items][1:] == [
        ("B", None),
        ("C", None),
    ]


def test_growth_of_sliding_windows(trending):
    question = f"/v1/meters/views/top?by=video&rank=growth&window=5m&from={DAY}T12:00:00Z&to={DAY}T13:00:00Z"
    items = trending.ask(question)["items"]
    assert [item["labels"]["video"] for item in items] == ["B", "D", "A", "C"]
    assert items[0]["at"] == {"count": f"{DAY}T12:00:00Z"}


def test_many_keys_in_one_call(desk):
    desk.store.count("views", (("A", "KR"), NOON, [None] * 2), (("C", "DE"), NOON, [None] * 3))
    answer = desk.ask("/v1/meters/views/total?by=video&video=C&video=B&video=A")
    assert answer["items"] == [
        {"labels": {"video": "C"}, "value": {"count": 3}},
        {"labels": {"video": "B"}, "value": {"count": 0}},
        {"labels": {"video": "A"}, "value": {"count": 2}},
    ]
    both = desk.ask("/v1/meters/views/total?by=video,country&video=C&video=A&country=KR&country=DE")["items"]
    assert [(*item["labels"].values(), item["value"]["count"]) for item in both] == [
        ("C", "KR", 0),
        ("C", "DE", 3),
        ("A", "KR", 2),
        ("A", "DE", 0),
    ]
    found = desk.ask("/v1/meters/views/total?by=video")["items"]
    assert [(item["labels"]["video"], item["value"]["count"]) for item in found] == [("A", 2), ("C", 3)]


def test_more_keys_than_an_answer_holds_are_refused(desk):
    desk.settings.query.max_k = 3
    named = "&".join(f"video=v{n}" for n in range(2)) + "&" + "&".join(f"country=c{n}" for n in range(2))
    problem = desk.refused(f"/v1/meters/views/total?by=video,country&{named}")
    assert (problem.code, problem.extra) == ("over_limit", {"limit": 3, "actual": 4})
    desk.store.count("views", *(((f"v{n}", "KR"), NOON, [None]) for n in range(5)))
    problem = desk.refused("/v1/meters/views/total?by=video")
    assert problem.extra == {"limit": 3, "actual": 5}
    assert "top?by=" in problem.detail


def test_late_events_that_were_put_aside(desk):
    late = {"after": "1h", "then": "aside"}
    from tallymark.meters.model import Late

    meter = Meter("orders", ("order",), by=("shop",), late=Late(3600, late["then"]))
    desk.store.registry.put_meter("main", meter, now_ms=0)
    desk.store.count("orders", (("A",), NOON, [None] * 5))
    desk.store.count("orders", (("A",), NOON, [None] * 2), (("B",), NOON, [None]), late=True)
    counts = {
        how: [
            (item["labels"]["shop"], item["value"]["count"])
            for item in desk.ask(f"/v1/meters/orders/top{how}")["items"]
        ]
        for how in ("", "?late=only", "?late=with")
    }
    assert counts == {"": [("A", 5)], "?late=only": [("A", 2), ("B", 1)], "?late=with": [("A", 7), ("B", 1)]}
    (line,) = desk.ask(f"/v1/meters/orders/series?late=with&from={DAY}T12:00:00Z&to={DAY}T12:01:00Z")["series"]
    assert [point["count"] for point in line["points"]] == [8]
    assert desk.ask("/v1/meters/orders/total?late=with")["value"] == {"count": 8}


@given(
    st.datetimes(datetime(1975, 1, 1), datetime(2090, 1, 1)),
    st.sampled_from(["UTC", "Europe/Vienna", "America/St_Johns", "Australia/Lord_Howe"]),
    st.sampled_from([Length(1, "d"), Length(2, "w"), Length(1, "mo"), Length(13, "mo"), Length(5, "h")]),
)
def test_earlier_keeps_the_time_of_day_in_the_zone(moment, zone, length):
    own = ZoneInfo(zone)
    now_s = int(moment.replace(microsecond=0, tzinfo=own).timestamp())
    now = datetime.fromtimestamp(now_s, own)
    before = datetime.fromtimestamp(earlier(now_s, length, own), own)
    if length.unit == "h":
        assert now.timestamp() - before.timestamp() == length.seconds
    elif length.months:
        assert (now.year * 12 + now.month) - (before.year * 12 + before.month) == length.months
        assert before.day == min(now.day, monthrange(before.year, before.month)[1])
    else:
        assert now.date() - before.date() == timedelta(days=length.days)
        wanted = datetime.combine(before.date(), now.time().replace(fold=0), own)
        exists = datetime.fromtimestamp(wanted.timestamp(), own).time() == wanted.time()
        if exists:
            assert before.time().replace(fold=0) == wanted.time()
        else:  # on the day on which the clocks go forward: the moment when they did
            assert before.utcoffset() != datetime.fromtimestamp(before.timestamp() - 1, own).utcoffset()


def test_a_range_that_begins_in_the_hour_that_clocks_skipped_is_compared_with_all_that_there_was(desk):
    # In Vienna 02:30 to 03:45; on the 29th of March 2026 clocks went from 02:00 to 03:00 at 01:00Z.
    answer = desk.ask(
        "/v1/meters/views/total?from=2026-03-30T00:30:00Z&to=2026-03-30T01:45:00Z&compare=1d&tz=Europe/Vienna"
    )
    assert (answer["compare"]["from"], answer["compare"]["to"]) == ("2026-03-29T01:00:00Z", "2026-03-29T01:45:00Z")


def test_a_percentage_beyond_all_numbers_is_none():
    assert comparing.change(1e200, 1e-300) == {"difference": 1e200, "percent": None}


def test_a_null_of_the_range_before_is_explained_too(desk):
    desk.store.registry.put_meter("main", Meter("sales", ("sale",), by=("shop",)), now_ms=0)
    desk.store.count("sales", (("A",), NOON - 3600, [1.0]))
    after = Meter("sales", ("sale",), by=("shop",), compute=("count", "sum"))
    desk.store.registry.put_meter("main", after, now_ms=(NOON - 60) * 1000)
    desk.store.count("sales", (("A",), NOON, [2.0]))
    bounds = f"from={DAY}T12:00:00Z&to={DAY}T12:01:00Z"
    answer = desk.ask(f"/v1/meters/sales/total?{bounds}&compare=1h")
    assert (answer["value"]["sum"], answer["before"]["sum"]) == (2, None)
    assert list(answer["since"]) == ["sum"]
