"""What a Reader asks, and what it makes of the answers."""

import threading
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import polars as pl
import pytest

import tallymark
from scripted_server import hangs_up, says
from tallymark import QuestionRefused, Reader, Unanswered

FRESH = {
    "complete_through": "2026-11-15T12:00:00.500Z",
    "final_through": None,
    "lag_ms": 12,
    "loss": 0,
    "approximate": True,
    "error": {"p99": 0.0109},
    "meter_version": 3,
}
TOTAL = {
    "meter": "views",
    "where": {},
    "value": {"count": 10},
    "range": {"from": "2026-11-15T12:00:00Z", "to": None, "widened": True},
    "freshness": FRESH,
}
SERIES = {
    "meter": "views",
    "series": [
        {
            "labels": {"country": "KR"},
            "points": [
                {"time": "2026-11-15T12:00:00Z", "count": 3, "avg": 1.5},
                {"time": "2026-11-15T12:01:00Z", "count": 0, "avg": None},
            ],
        }
    ],
    "freshness": FRESH,
}


@pytest.fixture
def reader(server):
    with Reader(server.url, timeout_s=5) as reader:
        yield reader


def test_a_total_is_a_plain_object(server, reader):
    server.answers(says(TOTAL))
    total = reader.total("views")
    assert (total.value, total["count"], total.before) == ({"count": 10}, 10, None)
    assert total.freshness.complete_through == datetime(2026, 11, 15, 12, 0, 0, 500_000, tzinfo=UTC)
    assert (total.freshness.lag_ms, total.freshness.loss, total.freshness.meter_version) == (12, 0, 3)
    assert (total.freshness.approximate, total.freshness.error) == (True, {"p99": 0.0109})
    assert (total.range.start, total.range.end, total.range.widened) == (
        datetime(2026, 11, 15, 12, tzinfo=UTC),
        None,
        True,
    )
    assert total.rows() == [{"count": 10}]


def test_at_a_prompt_an_answer_shows_its_numbers(server, reader):
    server.answers(says(TOTAL))
    assert repr(reader.total("views")) == "Total(meter='views', value={'count': 10})"
    server.answers(says(SERIES))
    assert repr(reader.series("views")) == ("Series(meter='views', lines=(Line(labels={'country': 'KR'}, 2 points),))")
    server.answers(says({"meter": "m", "items": [{"labels": {"a": "x"}, "value": {"count": 1}}]}))
    assert repr(reader.top("m")) == "Items(meter='m', items=(Item(labels={'a': 'x'}, value={'count': 1}),))"


def test_labels_are_keywords_and_a_list_is_any_of_them(server, reader):
    server.answers(says(TOTAL))
    reader.total("views", video=["A", "B"], status=200.0, live=True, user=None, where={"from": "x", "step": 2})
    assert server.asked[0].path == "/v1/meters/views/total"
    assert server.asked[0].pairs == [
        ("video", "A"), ("video", "B"), ("status", "200"), ("live", "true"), ("user", ""),
        ("label.from", "x"), ("label.step", "2"),
    ]  # fmt: skip


