"""Saved queries over HTTP: what can be saved, and what is said about it."""

import pytest

from asking import Desk, at

SLOW = "FROM * SELECT latency WINDOW 1m COMPUTE avg, max BY server"


def test_a_query_is_saved_listed_shown_and_deleted(desk: Desk) -> None:
    answer = desk.send("PUT", "/v1/queries/slow", {"q": "from * select latency window 60s compute avg,max by server"})
    assert answer.status == 201
    shown = desk.ask("/v1/queries/slow")
    assert shown == {
        "name": "slow",
        "q": SLOW,
        "title": "",
        "tz": None,
        "meter": "latency",
        "window": "1m",
        "created": "2026-11-15T12:30:30.000Z",
        "changed": "2026-11-15T12:30:30.000Z",
        "stored": {"from": None, "through": None, "windows": 0},
        "behind_ms": None,
        "problem": None,
    }
    assert desk.ask("/v1/queries") == {"queries": [shown]}
    assert desk.ask("/v1/queries/slow", "DELETE")["deleted"] == "slow"
    assert desk.ask("/v1/queries") == {"queries": []}
    assert desk.refused("/v1/queries/slow", "DELETE").code == "unknown_query"


def test_it_may_be_sent_as_text(desk: Desk) -> None:
    kept = desk.ask("/v1/queries/slow", "PUT", SLOW.encode(), headers={"content-type": "text/plain"})
    assert (kept["q"], kept["note"]) == (SLOW, "the windows of slow are stored from now on")


def test_another_text_is_told_from_another_title_and_from_none(desk: Desk) -> None:
    desk.send("PUT", "/v1/queries/slow", {"q": SLOW})
    desk.now_ms += 60_000
    again = desk.send("PUT", "/v1/queries/slow", {"q": SLOW})
    assert again.status == 200
    assert b'"nothing changed"' in again.body
    titled = desk.ask("/v1/queries/slow", "PUT", {"q": SLOW, "title": "Slow servers"})
    assert (titled["note"], titled["title"]) == ("only the title changed", "Slow servers")
    other = desk.ask("/v1/queries/slow", "PUT", {"q": "FROM * SELECT latency WINDOW 5m"})
    assert other["note"].startswith("the windows of slow are stored anew from now on")
    assert (other["created"], other["changed"]) == ("2026-11-15T12:30:30.000Z", "2026-11-15T12:31:30.000Z")


@pytest.mark.parametrize(
    ("q", "code", "position", "detail"),
    [
        ("FROM * SELECT latency", "bad_query", 21, "a saved query needs a WINDOW"),
        ("FROM * SELECT latency WINDOW 1m SINCE 1h", "bad_query", 38, "a saved query has no SINCE"),
        ("FROM * SELECT latency WINDOW 1m UNTIL now", "bad_query", 38, "a saved query has no UNTIL"),
        ("FROM * SELECT latency WINDOW 1m BY host", "unknown_key", 35, "has no label 'host'"),
        ("FROM * SELECT latncy WINDOW 1m", "unknown_meter", 14, "did you mean latency?"),
        ("FROM * SELECT latency WINDOW 90s", "bad_step", 29, "not a multiple of this meter's grain"),
        ("FROM * SELECT latency WINDOW 1m COMPUTE p99", "unknown_function", 40, "keeps no percentiles"),
        ("FROM * SELECT latency WINDOW 1m COMPTE avg", "bad_query", 32, "did you mean COMPUTE?"),
    ],
)
def test_it_is_checked_like_any_query_and_the_error_points_at_the_place(
    desk: Desk, q: str, code: str, position: int, detail: str
) -> None:
    refused = desk.refused("/v1/queries/slow", "PUT", {"q": q})
    assert (refused.code, refused.extra["position"]) == (code, position)
    assert detail in refused.detail
    assert desk.ask("/v1/queries") == {"queries": []}


def test_names_are_as_those_of_events_and_unknown_ones_get_the_nearest(desk: Desk) -> None:
    assert desk.refused("/v1/queries/7th", "PUT", {"q": SLOW}).code == "bad_name"
    desk.send("PUT", "/v1/queries/slow", {"q": SLOW})
    refused = desk.refused("/v1/queries/slwo")
    assert (refused.status, refused.code) == (404, "unknown_query")
    assert "did you mean slow?" in refused.detail


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"q": 7}', b'{"q": "FROM * SELECT latency WINDOW 1m", "name": "slow"}']
)
def test_a_body_that_is_none_is_refused(desk: Desk, body: bytes) -> None:
    assert desk.refused("/v1/queries/slow", "PUT", body).code == "bad_json"


def test_a_zone_and_a_title_are_checked(desk: Desk) -> None:
    assert desk.refused("/v1/queries/slow", "PUT", {"q": SLOW, "tz": "Europe/Wien"}).code == "bad_zone"
    assert desk.refused("/v1/queries/slow", "PUT", {"q": SLOW, "title": "x" * 201}).extra["parameter"] == "title"
    assert desk.ask("/v1/queries/slow", "PUT", {"q": SLOW, "tz": "Europe/Vienna"})["tz"] == "Europe/Vienna"


def test_a_metric_is_saved_with_its_meter_so_that_it_stays_the_same(desk: Desk) -> None:
    desk.store.count("metrics", (("web-1", "cpu"), at("12:29:00"), [1.0]))
    assert desk.ask("/v1/queries/cpu", "PUT", {"q": "FROM * SELECT cpu WINDOW 1m"})["q"] == (
        "FROM * SELECT metrics.'cpu' WINDOW 1m"
    )
    # A meter may wait for a query to select it.
    assert desk.ask("/v1/queries/disk", "PUT", {"q": "FROM * SELECT metrics.disk WINDOW 1m"})["meter"] == "metrics"
    assert desk.refused("/v1/queries/disk", "PUT", {"q": "FROM * SELECT dsk WINDOW 1m"}).code == "unknown_meter"


def test_a_query_whose_meter_is_gone_says_so(desk: Desk) -> None:
    desk.send("PUT", "/v1/queries/slow", {"q": SLOW})
    del desk.store.tenants["main"]["latency"]
    shown = desk.ask("/v1/queries/slow")
    assert shown["meter"] == "latency"
    assert "there is no meter 'latency'" in shown["problem"]


def test_each_tenant_has_its_own(desk: Desk) -> None:
    desk.send("PUT", "/v1/queries/slow", {"q": SLOW})
    assert desk.refused("/v1/queries?tenant=acme").code == "unknown_tenant"
    desk.store.registry.add_tenant("acme")
    assert desk.ask("/v1/queries?tenant=acme") == {"queries": []}
    assert desk.refused("/v1/queries/slow?tenant=acme").code == "unknown_query"


@pytest.mark.parametrize(("clause", "position"), [("BY servers.room", 35), ("WHERE servers.room = 'north'", 38)])
def test_columns_of_tables_are_refused_in_so_many_words(desk: Desk, clause: str, position: int) -> None:
    desk.send(
        "PUT", "/v1/tables/servers?key=server", [{"server": "a", "room": "north"}], {"content-type": "application/json"}
    )
    refused = desk.refused("/v1/queries/slow", "PUT", {"q": f"FROM * SELECT latency WINDOW 1m {clause}"})
    assert (refused.status, refused.code) == (400, "bad_query")
    assert "servers.room is a column of a table, which stored windows cannot follow" in refused.detail
    assert refused.extra["position"] == position
