"""Check and preview of a definition: every mistake at once, the pipeline's own numbers, and nothing is saved."""

import pytest

from tallymark.log.protocol import Outgoing
from tallymark.query import preview


def append(desk, build, events, *, partition=0):
    count, content = build.payload(events)
    desk.log.append([Outgoing(partition, content, count)])


def view(id_, video="A", value=None, **props):
    sent = {"event": "view", "id": id_, "props": {"video": video, **props}}
    return sent if value is None else {**sent, "value": value}


def check(desk, definition, tenant="main"):
    return desk.ask(f"/v1/meters/check?tenant={tenant}", "POST", definition)


def shown(desk, definition, query=""):
    return desk.ask(f"/v1/meters/preview{query}", "POST", definition)


# check


def test_a_good_definition_is_shown_as_it_would_be_kept(desk):
    assert check(desk, {"name": "likes", "event": ["like"], "by": "video", "where": "ms>3"}) == {
        "ok": True,
        "meter": {"name": "likes", "event": "like", "by": ["video"], "compute": ["count"], "where": "ms > 3"},
        "changes": None,
        "keeps_numbers": None,
    }


def test_every_mistake_is_told_with_its_field(desk):
    told = check(desk, {"name": "Likes", "event": "li ke", "compute": ["avrage"], "where": "a = 'x' and", "byy": "a"})
    assert told["ok"] is False
    assert {(each["code"], each["field"]) for each in told["errors"]} == {
        ("bad_name", "name"),
        ("bad_event", "event"),
        ("unknown_aggregate", "compute[0]"),
        ("bad_where", "where"),
        ("unknown_key", "byy"),
    }
    (where,) = [each for each in told["errors"] if each["field"] == "where"]
    assert where["position"] == 11


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"\xff", b'"x"', b"null", b"[" * 10_000])
def test_what_is_no_definition_is_said(desk, body):
    told = check(desk, body)
    assert told["ok"] is False
    assert told["errors"][0]["code"] in ("bad_json", "wrong_type")


def test_what_a_change_would_change_and_whether_the_numbers_stay(desk):
    same = {"name": "views", "event": "view", "by": ["video", "country"]}
    assert check(desk, same)["changes"] == []
    more = check(desk, {**same, "compute": ["count", "sum"]})
    assert more["changes"] == [{"key": "compute", "before": ["count"], "after": ["count", "sum"]}]
    assert more["keeps_numbers"] is True
    assert check(desk, {**same, "by": ["video"]})["keeps_numbers"] is False


def test_built_in_meters_stay(desk):
    assert check(desk, {"name": "events", "event": "view"})["errors"][0]["code"] == "built_in"
    assert check(desk, {"name": "metrics", "event": "view"})["errors"][0]["code"] == "built_in"
    assert check(desk, {"name": "metrics", "event": "view"}, tenant="new")["errors"][0]["code"] == "built_in"
    assert check(desk, {"name": "events", "event": "*", "by": ["event"], "compute": ["count"]})["ok"] is True


def test_checking_saves_nothing(desk):
    before = desk.ask("/v1/meters")
    check(desk, {"name": "likes", "event": "like"})
    shown(desk, {"name": "likes", "event": "like"})
    assert desk.ask("/v1/meters") == before
    assert desk.store.registry.tenants() == ["main"]
    assert desk.refused("/v1/meters/check?tenat=x", "POST", {}).code == "unknown_parameter"


# preview


def test_the_numbers_are_those_that_the_pipeline_would_count(desk, build):
    append(desk, build, [view("1", "A", 2.0), view("2", "A", 4.0), view("3", "B", 1.0), {"event": "x", "id": "4"}])
    append(desk, build, [view("5", "A", 6.0)], partition=1)
    told = shown(desk, {"name": "likes", "event": "view", "by": "video", "compute": ["count", "avg", "p50"]})
    assert (told["minutes"], told["sampled"], told["events"], told["whole"]) == (5, 5, 4, True)
    assert told["total"] == {"count": 4, "avg": 3.25, "p50": pytest.approx(2, rel=0.011)}
    assert [(item["labels"], item["value"]["count"], item["value"]["avg"]) for item in told["top"]] == [
        ({"video": "A"}, 3, 4.0),
        ({"video": "B"}, 1, 1.0),
    ]
    assert told["series"] == 2