def test_times_and_durations_may_be_pythons_own(server, reader):
    server.answers(says(SERIES))
    start = datetime(2026, 11, 15, 13, tzinfo=timezone(timedelta(hours=1)))
    reader.series("views", from_=start, to=date(2026, 11, 16), step=timedelta(minutes=5), window=timedelta(hours=1))
    reader.series("views", from_=timedelta(hours=-1), to="now", compare=timedelta(days=7), fn=["avg", "p99"], by="a,b")
    first, second = (dict(asked.pairs) for asked in server.asked)
    assert first == {"from": "2026-11-15T13:00:00+01:00", "to": "2026-11-16", "step": "5m", "window": "1h"}
    assert second == {"from": "-1h", "to": "now", "compare": "7d", "fn": "p99", "by": "a,b"}
    assert ("fn", "avg") in server.asked[1].pairs


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"from_": datetime(2026, 1, 1)}, ValueError, "no time zone"),
        ({"from_": timedelta(hours=1)}, ValueError, "in the future"),
        ({"from_": True}, TypeError, "is no time"),
        ({"window": timedelta(milliseconds=5)}, ValueError, "whole number of seconds"),
        ({"video": []}, ValueError, "an empty list"),
        ({"video": {"A": object()}.values()}, TypeError, "a label is a text"),
        ({"video": b"A"}, TypeError, "a label is a text"),
        ({"video": {"A": 1}}, TypeError, "a label is a text"),
        ({"step": "1m"}, TypeError, r"total\(\) takes no step; for a label of that name use where=\{'step': …\}"),
        ({"fn": 1.5}, TypeError, "neither a text nor a list"),
    ],
)
def test_what_cannot_be_asked_is_said_before_asking(server, reader, asked, error, said):
    with pytest.raises(error, match=said):
        reader.total("views", **asked)
    assert server.asked == []


def test_an_odd_name_of_a_meter_stays_one_part_of_the_path(server, reader):
    server.answers(says({"code": "unknown_meter", "detail": "no"}, 404))
    with pytest.raises(QuestionRefused):
        reader.total("a/b?c")
    assert server.asked[0].path == "/v1/meters/a%2Fb%3Fc/total"


def test_a_comparison_has_the_number_before_and_the_change(server, reader):
    compared = {"before": {"count": 8}, "change": {"count": {"difference": 2, "percent": 25.0}}}
    server.answers(says({**TOTAL, **compared}))
    total = reader.total("views", compare="1d")
    assert total.before == {"count": 8}
    assert (total.change["count"].difference, total.change["count"].percent) == (2, 25.0)
    assert total.rows() == [{"count": 10, "before.count": 8, "difference.count": 2, "percent.count": 25.0}]


def test_a_sliding_window_says_where_it_lies(server, reader):
    server.answers(says({**TOTAL, "at": {"count": "2026-11-15T12:03:00Z"}}))
    total = reader.total("uses", card="c1", window=timedelta(minutes=10), from_="-1d", over="max")
    assert total.at == {"count": datetime(2026, 11, 15, 12, 3, tzinfo=UTC)}
    assert total.rows() == [{"count": 10, "at.count": total.at["count"]}]


def test_series_have_lines_with_points(server, reader):
    server.answers(says(SERIES))
    series = reader.series("views", by="country")
    (line,) = series
    assert line.labels == {"country": "KR"}
    assert line.values("count") == [3, 0]
    assert line.points[1]["avg"] is None
    assert series.rows()[0] == {
        "time": datetime(2026, 11, 15, 12, tzinfo=UTC), "country": "KR", "count": 3, "avg": 1.5
    }  # fmt: skip


def test_a_point_may_carry_its_comparison(server, reader):
    point = {"time": "2026-11-15T12:00:00Z", "count": 3, "before": {"count": 0}}
    change = {"count": {"difference": 3, "percent": None}}
    server.answers(says({**SERIES, "series": [{"labels": {}, "points": [{**point, "change": change}]}]}))
    (point,) = reader.series("views", compare="1d").lines[0].points
    assert (point.value, point.before, point.change["count"].percent) == ({"count": 3}, {"count": 0}, None)


def test_top_and_total_by_have_items(server, reader):
    items = [{"labels": {"video": "A"}, "value": {"count": 10}}, {"labels": {"video": "B"}, "value": {"count": 0}}]
    server.answers(says({"meter": "views", "items": items, "freshness": FRESH}))
    for asked in (reader.top("views", by="video", k=2), reader.total("views", by="video", video=["A", "B"])):
        assert [(item.labels["video"], item["count"]) for item in asked] == [("A", 10), ("B", 0)]
        assert asked.rows() == [{"video": "A", "count": 10}, {"video": "B", "count": 0}]
    assert server.asked[0].pairs == [("by", "video"), ("k", "2")]


