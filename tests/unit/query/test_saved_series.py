"""The windows of a saved query: stored ones and computed ones make one answer, that of the same question."""

from dataclasses import replace
from typing import Any

import pytest

from asking import Desk, at
from tallymark.evaluation.evaluator import Evaluator
from tallymark.store.windows import SHARES

ALL_SHARES = dict.fromkeys(range(SHARES), 1)
QUERIES = {
    "plain": "FROM * SELECT latency WINDOW 1m",
    "by_server": "FROM * SELECT latency WINDOW 1m COMPUTE count, avg, rate BY server",
    "hopping": "FROM * SELECT latency WINDOW 5m EVERY 1m COMPUTE max BY server",
    "chosen": "FROM web-1 SELECT latency WINDOW 2m COMPUTE sum",
    "money": "FROM * SELECT revenue WINDOW 1m COMPUTE sum, avg",
}


@pytest.fixture
def saved_desk(desk: Desk) -> Desk:
    """Half an hour of events; the queries are saved at 12:10 and evaluated until 12:30:30."""
    now_ms, desk.now_ms = desk.now_ms, at("12:10:30") * 1000
    meters = desk.store.tenants["main"]
    meters |= {name: replace(meter, created_ms=at("12:00:00") * 1000) for name, meter in meters.items()}
    for name, text in QUERIES.items():
        desk.send("PUT", f"/v1/queries/{name}", {"q": text})
    for minute in range(31):
        bucket_s = at(f"12:{minute:02}:00")
        if minute % 3:
            desk.store.count("latency", (("web-1",), bucket_s, [float(minute), 2.5]), (("web-2",), bucket_s, [1.0]))
            desk.store.count("revenue", ((), bucket_s, [0.1, 0.2]))
    desk.now_ms = now_ms
    evaluate(desk)
    return desk


def evaluate(desk: Desk) -> None:
    evaluator = Evaluator(desk.store, desk.sources.events, accept_past_s=86_400, clock_ms=lambda: desk.now_ms)
    while evaluator.round(ALL_SHARES):
        pass


def by_labels(answer: Any) -> Any:
    return {tuple(line["labels"].items()): line["points"] for line in answer["series"]}


@pytest.mark.parametrize("name", QUERIES)
def test_it_is_the_answer_to_the_same_question(saved_desk: Desk, name: str) -> None:
    found = saved_desk.ask(f"/v1/queries/{name}/series?from={at('12:00:00')}000&to=now")
    since = "SINCE '2026-11-15T12:00:00Z'"
    asked = saved_desk.ask("/v1/query", "POST", f"{QUERIES[name]} {since}".encode(), {"content-type": "text/plain"})
    assert by_labels(found) == by_labels(asked)
    assert found["range"] == asked["range"]
    assert found["query"] == name
    assert found["freshness"] == asked["freshness"]


def test_stored_windows_are_served_from_the_store(saved_desk: Desk) -> None:
    shown = saved_desk.ask("/v1/queries/plain")
    assert shown["stored"] == {"from": "2026-11-15T12:10:00Z", "through": "2026-11-15T12:30:00Z", "windows": 20}
    assert (shown["behind_ms"], shown["problem"]) == (0, None)
    saved_desk.store.journal.clear()  # nothing can be computed any more
    (line,) = saved_desk.ask(f"/v1/queries/plain/series?from={at('12:05:00')}000&to={at('12:13:00')}000")["series"]
    assert [point["count"] for point in line["points"]] == [0, 0, 0, 0, 0, 3, 3, 0]
    answer = saved_desk.ask("/v1/queries/plain/series")
    assert answer["stored_through"] == "2026-11-15T12:30:00Z"


def test_exact_sums_stay_exact(saved_desk: Desk) -> None:
    body = saved_desk.send("GET", f"/v1/queries/money/series?from={at('12:28:00')}000&to={at('12:30:00')}000").body
    assert body.count(b'"sum":0.30,') == 2


def test_a_limit_says_what_it_leaves_out_and_too_much_is_refused(saved_desk: Desk) -> None:
    found = saved_desk.ask("/v1/queries/by_server/series?limit=1")
    assert [line["labels"] for line in found["series"]] == [{"server": "web-1"}]
    assert found["left_out"] == 1
    saved_desk.settings.query.max_points = 70
    assert saved_desk.refused("/v1/queries/by_server/series?from=-1h").code == "over_limit"


def test_what_a_query_with_a_limit_does_not_keep_is_unknown(saved_desk: Desk) -> None:
    saved_desk.send("PUT", "/v1/queries/top", {"q": "FROM * SELECT latency WINDOW 1m COMPUTE count BY server LIMIT 1"})
    found = saved_desk.ask("/v1/queries/top/series?from=-2m")
    assert by_labels(found).keys() == {(("server", "web-1"),)}
    saved_desk.store.count("latency", (("web-9",), at("12:29:00"), [1.0] * 9))
    values = by_labels(saved_desk.ask("/v1/queries/top/series?from=-2m"))
    assert [point["count"] for point in values[("server", "web-9"),]] == [None, 9, None]


def test_days_are_those_of_the_zone(saved_desk: Desk) -> None:
    saved_desk.send(
        "PUT", "/v1/queries/days", {"q": "FROM * SELECT latency WINDOW 1d COMPUTE count", "tz": "Asia/Seoul"}
    )
    saved_desk.now_ms = at("15:10:00") * 1000  # ten past midnight in Seoul
    evaluate(saved_desk)
    shown = saved_desk.ask("/v1/queries/days")
    assert shown["stored"] == {"from": "2026-11-14T15:00:00Z", "through": "2026-11-15T15:00:00Z", "windows": 1}
    (line,) = saved_desk.ask("/v1/queries/days/series?from=2026-11-15&to=2026-11-16")["series"]
    assert line["points"] == [{"time": "2026-11-14T15:00:00Z", "count": 60}]


def test_other_formats_and_unknown_parameters(saved_desk: Desk) -> None:
    lines = saved_desk.send("GET", "/v1/queries/chosen/series?format=csv&from=-4m").body.decode().splitlines()
    assert lines[0] == "time,sum"
    assert saved_desk.refused("/v1/queries/chosen/series?step=5m").code == "unknown_parameter"
    assert saved_desk.refused("/v1/queries/choosen/series").code == "unknown_query"


def test_a_query_whose_meter_is_gone_cannot_be_answered(saved_desk: Desk) -> None:
    del saved_desk.store.tenants["main"]["latency"]
    assert saved_desk.refused("/v1/queries/plain/series").code == "unknown_meter"
