"""Columns of tables in questions: as if the events had carried them."""

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asking import Desk, at
from tallymark.http import Problem
from tallymark.meters.model import Late, Meter
from tallymark.query import reading

JSON = {"content-type": "application/json"}
COMPUTE = ("count", "sum", "min", "max", "avg", "p50", "p99", "distinct")
PLAYS = Meter("plays", ("play",), by=("video", "country"), compute=COMPUTE, distinct="user", late=Late(60, "aside"))
# The same events as they would be if each carried its channel.
DIRECT = Meter("direct", ("play",), by=("channel", "country"), compute=COMPUTE, distinct="user", late=Late(60, "aside"))
SALES = Meter("sales", ("sale",), by=("video",), compute=("count", "sum"), decimals=2)

VIDEOS = [
    {"video": "A", "title": "Alpha", "channel": "music", "minutes": 3, "paid": True},
    {"video": "B", "title": "Beta", "channel": "news", "minutes": 2.5, "paid": False},
    {"video": "C", "title": "Gamma", "channel": "music"},
    {"video": "D", "channel": None},
]


@pytest.fixture
def wide(desk: Desk) -> Desk:
    """Ten views of A, five of C, four of B, three of D, two of X, which the table lacks."""
    views = {"A": 10, "C": 5, "B": 4, "D": 3, "X": 2}
    desk.store.count("views", *(((video, "KR"), at("12:10:00"), [None] * n) for video, n in views.items()))
    desk.send("PUT", "/v1/tables/videos?key=video", VIDEOS, JSON)
    return desk


def items(answer: Any) -> list[tuple[Any, ...]]:
    return [(*item["labels"].values(), item["value"]["count"]) for item in answer["items"]]


def refused(desk: Desk, target: str) -> Problem:
    with pytest.raises(Problem) as found:
        desk.send("GET", target)
    return found.value


def test_by_groups_by_a_column_and_unknown_keys_show_as_themselves(wide: Desk) -> None:
    total = wide.ask("/v1/meters/views/total?by=videos.channel")
    assert items(total) == [("", 3), ("X", 2), ("music", 15), ("news", 4)]
    assert list(total["items"][0]["labels"]) == ["videos.channel"]
    top = wide.ask("/v1/meters/views/top?by=videos.channel&k=2")
    assert items(top) == [("music", 15), ("news", 4)]
    both = wide.ask("/v1/meters/views/total?by=videos.channel,country,video&videos.channel=music")
    assert items(both) == [("music", "KR", "A", 10), ("music", "KR", "C", 5)]


def test_numbers_and_booleans_are_shown_as_labels(wide: Desk) -> None:
    assert items(wide.ask("/v1/meters/views/total?by=videos.minutes")) == [("", 8), ("2.5", 4), ("3", 10), ("X", 2)]
    assert items(wide.ask("/v1/meters/views/total?by=videos.paid&videos.paid=true")) == [("true", 10)]


def test_a_series_by_a_column(wide: Desk) -> None:
    answer = wide.ask(
        "/v1/meters/views/series?by=videos.channel&from=2026-11-15T12:09:00Z&to=2026-11-15T12:12:00Z&limit=2"
    )
    lines = {
        line["labels"]["videos.channel"]: [point["count"] for point in line["points"]] for line in answer["series"]
    }
    assert lines == {"music": [0, 15, 0], "news": [0, 4, 0]}
    assert answer["left_out"] == 2


def test_with_adds_columns_to_each_item_and_line(wide: Desk) -> None:
    top = wide.ask("/v1/meters/views/top?by=video&with=videos.title,videos.minutes&k=5")
    assert [(item["labels"]["video"], item["with"]) for item in top["items"]] == [
        ("A", {"videos.title": "Alpha", "videos.minutes": 3}),
        ("C", {"videos.title": "Gamma", "videos.minutes": None}),
        ("B", {"videos.title": "Beta", "videos.minutes": 2.5}),
        ("D", {"videos.title": None, "videos.minutes": None}),
        ("X", {"videos.title": None, "videos.minutes": None}),
    ]
    series = wide.ask("/v1/meters/views/series?by=video&with=videos.paid&limit=1")
    assert [(line["labels"], line["with"]) for line in series["series"]] == [({"video": "A"}, {"videos.paid": True})]
    one = wide.ask("/v1/meters/views/total?video=A&with=videos.title")
    assert (one["value"], one["with"]) == ({"count": 10}, {"videos.title": "Alpha"})