def test_a_label_called_like_a_column_keeps_apart(server, reader):
    items = [{"labels": {"count": "x"}, "value": {"count": 10}}]
    server.answers(says({"meter": "m", "items": items}))
    assert reader.top("m").rows() == [{"label.count": "x", "count": 10}]


def test_exact_sums_are_decimals_digit_by_digit_and_all_else_is_not(server, reader):
    body = (
        b'{"meter": "m", "decimals": 2, "value": {"count": 2, "sum": 12345678901234567890.10, "avg": 0.5},'
        b' "before": {"sum": 1}, "change": {"sum": {"difference": 0.30, "percent": 1.5}},'
        b' "freshness": {"lag_ms": 1.5}}'
    )
    server.answers(says(body))
    total = reader.total("m")
    assert total["sum"] == Decimal("12345678901234567890.10")
    assert [type(number) for number in total.value.values()] == [int, Decimal, float]
    assert total.before == {"sum": Decimal(1)}
    assert str(total.change["sum"].difference) == "0.30"
    assert isinstance(total.change["sum"].percent, float)
    assert isinstance(total.freshness.lag_ms, float)


def test_without_decimals_numbers_are_floats(server, reader):
    server.answers(says(b'{"meter": "m", "value": {"sum": 0.30}}'))
    assert type(reader.total("m")["sum"]) is float


def test_a_query_is_answered_like_a_series(server, reader):
    server.answers(says({**SERIES, "query": "FROM * SELECT views"}))
    text = "FROM web-1 SELECT views WHERE a = 'ä & b'"
    assert reader.query(text, tz="Asia/Seoul", consistency="stale").query == "FROM * SELECT views"
    assert server.asked[0].method == "GET"
    assert server.asked[0].pairs == [("q", text), ("tz", "Asia/Seoul"), ("consistency", "stale")]


def test_a_long_query_is_sent_as_a_body(server, reader):
    server.answers(says(SERIES))
    text = "FROM " + ", ".join(f"web-{number}" for number in range(1000)) + " SELECT ä"
    assert len(reader.query(text)) == 1
    assert (server.asked[0].method, server.asked[0].body.decode()) == ("POST", text)


def test_a_refusal_says_what_the_server_said(server, reader):
    server.answers(
        says({"code": "bad_query", "detail": "no function percentil; did you mean percentile?", "position": 25}, 400)
    )
    with pytest.raises(QuestionRefused, match="did you mean percentile") as caught:
        reader.query("FROM * SELECT cpu COMPUTE percentil(99)")
    assert (caught.value.code, caught.value.position, caught.value.status) == ("bad_query", 25, 400)
    assert caught.value.extra == {"position": 25}
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again_after_the_time_it_wants(server, reader, status):
    server.answers(says({"detail": "not now"}, status, Retry_After="0.2"), says(TOTAL))
    assert reader.total("views")["count"] == 10
    assert len(server.asked) == 2


def test_asking_again_ends_when_the_time_would_be_over(server):
    server.answers(says({"code": "not_fresh", "detail": "the pipeline is away"}, 503, Retry_After="30"))
    with Reader(server.url, timeout_s=1) as reader, pytest.raises(Unanswered, match="the pipeline is away") as caught:
        reader.total("views")
    assert (caught.value.code, caught.value.status, len(server.asked)) == ("not_fresh", 503, 1)


def test_a_bug_of_the_server_is_no_reason_to_ask_again(server, reader):
    server.answers(says({"code": "internal", "detail": "a bug"}, 500))
    with pytest.raises(Unanswered, match="a bug"):
        reader.total("views")
    assert len(server.asked) == 1


def test_an_answer_that_was_cut_off_is_asked_for_again(server, reader):
    server.answers(hangs_up, says(TOTAL))
    assert reader.total("views")["count"] == 10


