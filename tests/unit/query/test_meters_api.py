"""Meters over HTTP."""

import pytest

from asking import at
from tallymark.meters import Meter
from tallymark.store.model import RegisteredMeter


def test_list_and_one(desk):
    names = [meter["name"] for meter in desk.ask("/v1/meters")["meters"]]
    assert names == ["events", "metrics", "views", "latency", "revenue"]
    views = desk.ask("/v1/meters/views")
    assert (views["event"], views["by"], views["version"], views["broken"]) == ("view", ["video", "country"], 1, None)


def test_put_makes_a_meter_that_can_be_asked(desk):
    answer = desk.send("PUT", "/v1/meters/clicks", {"event": "click", "by": ["page"]})
    assert answer.status == 201
    assert desk.ask("/v1/meters/clicks/total")["value"] == {"count": 0}
    assert "from now on" in desk.ask("/v1/meters/clicks", "PUT", {"event": "tap"})["note"]


def test_a_changed_definition_is_a_new_version_and_says_how_to_recount(desk):
    answer = desk.send("PUT", "/v1/meters/views", {"event": "view", "by": ["video"]})
    assert answer.status == 200
    told = desk.ask("/v1/meters/views", "PUT", {"event": "view", "by": ["country"]})
    assert told["version"] == 3
    assert "counts from now on" in told["note"]
    assert "meters recount views" in told["note"]


def test_the_same_definition_changes_nothing(desk):
    told = desk.ask("/v1/meters/views", "PUT", {"event": ["view"], "by": ["video", "country"]})
    assert (told["version"], told["note"]) == (1, "nothing changed")


def test_a_broken_meter_can_be_resumed_and_its_gap_stays(desk):
    desk.store.break_meter("views", "no such column", missed=7)
    told = desk.ask("/v1/meters/views/resume", "POST")
    assert (told["broken"], told["missed"]) == (None, 7)
    assert "counts again from the next batch on; the 7 events that it missed stay on record" in told["note"]
    shown = desk.ask("/v1/meters/views")
    assert (shown["missed"], shown["gaps"]) == (7, [{"partition": 0, "start": 10, "end": 20, "missed": 7}])
    assert desk.ask("/v1/meters/views/resume", "POST")["note"] == "views is not broken; nothing changed"
    assert desk.refused("/v1/meters/veiws/resume", "POST").code == "unknown_meter"


def test_delete(desk):
    assert desk.ask("/v1/meters/views", "DELETE")["deleted"] == "views"
    assert desk.refused("/v1/meters/views/total").status == 404
    assert desk.refused("/v1/meters/views", "DELETE").status == 404


@pytest.mark.parametrize("name", ["events", "metrics"])
@pytest.mark.parametrize(("method", "body"), [("PUT", {"event": "view"}), ("DELETE", None)])
def test_the_built_in_meters_stay(desk, name, method, body):
    problem = desk.refused(f"/v1/meters/{name}", method, body)
    assert (problem.status, problem.code) == (409, "built_in")
    assert f"{name!r} is built in" in problem.detail
    assert desk.ask(f"/v1/meters/{name}")["built_in"]


@pytest.mark.parametrize("name", ["events", "metrics"])
def test_what_get_shows_of_a_built_in_meter_can_be_sent_back(desk, name):
    keys = ("name", "event", "by", "compute", "each")
    shown = {key: value for key, value in desk.ask(f"/v1/meters/{name}").items() if key in keys}
    assert desk.ask(f"/v1/meters/{name}", "PUT", shown)["note"] == "nothing changed"


def test_a_users_own_meter_of_metrics_can_be_changed_and_deleted(desk):
    """It was there before there was one built in."""
    desk.store.tenants["main"]["metrics"] = RegisteredMeter(
        9, 1, Meter("metrics", ("metrics",), ("host",)), created_ms=1
    )
    assert not desk.ask("/v1/meters/metrics")["built_in"]
    assert desk.ask("/v1/meters/metrics", "PUT", {"event": "metrics", "by": ["rack"]})["version"] == 2
    assert desk.ask("/v1/meters/metrics", "DELETE")["deleted"] == "metrics"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"[" * 50_000, 400, "not JSON"),
        (b"[]", 400, "mapping"),
        ({"event": "view", "compute": ["cuont"]}, 400, "did you mean count?"),
        ({"event": "view", "bye": ["a"]}, 400, "did you mean by?"),
        ({"name": "other", "event": "view"}, 400, "other"),
        (b"x" * 64_001, 413, "64,001"),
    ],
)
def test_wrong_definitions(desk, body, status, words):
    problem = desk.refused("/v1/meters/clicks", "PUT", body)
    assert problem.status == status
    assert words in problem.detail


def test_every_flaw_is_listed(desk):
    problem = desk.refused("/v1/meters/clicks", "PUT", {"event": "view", "bye": ["a"], "decimals": 99})
    assert [flaw["code"] for flaw in problem.extra["errors"]] == ["unknown_key", "bad_decimals"]


def test_a_version_that_only_computes_more_says_that_its_numbers_go_on(desk):
    desk.ask("/v1/meters/sales", "PUT", {"event": "sale", "compute": ["count"]})
    desk.store.count("sales", ((), 60, [None, None]))
    told = desk.ask("/v1/meters/sales", "PUT", {"event": "sale", "compute": ["count", "max"]})
    assert told["note"] == (
        "version 2 goes on with the numbers of version 1; max can be asked for what is counted from now on: "
        "add from=2026-11-15T12:31:00Z"
    )
    assert desk.ask("/v1/meters/sales/total")["value"] == {"count": 2, "max": None}
    told = desk.ask("/v1/meters/sales", "PUT", {"event": "sale", "compute": ["count"]})
    assert told["note"] == "version 3 goes on with the numbers of version 2"


def test_a_function_that_a_later_version_added_says_since_when_it_is_computed(desk):
    desk.ask("/v1/meters/sales", "PUT", {"event": "sale", "by": ["shop"], "compute": ["count"]})
    assert "since" not in desk.ask("/v1/meters/sales")
    desk.store.count("sales", (("A",), at("12:29:00"), [5.0]))
    desk.ask("/v1/meters/sales", "PUT", {"event": "sale", "by": ["shop"], "compute": ["count", "max"]})
    desk.now_ms += 120_000
    desk.store.count("sales", (("B",), at("12:31:00"), [7.0]))
    since = {"max": "2026-11-15T12:30:30.000Z"}
    assert desk.ask("/v1/meters/sales")["since"] == since
    for asked in ("total", "total?fn=max", "series?step=1m", "top?by=shop", "top?by=shop&fn=max"):
        assert desk.ask(f"/v1/meters/sales/{asked}")["since"] == since, asked
    # Where nothing is null for that reason, nothing is said of it: the only null here is a minute that is not over.
    for asked in ("total?fn=count", "total?from=2026-11-15T12:31:00Z", "total?shop=B", "top?by=shop&fn=max&k=1"):
        assert "since" not in desk.ask(f"/v1/meters/sales/{asked}"), asked
    assert "since" not in desk.ask("/v1/meters/sales/series?step=1m&from=2026-11-15T12:31:00Z")
