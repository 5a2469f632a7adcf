"""Meters that store only what saved queries select, over HTTP."""

import pytest

from asking import Desk, at

HOSTS = {"event": "host", "by": ["server"], "each": "values", "compute": ["count", "avg"], "keep": "queried"}
CPU = "FROM * SELECT hosts.'cpu' WINDOW 1m"
NOW = "2026-11-15T12:30:30.000Z"


@pytest.fixture
def hosts(desk: Desk) -> Desk:
    desk.ask("/v1/meters/hosts", "PUT", HOSTS)
    return desk


def test_what_is_kept_follows_the_saved_queries(hosts: Desk) -> None:
    assert hosts.ask("/v1/meters/hosts")["kept"] == {}
    saved = hosts.ask("/v1/queries/cpu", "PUT", {"q": CPU})
    assert (saved["meter"], saved["problem"]) == ("hosts", None)
    assert hosts.ask("/v1/meters/hosts")["kept"] == {"cpu": NOW}
    hosts.now_ms += 60_000
    hosts.ask("/v1/queries/disk", "PUT", {"q": "FROM * SELECT disk WINDOW 1m"})
    shown = hosts.ask("/v1/meters/hosts")
    assert (shown["kept"], shown["version"]) == ({"cpu": NOW, "disk": "2026-11-15T12:31:30.000Z"}, 3)
    hosts.ask("/v1/queries/cpu", "DELETE")
    assert list(hosts.ask("/v1/meters/hosts")["kept"]) == ["disk"]


def test_a_query_of_all_metrics_keeps_them_all(hosts: Desk) -> None:
    hosts.ask("/v1/queries/all", "PUT", {"q": "FROM * SELECT hosts WINDOW 1m BY metric"})
    shown = hosts.ask("/v1/meters/hosts")
    assert (shown["kept"], shown["every_metric_since"]) == ({}, NOW)


def test_a_meter_begins_with_what_is_saved_already(hosts: Desk) -> None:
    hosts.ask("/v1/queries/cpu", "PUT", {"q": CPU})
    hosts.ask("/v1/meters/hosts", "PUT", {**HOSTS, "keep": "all"})
    assert "kept" not in hosts.ask("/v1/meters/hosts")
    again = hosts.ask("/v1/meters/hosts", "PUT", HOSTS)
    assert (list(again["kept"]), again["version"]) == (["cpu"], 4)  # not one version without it, then another
    assert again["note"] == "version 4 goes on with the numbers of version 3"


def test_what_get_shows_can_be_put_back(hosts: Desk) -> None:
    hosts.ask("/v1/queries/cpu", "PUT", {"q": CPU})
    shown = hosts.ask("/v1/meters/hosts")
    definition = {key: shown[key] for key in ("name", *HOSTS)}
    assert definition == {"name": "hosts", **HOSTS}
    assert hosts.ask("/v1/meters/hosts", "PUT", definition)["note"] == "nothing changed"
    assert hosts.refused("/v1/meters/hosts", "PUT", {**HOSTS, "kept": ["cpu"]}).code == "unknown_key"


def test_what_was_dropped_is_told_with_the_meter_and_the_status(hosts: Desk) -> None:
    hosts.store.count("hosts", (("", ""), at("12:00:00"), [None] * 5), dropped=True)
    assert hosts.ask("/v1/meters/hosts")["dropped_values"] == 5
    told = {each["name"]: each.get("dropped_values") for each in hosts.ask("/v1/status")["meters"]}
    assert (told["hosts"], told["metrics"]) == (5, None)
    assert hosts.ask("/v1/meters/hosts/total")["value"]["count"] == 0


def test_an_answer_says_since_when_its_metric_is_stored(hosts: Desk) -> None:
    hosts.ask("/v1/queries/cpu", "PUT", {"q": CPU})
    hosts.store.count("hosts", (("s1", "cpu"), at("12:30:00"), [1.5]), (("s1", "disk"), at("12:30:00"), [9.0]))
    asked = hosts.ask("/v1/meters/hosts/total?metric=cpu&metric=disk")
    assert (asked["value"]["count"], asked["kept_since"]) == (2, {"cpu": NOW, "disk": None})  # disk no longer is
    assert "kept_since" not in hosts.ask("/v1/meters/hosts/total")
    hosts.ask("/v1/queries/cpu", "DELETE")
    assert hosts.ask("/v1/query?q=FROM * SELECT hosts.cpu SINCE 1h")["kept_since"] == {"cpu": None}


def test_a_question_about_what_is_not_stored_says_how_to_get_it_stored(hosts: Desk) -> None:
    hosts.ask("/v1/queries/cpu", "PUT", {"q": CPU})
    waiting = hosts.ask("/v1/query?q=FROM * SELECT hosts.cpu SINCE 1h")
    assert (waiting["series"][0]["points"][0]["count"], waiting["kept_since"]) == (None, {"cpu": NOW})
    for select in ("hosts.cpuu", "cpuu"):
        refused = hosts.refused(f"/v1/query?q=FROM * SELECT {select} SINCE 1h")
        assert (refused.status, refused.code, refused.extra["position"]) == (404, "unknown_metric", 14)
        assert refused.detail == (
            "the meter 'hosts' stores only metrics that a saved query selects, and none selects 'cpuu';"
            " save one that does, and it is stored from then on; did you mean cpu?"
        )


def test_the_built_in_meter_of_metrics_can_store_what_is_queried_too(desk: Desk) -> None:
    desk.ask("/v1/queries/cpu", "PUT", {"q": "FROM * SELECT metrics.cpu WINDOW 1m"})
    shown = desk.ask("/v1/meters/metrics")
    definition = {key: shown[key] for key in ("event", "by", "each", "compute")}
    after = desk.ask("/v1/meters/metrics", "PUT", {**definition, "keep": "queried"})
    assert (after["built_in"], list(after["kept"])) == (True, ["cpu"])
    assert after["note"] == "version 2 goes on with the numbers of version 1"
    assert desk.refused("/v1/meters/metrics", "PUT", {**definition, "by": ["host"]}).code == "built_in"
    assert desk.ask("/v1/meters/metrics?tenant=new", "PUT", {**definition, "keep": "queried"})["kept"] == {}
    assert desk.refused("/v1/meters/metrics?tenant=newer", "PUT", definition).code == "built_in"


def test_resuming_a_broken_meter_selects_what_was_saved_meanwhile(hosts: Desk) -> None:
    hosts.store.break_meter("hosts", "it failed")
    hosts.ask("/v1/queries/cpu", "PUT", {"q": CPU})
    assert hosts.ask("/v1/meters/hosts")["broken"] == "it failed"
    hosts.ask("/v1/meters/hosts/resume", "POST")
    assert list(hosts.ask("/v1/meters/hosts")["kept"]) == ["cpu"]