def test_nobody_there_is_said_at_once():
    with Reader("http://127.0.0.1:9", timeout_s=60) as reader, pytest.raises(Unanswered, match="connection refused"):
        reader.total("views")


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"{}", b'{"value": 3}', b'{"value": {}, "freshness": {"lag_ms": []}}']
)
def test_an_answer_of_something_else_is_no_answer(server, reader, body):
    server.answers(says(body))
    with pytest.raises(Unanswered, match="is this really a Tallymark server"):
        reader.total("views")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "ftp://x"}, "ftp://x"),
        ({"tenant": "a b"}, "a b"),
        ({"key": "a\nb"}, "key"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_a_reader_that_could_never_ask_is_not_made(options, said):
    with pytest.raises(ValueError, match=said):
        Reader(**options)


def test_tenant_and_key_go_with_every_question(server):
    server.answers(says(TOTAL))
    with Reader(server.url, tenant="acme", key="secret") as reader:
        reader.total("views")
    headers = server.asked[0].headers
    assert (headers["tallymark-tenant"], headers["authorization"]) == ("acme", "Bearer secret")


def test_threads_share_a_reader(server, reader):
    def echo(handler):
        number = int(dict(server_pairs(handler))["n"])
        says({"meter": "m", "value": {"count": number}})(handler)

    def server_pairs(handler):
        from urllib.parse import parse_qsl, urlsplit

        return parse_qsl(urlsplit(handler.path).query)

    server.answers(echo)
    wrong: list[tuple[int, object]] = []

    def ask(first: int) -> None:
        for number in range(first, first + 50):
            found = reader.total("m", n=number)["count"]
            if found != number:
                wrong.append((number, found))

    threads = [threading.Thread(target=ask, args=(1000 * place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert len(server.asked) == 400


def test_a_closed_reader_asks_no_more(server):
    reader = Reader(server.url)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.total("views")


def test_every_public_name_is_there():
    for name in tallymark.__all__:
        assert getattr(tallymark, name).__name__ == name
    from tallymark import reader

    for name in reader.__all__:
        assert getattr(reader, name).__name__ == name


def test_columns_of_tables_are_asked_for_and_come_with_each_row(server, reader):
    item = {"labels": {"video": "A"}, "with": {"videos.title": "Alpha", "videos.paid": True}, "value": {"count": 3}}
    server.answers(says({"meter": "views", "items": [item], "freshness": FRESH}))
    top = reader.top("views", by="video", with_=["videos.title", "videos.paid"], where={"videos.channel": "music"})
    assert {("with", "videos.title"), ("with", "videos.paid"), ("label.videos.channel", "music")} < set(
        server.asked[-1].pairs
    )
    assert top.items[0].with_ == {"videos.title": "Alpha", "videos.paid": True}
    assert top.rows() == [{"video": "A", "videos.title": "Alpha", "videos.paid": True, "count": 3}]
    assert top.to_polars().schema["videos.paid"] == pl.Boolean
    line = {"labels": {"video": "A"}, "with": {"videos.minutes": 2.5}, "points": SERIES["series"][0]["points"]}
    server.answers(says({"meter": "views", "decimals": 2, "series": [line], "freshness": FRESH}))
    series = reader.series("views", by="video", with_="videos.minutes")
    assert [(row["video"], row["videos.minutes"]) for row in series.rows()] == [("A", 2.5)] * 2
    assert isinstance(series.lines[0].with_["videos.minutes"], float)
    server.answers(says({**TOTAL, "with": {"videos.title": None}}))
    assert reader.total("views", video="A", with_="videos.title").rows() == [{"videos.title": None, "count": 10}]
    server.answers(says({"meter": "views", "series": [line], "freshness": FRESH}))
    reader.query("FROM * SELECT views BY video", with_="videos.minutes,videos.title")
    assert ("with", "videos.minutes,videos.title") in server.asked[-1].pairs