def test_copies_count_once(desk, build):
    append(desk, build, [view("1"), view("1"), view("2")])
    append(desk, build, [view("1")])
    told = shown(desk, {"name": "likes", "event": "view"})
    assert (told["sampled"], told["duplicates"], told["events"], told["total"]) == (4, 2, 2, {"count": 2})


def test_where_weights_decimals_distinct_and_each(desk, build):
    append(desk, build, [view("1", ms=5, user="u"), view("2", ms=50, user="u"), view("3", ms=500, user="v")])
    append(desk, build, [{"event": "sale", "id": "s", "value": 0.1}, {"event": "sale", "id": "t", "value": 0.2}])
    append(desk, build, [{"event": "metrics", "id": "m", "props": {"server": "w"}, "values": {"cpu": 1, "mem": 3}}])
    assert shown(desk, {"event": "view", "where": "ms > 10"})["total"] == {"count": 2}
    assert shown(desk, {"event": "view", "distinct": "user"})["total"]["distinct"] == 2
    assert shown(desk, {"weights": {"view": 1, "sale": 10}})["total"]["sum"] == 23
    money = desk.send("POST", "/v1/meters/preview", {"event": "sale", "compute": ["sum"], "decimals": 2}).body
    assert b'"total":{"sum":0.30}' in money
    each = shown(desk, {"event": "metrics", "by": "server", "each": "values", "compute": ["avg"]})
    assert {item["labels"]["metric"]: item["value"]["avg"] for item in each["top"]} == {"cpu": 1.0, "mem": 3.0}
    assert each["events"] == 1


def test_late_events_are_counted_as_the_meter_says(desk, build):
    append(desk, build, [view("1"), {**view("2"), "time": "2026-11-15T09:00:00Z"}])
    assert shown(desk, {"event": "view", "late": {"after": "1h", "then": "drop"}})["total"] == {"count": 1}
    assert shown(desk, {"event": "view", "late": {"after": "1h", "then": "count"}})["total"] == {"count": 2}


def test_only_events_of_the_tenant(desk, build):
    append(desk, build, [*build.of_tenant("acme", view("1"), view("2")), view("1")])
    definition = {"event": "view", "by": "video"}
    assert shown(desk, definition)["total"] == {"count": 1}
    assert shown(desk, definition, "?tenant=acme")["total"] == {"count": 2}
    assert shown(desk, definition, "?tenant=nobody")["sampled"] == 0


def test_nothing_to_count_yet(desk):
    told = shown(desk, {"event": "view", "by": "video", "compute": ["count", "avg"]})
    assert (told["events"], told["top"], told["series"]) == (0, [], 0)
    assert told["total"] == {"count": 0, "avg": None}


def test_a_bad_definition_is_refused_as_put_refuses_it(desk):
    problem = desk.refused("/v1/meters/preview", "POST", {"event": "view", "where": "a ="})
    assert (problem.status, problem.code) == (400, "bad_where")
    assert desk.refused("/v1/meters/preview?minutes=0", "POST", {"event": "view"}).code == "bad_number"
    assert desk.refused("/v1/meters/preview", "POST", b"{" * 100).code == "bad_json"
    assert desk.refused("/v1/meters/preview", "POST", b" " * 70_000).code == "too_large"


def test_what_does_not_decode_is_counted(desk, build):
    desk.log.append([Outgoing(0, b"not a frame", 3)])
    append(desk, build, [view("1")])
    told = shown(desk, {"event": "view"})
    assert (told["unreadable"], told["total"]) == (3, {"count": 1})


def test_a_busy_log_is_sampled_and_that_is_said(desk, build, monkeypatch):
    monkeypatch.setattr(preview, "BUDGET", preview.Budget(events=500, size=10**6, places=4))
    for number in range(50):
        append(desk, build, [view(f"{number}-{n}") for n in range(100)])
    told = shown(desk, {"event": "view"})
    assert told["whole"] is False
    assert 100 <= told["sampled"] <= 600