def test_filters_on_a_column(wide: Desk) -> None:
    assert wide.ask("/v1/meters/views/total?videos.channel=music")["value"] == {"count": 15}
    assert wide.ask("/v1/meters/views/total?videos.channel=music&videos.channel=news")["value"] == {"count": 19}
    assert wide.ask("/v1/meters/views/total?videos.channel=music&video=A&video=B")["value"] == {"count": 10}
    assert wide.ask("/v1/meters/views/total?label.videos.channel=news&videos.paid=true")["value"] == {"count": 0}
    assert wide.ask("/v1/meters/views/total?videos.channel=X")["value"] == {"count": 2}
    assert wide.ask("/v1/meters/views/total?videos.channel=nothing")["value"] == {"count": 0}
    assert wide.ask("/v1/meters/views/total?videos.channel=music")["where"] == {"videos.channel": ["music"]}
    named = wide.ask("/v1/meters/views/total?by=videos.channel&videos.channel=music&videos.channel=none")
    assert items(named) == [("music", 15), ("none", 0)]


def test_the_query_language_knows_columns(wide: Desk) -> None:
    query = "FROM * SELECT views WINDOW 1h WHERE videos.channel IN ('music', 'news') BY videos.channel SINCE 1h"
    answer = wide.ask("/v1/query", "POST", query.encode(), {"content-type": "text/plain"})
    assert [line["labels"] for line in answer["series"]] == [{"videos.channel": "music"}, {"videos.channel": "news"}]
    assert answer["query"] == query.replace("SINCE 1h", "SINCE 1h")
    titled = wide.ask("/v1/query?with=videos.title&q=FROM+A+SELECT+views+BY+video")
    assert [line["with"] for line in titled["series"]] == [{"videos.title": "Alpha"}]


def test_a_label_of_that_very_name_wins(desk: Desk) -> None:
    desk.store.registry.put_meter("main", Meter("odd", ("e",), by=("video", "videos.channel")), now_ms=0)
    desk.store.count("odd", (("A", "own"), at("12:10:00"), [None]))
    desk.send("PUT", "/v1/tables/videos?key=video", VIDEOS, JSON)
    assert items(desk.ask("/v1/meters/odd/total?by=videos.channel")) == [("own", 1)]
    assert desk.ask("/v1/meters/odd/total?videos.channel=own")["value"] == {"count": 1}


def test_a_renamed_title_shows_as_it_was_at_the_end_of_the_range(desk: Desk) -> None:
    #   12:00        12:15              12:30
    #   "Working title"    "Final title"
    for minute in ("12:05:00", "12:20:00"):
        desk.store.count("views", (("A", "KR"), at(minute), [None] * 3))
    desk.send("PUT", "/v1/tables/videos?key=video", [{"video": "A", "title": "Working title"}], JSON)
    renamed = [{"video": "A", "title": "Final title", "from": "2026-11-15T12:15:00Z"}]
    desk.send("PATCH", "/v1/tables/videos", renamed, JSON)
    ask = "/v1/meters/views/top?by=video&with=videos.title&from=2026-11-15T12:00:00Z&to=2026-11-15T"

    def title(end: str) -> tuple[Any, int]:
        (item,) = desk.ask(f"{ask}{end}Z")["items"]
        return item["with"]["videos.title"], item["value"]["count"]

    assert title("12:10:00") == title("12:15:00") == ("Working title", 3)
    assert title("12:16:00") == ("Final title", 3)
    assert title("12:30:00") == ("Final title", 6)
    grouped = desk.ask("/v1/meters/views/total?by=videos.title&from=2026-11-15T12:00:00Z&to=2026-11-15T12:10:00Z")
    assert items(grouped) == [("Working title", 3)]
    # The earlier range is shown under the names of the end of this one, so that both meet.
    compared = desk.ask(
        "/v1/meters/views/total?by=videos.title&from=2026-11-15T12:15:00Z&to=2026-11-15T12:30:00Z&compare=previous"
    )
    (item,) = compared["items"]
    assert (item["labels"], item["value"], item["before"]) == (
        {"videos.title": "Final title"},
        {"count": 3},
        {"count": 3},
    )


def test_a_changed_title_shows_at_once_although_answers_are_kept(keeping_desk: Desk) -> None:
    desk = keeping_desk
    desk.store.count("views", (("A", "KR"), at("12:10:00"), [None]))
    desk.send("PUT", "/v1/tables/videos?key=video", VIDEOS, JSON)
    targets = ["/v1/meters/views/top?by=video&with=videos.title", "/v1/meters/views/top?by=videos.title"]
    for target in targets:
        assert "Alpha" in json.dumps(desk.ask(target))
    desk.send("PATCH", "/v1/tables/videos", [{"video": "A", "title": "New"}], JSON)
    for target in targets:
        assert "New" in json.dumps(desk.ask(target))


@pytest.mark.parametrize(
    ("target", "code", "detail"),
    [
        ("total?by=vidoes.title", "unknown_key", "there is no table 'vidoes'; did you mean videos?"),
        ("total?by=videos.titel", "unknown_column", "the table videos has no column 'titel'; did you mean title?"),
        ("total?by=video&with=videos.titel", "unknown_column", "did you mean title?"),
        ("total?by=video&with=title", "unknown_key", "there is no table 'title'"),
        ("total?videos.titel=x", "unknown_column", "did you mean title?"),
        ("total?vidoes.title=x", "unknown_parameter", "no key or parameter 'vidoes.title'"),
        ("total?with=videos.title", "missing_parameter", "with=videos.title is that of one video; add by=video"),
        ("total?by=country&with=videos.title", "missing_parameter", "add by=video, or video= with a value"),
        ("total?by=videos.channel&with=videos.title", "missing_parameter", "add by=video"),
        ("total?video=A&video=B&with=videos.title", "missing_parameter", "add by=video"),
        ("live?videos.channel=music", "unknown_parameter", "no key or parameter 'videos.channel'"),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_is_refused_with_the_nearest(wide: Desk, target: str, code: str, detail: str) -> None:
    from tallymark.query import parsing

    if target.startswith("live"):
        meter = wide.store.registry.meter("main", "views")
        with pytest.raises(Problem) as found:
            parsing.live(meter, [("videos.channel", "music")])
        problem = found.value
    else:
        problem = refused(wide, f"/v1/meters/views/{target}")
    assert (problem.status, problem.code) == (400, code)
    assert detail in problem.detail


def test_a_meter_without_the_key_is_refused(wide: Desk) -> None:
    problem = refused(wide, "/v1/meters/latency/total?by=videos.title")
    assert (problem.code, problem.extra["parameter"]) == ("cannot_join", "by")
    assert problem.detail == "the table videos joins by the key 'video', which meter latency lacks; its keys are server"


def test_a_query_that_names_a_wrong_column_points_at_it(wide: Desk) -> None:
    for query, word in (
        ("FROM * SELECT views BY country, videos.titel", "videos.titel"),
        ("FROM * SELECT views WHERE videos.titel = 'x'", "videos.titel"),
        ("FROM * SELECT views BY vidoes.title", "vidoes.title"),
    ):
        problem = refused(wide, f"/v1/query?q={query.replace(' ', '+')}")
        assert problem.extra["position"] == query.index(word), problem.detail


def test_tables_of_other_tenants_are_not_joined(wide: Desk) -> None:
    wide.store.registry.put_meter("acme", PLAYS, now_ms=0)
    assert refused(wide, "/v1/meters/plays/total?by=videos.title&tenant=acme").code == "unknown_key"


def test_every_format_has_the_added_columns(wide: Desk) -> None:
    ask = "/v1/meters/views/top?by=video&with=videos.title,videos.minutes,videos.paid&k=3&format="
    text = wide.send("GET", f"{ask}csv").body.decode().splitlines()
    assert text == [
        "video,videos.title,videos.minutes,videos.paid,count",
        "A,Alpha,3,true,10",
        "C,Gamma,,,5",
        "B,Beta,2.5,false,4",
    ]
    lines = [json.loads(line) for line in wide.send("GET", f"{ask}ndjson").body.splitlines()]
    assert lines[0] == {"video": "A", "videos.title": "Alpha", "videos.minutes": 3, "videos.paid": True, "count": 10}
    table = pa.ipc.open_stream(io.BytesIO(wide.send("GET", f"{ask}arrow").body)).read_all()
    assert [str(field.type) for field in table.schema] == ["string", "string", "double", "bool", "int64"]
    assert table.column("videos.paid").to_pylist() == [True, None, False]
    series = wide.send("GET", "/v1/meters/views/series?by=video&with=videos.title&limit=1&step=1h&format=csv")
    assert series.body.decode().splitlines()[1].startswith("A,Alpha,2026-11-15T")


def test_too_many_series_behind_a_column_are_refused(wide: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_MERGED_ROWS", 4)
    problem = refused(wide, "/v1/meters/views/total?by=videos.channel")
    assert (problem.code, problem.extra["limit"]) == ("over_limit", 4)
    assert "the label that the table joins has more than 4 series" in problem.detail


KEYS, COUNTRIES, CHANNELS = "ABCDX", ("KR", "US"), (None, "music", "news", "X")
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(COUNTRIES),
        st.sampled_from(["11:40:00", "12:10:00", "12:11:00", "12:25:00"]),
        st.integers(-5, 500),
        st.booleans(),
    ),
    max_size=12,
)
CHANNEL = "{channel}"
QUESTIONS = [
    f"{kind}{rest}"
    for kind, questions in {
        "total?by=": [CHANNEL, f"{CHANNEL},country", f"country&{CHANNEL}=music&{CHANNEL}=X", f"{CHANNEL}&late=with"],
        "total?": [f"{CHANNEL}=music", f"{CHANNEL}=music&{CHANNEL}=&country=KR", f"by={CHANNEL}&{CHANNEL}=news"],
        "top?from=-30m&by=": [
            f"{CHANNEL}&fn=p99", f"{CHANNEL}&fn=distinct&k=2", f"{CHANNEL}&rank=growth",
            f"{CHANNEL},country&window=10m&over=max&fn=p50", f"{CHANNEL}&compare=previous&fn=avg&k=1",
        ],
        "series?step=1h&tz=Asia/Kathmandu&from=-2h&by=": [CHANNEL, f"{CHANNEL}&limit=2"],
        "series?from=-1h&step=10m&by=": [
            CHANNEL, f"{CHANNEL}&limit=1&fn=p99", f"{CHANNEL}&window=20m&fn=max", f"{CHANNEL}&compare=previous",
            f"{CHANNEL}&late=only&limit=2",
        ],
    }.items()
    for rest in questions
]  # fmt: skip


@settings(max_examples=150)
@given(
    EVENTS,
    st.dictionaries(st.sampled_from("ABCD"), st.sampled_from(CHANNELS)),
    st.lists(st.sampled_from(QUESTIONS), min_size=1, max_size=4),
    st.integers(0, 3),
)
def test_any_question_by_a_column_is_answered_as_if_events_had_carried_it(
    new_desk: Any, events: Any, channels: Any, questions: Any, most_named: int
) -> None:
    desk = new_desk()
    for meter in (PLAYS, DIRECT):
        desk.store.registry.put_meter("main", meter, now_ms=0)
    for video, country, minute, value, is_late in events:
        channel = channels.get(video, video) or ""
        for name, first in (("plays", video), ("direct", channel)):
            counted = ((first, country), at(minute), [value, f"user {value % 7}"])
            desk.store.count(name, counted, late=is_late)
    rows = [{"video": video, "channel": channel} for video, channel in channels.items()]
    desk.send("PUT", "/v1/tables/videos?key=video", [*rows, {"video": "unused", "channel": "music"}], JSON)
    with pytest.MonkeyPatch.context() as patch:
        # However few keys may be named one by one.
        patch.setattr(reading, "MOST_NAMED", [0, 1, 3, 10_000][most_named])
        for question in questions:
            joined = desk.ask("/v1/meters/plays/" + question.replace(CHANNEL, "videos.channel"))
            direct = desk.ask("/v1/meters/direct/" + question.replace(CHANNEL, "channel"))
            for answer in (joined, direct):
                del answer["meter"], answer["freshness"]
            assert json.loads(json.dumps(joined).replace("videos.channel", "channel")) == direct, question


def test_exact_sums_stay_exact(desk: Desk) -> None:
    desk.store.registry.put_meter("main", SALES, now_ms=0)
    desk.send("PUT", "/v1/tables/videos?key=video", VIDEOS, JSON)
    desk.store.count("sales", *(((video,), at("12:10:00"), [0.1]) for video in "ACC"))
    body = desk.send("GET", "/v1/meters/sales/total?by=videos.channel").body
    assert b'"sum":0.30' in body
