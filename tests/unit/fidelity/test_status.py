"""Is anything late or lost? One document."""

import json
import os
from dataclasses import replace

import pytest

from tallymark.log.protocol import Outgoing
from tallymark.meters.model import Late, Meter
from tallymark.store.model import DeadLetter, Lag, Ledger
from tallymark.store.windows import Lineage, ShareChange


def running(desk, *roles, pid=None):
    desk.settings.run_folder.mkdir(parents=True, exist_ok=True)
    for role in roles:
        place = {"pid": pid or os.getpid(), "address": None, "ready_ms": desk.now_ms}
        (desk.settings.run_folder / f"{role}.json").write_text(json.dumps(place))


@pytest.fixture
def whole(desk):
    """Ten events in two partitions, of which the pipeline has taken up eight."""
    running(desk, "collector", "pipeline", "keeper", "query")
    desk.log.append([Outgoing(0, b"", 5), Outgoing(1, b"", 3), Outgoing(1, b"", 2)])
    desk.dead.append([Outgoing(0, b"", 4)])
    desk.store.positions = {0: 1, 1: 1}
    desk.store.ledgers = {
        0: Ledger(accepted=5, counted=3, duplicate=1, dead=1),
        1: Ledger(accepted=3, counted=1, aside=1, unmatched=1),
    }
    return desk


def test_both_equations_hold(whole):
    told = whole.ask("/v1/status")
    assert told["received"] == told["accepted"] + told["refused"] == 14
    terms = ("counted", "duplicate", "dead", "aside", "unmatched", "in_flight", "missing")
    assert [told[term] for term in terms] == [4, 1, 1, 1, 1, 2, 0]
    assert told["accepted"] == sum(told[term] for term in terms) == 10


def test_the_terms_of_the_sum_are_named_for_whoever_shows_them(whole):
    told = whole.ask("/v1/status")
    assert sum(told[term["name"]] for term in told["terms"]) == told["accepted"] == 10
    assert [term["label"] for term in told["terms"]] == [
        "counted",
        "duplicate",
        "dead letters",
        "set aside",
        "in no meter",
        "in flight",
        "missing",
    ]
    assert all(term["meaning"] for term in told["terms"])


def test_late_events_are_told_and_are_no_term_of_the_sum(whole):
    whole.store.ledgers[0] = Ledger(accepted=5, counted=3, duplicate=1, dead=1, late=2)
    told = whole.ask("/v1/status")
    assert (told["late"], told["missing"]) == (2, 0)
    assert "late" not in [term["name"] for term in told["terms"]]


def test_positions_lag_and_rate(whole):
    whole.store.lags = [Lag(whole.now_ms - 1000, 500, 100.0, 200.0, 300.0, 400.0)]
    told = whole.ask("/v1/status")
    assert told["positions"][1] == {
        "partition": 1,
        "first": 0,
        "end": 2,
        "synced": 2,
        "applied": 1,
        "behind": 1,
        "events": 5,
    }
    assert told["lag_ms"] == {"p50": 100, "p95": 200, "p99": 300, "highest": 400, "events": 500, "window_s": 60}
    assert told["events_per_second"] == 100.0
    whole.now_ms += 10_000
    assert whole.ask("/v1/status")["events_per_second"] == 0.0


def test_what_is_written_and_not_yet_durable_is_told_apart(whole):
    whole.log.unsynced = {1: 1}
    first, second = whole.ask("/v1/status")["positions"]
    assert first["end"] == first["synced"] == 1
    assert (second["end"], second["synced"], second["applied"], second["behind"]) == (2, 1, 1, 0)


def test_all_is_well(desk):
    running(desk, "collector", "pipeline", "keeper", "query")
    told = desk.ask("/v1/status")
    assert (told["healthy"], told["problems"]) == (True, [])


def test_what_is_wrong_is_said_in_sentences(whole):
    (whole.settings.run_folder / "pipeline.json").unlink()
    whole.store.ledgers[0] = Ledger(accepted=5, counted=3)
    whole.store.break_meter("views", "no such column")
    whole.now_ms += 60_000
    told = whole.ask("/v1/status")
    assert not told["healthy"]
    assert told["problems"] == [
        "pipeline is absent",
        "2 accepted events are unaccounted for: they are in no term of the ledger",
        "counts are 60.0 s behind",
        "meter views is broken: no such column",
    ]


def test_a_partition_that_waits_for_a_newer_version_is_said_as_long_as_its_pipeline_runs(desk):
    running(desk, "collector", "pipeline", "keeper", "query")
    desk.store.heartbeats.beat("pipeline", {"blocked": ["partition 0 stands still at offset 5"]}, now_ms=desk.now_ms)
    assert desk.ask("/v1/status")["problems"] == ["partition 0 stands still at offset 5"]
    desk.store.heartbeats.beat("pipeline", {"next": {}}, now_ms=desk.now_ms)
    assert desk.ask("/v1/status")["problems"] == []


@pytest.mark.parametrize(
    ("file", "beat_age_ms", "state"),
    [
        ("here", None, "running"),
        ("here", 1_000, "running"),
        ("here", 60_000, "silent"),
        ("dead", None, "absent"),
        ("nonsense", None, "absent"),
        (None, 1_000, "running"),
        (None, 60_000, "silent"),
        (None, None, "absent"),
    ],
)
def test_states_of_a_role(desk, file, beat_age_ms, state):
    if beat_age_ms is not None:
        desk.store.heartbeats.beat("keeper", {"folded": 7}, now_ms=desk.now_ms - beat_age_ms)
    if file:
        running(desk, "keeper")
        place = desk.settings.run_folder / "keeper.json"
        found = {"pid": os.getpid(), "address": None, "ready_ms": desk.now_ms - 120_000}
        if file == "dead":
            found["pid"] = _finished_process()
        place.write_text("{" if file == "nonsense" else json.dumps(found))
    (keeper,) = [each for each in desk.ask("/v1/status")["roles"] if each["role"] == "keeper"]
    assert keeper["state"] == state


@pytest.mark.parametrize(("file", "state"), [("here", "running"), ("dead", "silent"), (None, "silent")])
def test_a_beat_from_before_the_clock_was_set_back_proves_nothing(desk, file, state):
    desk.store.heartbeats.beat("keeper", {}, now_ms=desk.now_ms + 3_600_000)
    if file:
        running(desk, "keeper", pid=os.getpid() if file == "here" else _finished_process())
    (keeper,) = [each for each in desk.ask("/v1/status")["roles"] if each["role"] == "keeper"]
    assert (keeper["state"], keeper["beat_age_ms"]) == (state, None)


AHEAD = "the log's clock is 3,600 s ahead of this machine's, which was set back; it keeps the pace of real time"
BEHIND = "the log's clock is 660 s behind this machine's, which was set forward; it keeps the pace of real time"


@pytest.mark.parametrize(("back_ms", "told"), [(5_000, []), (3_600_000, [AHEAD])])
def test_a_clock_that_was_set_back_is_said(desk, back_ms, told):
    running(desk, "collector", "pipeline", "keeper", "query")
    desk.log.append([Outgoing(0, b"", 1), Outgoing(1, b"", 1)])
    desk.now_ms -= back_ms
    for positions in ({0: 1, 1: 1}, {0: 1}):  # also with something waiting: this is no log that cannot be read
        desk.store.positions = positions
        assert [problem.split(", so that")[0] for problem in desk.ask("/v1/status")["problems"]] == told


@pytest.mark.parametrize(("ahead_ms", "told"), [(5_000, []), (-5_000, []), (3_600_000, [AHEAD]), (-660_000, [BEHIND])])
def test_a_log_whose_clock_is_not_the_wall_clock_says_so_and_still_tells_how_fresh_it_is(desk, ahead_ms, told):
    running(desk, "collector", "pipeline", "keeper", "query")
    wall_ms = desk.now_ms
    desk.now_ms += ahead_ms
    desk.log.append([Outgoing(0, b"", 1), Outgoing(1, b"", 1)])
    desk.now_ms, desk.log.clock_ahead_ms = wall_ms, ahead_ms
    for positions, lag_ms in (({0: 1, 1: 1}, 0), ({0: 1}, 4_000)):
        desk.now_ms = wall_ms + lag_ms
        desk.store.positions = positions
        found = desk.ask("/v1/status")
        assert [problem.split(", so that")[0] for problem in found["problems"]] == told
        assert found["healthy"] is not bool(told)
        assert found["freshness"]["lag_ms"] == lag_ms
    desk.now_ms = wall_ms + 11_000
    assert "counts are 11.0 s behind" in desk.ask("/v1/status")["problems"]


def test_brokers_whose_clocks_are_far_ahead_are_said(desk):
    running(desk, "collector", "pipeline", "keeper", "query")
    desk.log.slack_ms = 30_000
    desk.log.append([Outgoing(0, b"", 1)])
    desk.store.positions = {0: 1}
    for ahead_ms, told in ((35_000, 0), (35_001, 1)):
        desk.now_ms -= ahead_ms
        problems = desk.ask("/v1/status")["problems"]
        assert len([problem for problem in problems if "ahead of this machine's clock" in problem]) == told
        desk.now_ms += ahead_ms


@pytest.mark.parametrize(("age_ms", "healthy"), [(60_000, False), (3_600_001, True)])
def test_dead_letters_are_a_problem_for_an_hour(whole, age_ms, healthy):
    whole.store.positions = {0: 1, 1: 2}
    whole.store.last_dead_ms = {
        ("pipeline", "undecodable"): whole.now_ms - age_ms,
        ("collector", "bad_time"): whole.now_ms,
    }
    told = whole.ask("/v1/status")
    assert (told["healthy"], told["dead"]) == (healthy, 1)
    if not healthy:
        assert told["problems"] == [
            "within the last hour, accepted events could not be counted: 1 in total are dead letters"
        ]


@pytest.mark.parametrize(("age_ms", "healthy"), [(60_000, False), (3_600_001, True)])
def test_events_set_aside_are_a_problem_of_their_own_for_an_hour(whole, age_ms, healthy):
    whole.store.positions = {0: 1, 1: 2}
    whole.store.last_dead_ms = {("pipeline", "maybe_duplicate"): whole.now_ms - age_ms}
    told = whole.ask("/v1/status")
    assert told["healthy"] == healthy
    if not healthy:
        (problem,) = told["problems"]
        assert "too late to tell whether they were counted" in problem
        assert f"{told['aside']} in total are set aside" in problem


def test_records_that_retention_deleted_stay_a_problem(desk):
    running(desk, "collector", "pipeline", "keeper", "query")
    desk.store.letters = {("pipeline", "lost_by_retention"): 0}
    told = desk.ask("/v1/status")
    assert not told["healthy"]
    assert told["problems"] == [
        "log retention deleted records before they were counted (see the dead letters); the counts lack their events"
    ]


def test_a_role_that_has_just_started_need_not_have_beaten_yet(desk):
    desk.store.heartbeats.beat("keeper", {}, now_ms=desk.now_ms - 3_600_000)
    running(desk, "keeper")
    (keeper,) = [each for each in desk.ask("/v1/status")["roles"] if each["role"] == "keeper"]
    assert keeper["state"] == "running"


def test_dead_letters_and_meters(desk):
    desk.store.letters = {("collector", "bad_time"): 3}
    told = desk.ask("/v1/status")
    assert told["dead_letters"] == [{"hop": "collector", "reason": "bad_time", "events": 3}]
    assert {
        "name": "views",
        "tenant": "main",
        "version": 1,
        "labels": ["video", "country"],
        "compute": ["count"],
        "broken": None,
        "missed": 0,
    } in told["meters"]


def test_a_meter_is_a_problem_while_it_is_broken_and_what_it_missed_stays_on_record(desk):
    running(desk, "collector", "pipeline", "keeper", "query")
    desk.store.break_meter("views", "no such column", missed=1234)
    assert desk.ask("/v1/status")["problems"] == ["meter views is broken: no such column; it has missed 1,234 events"]
    desk.store.registry.resume_meter("main", "views")
    told = desk.ask("/v1/status")
    assert (told["healthy"], told["problems"]) == (True, [])
    assert [each["missed"] for each in told["meters"] if each["name"] == "views"] == [1234]


def test_rates_are_those_between_readings(desk):
    for applied in (0, 100, 400):
        desk.store.ledgers = {0: Ledger(accepted=applied)}
        desk.rates.take()
        desk.now_ms += 2000
    assert [each["applied"] for each in desk.ask("/v1/status")["recent"]] == [50.0, 150.0]


def _finished_process():
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    return child


def test_tenants_are_told_apart_only_where_there_are_several(desk):
    assert "tenants" not in desk.ask("/v1/status")
    desk.store.registry.put_meter("acme", Meter("views", ("view",)), now_ms=1)
    desk.store.ledgers = {0: Ledger(accepted=7, counted=6, duplicate=1)}
    desk.store.tenant_ledgers = {
        "main": Ledger(accepted=2, counted=2),
        "demo": Ledger(accepted=5, counted=4, duplicate=1),
    }
    told = desk.ask("/v1/status")
    assert [(each["name"], each["accepted"], each["counted"]) for each in told["tenants"]] == [
        ("main", 2, 2),
        ("acme", 0, 0),
        ("demo", 5, 4),
    ]
    assert (told["counted"], told["duplicate"]) == (6, 1)
    assert [each["tenant"] for each in told["meters"] if each["name"] == "views"] == ["acme", "main"]


def test_a_broken_meter_of_another_tenant_is_named_with_it(desk):
    desk.store.registry.put_meter("acme", Meter("views", ("view",)), now_ms=1)
    desk.store.break_meter("views", "no such column", missed=4, tenant="acme")
    assert (
        "meter views of the tenant acme is broken: no such column; it has missed 4 events"
        in desk.ask("/v1/status")["problems"]
    )


def test_dead_letters_name_their_tenant_where_there_are_several(desk):
    desk.store.bury(DeadLetter("collector", "too_old", "", 2, b"", 5))
    assert desk.ask("/v1/status")["dead_letters"] == [{"hop": "collector", "reason": "too_old", "events": 2}]
    desk.store.bury(DeadLetter("collector", "bad_time", "", 3, b"", 5, tenant="ghost"))
    told = desk.ask("/v1/status")
    assert told["dead_letters"] == [
        {"hop": "collector", "reason": "too_old", "events": 2, "tenant": "main"},
        {"hop": "collector", "reason": "bad_time", "events": 3, "tenant": "ghost"},
    ]
    assert [(each["name"], each["accepted"]) for each in told["tenants"]] == [("main", 0), ("ghost", 0)]


def test_late_events_of_each_meter_by_what_became_of_them(whole):
    for name, then in (("a", "count"), ("b", "aside"), ("c", "drop")):
        whole.store.registry.put_meter("main", Meter(name, ("e",), late=Late(3600, then)), now_ms=0)
        whole.store.count(name, ((), 60, [None] * 5))
        whole.store.count(name, ((), 60, [None] * 2), ((), 120, [None]), late=True)
    meters = {each["name"]: each for each in whole.ask("/v1/status")["meters"]}
    assert [meters[name]["late_events"] for name in "abc"] == [{"counted": 3}, {"aside": 3}, {"dropped": 3}]
    assert "late_events" not in meters["views"]
    assert whole.ask("/v1/meters/b")["late_events"] == {"aside": 3}
    assert "late_events" not in whole.ask("/v1/meters/views")


def test_many_series_without_a_limit_are_a_warning_and_no_problem(whole):
    whole.store.registry.put_meter("main", Meter("bounded", ("e",), by=("user",), max_series=1000), now_ms=0)
    meters = {each.meter.name: each for each in whole.store.registry.meters("main")}
    series = {str(meters["views"].set_id): 100_001, str(meters["bounded"].set_id): 200_000}
    whole.store.heartbeats.beat("keeper", {"series": series}, now_ms=whole.now_ms)
    told = whole.ask("/v1/status")
    (warning,) = told["warnings"]
    assert warning.startswith("meter views has 100,001 series and no max_series")
    assert "video, country" in warning
    assert told["healthy"]
    assert {each["name"]: each.get("series") for each in told["meters"]}["bounded"] == 200_000
    assert whole.ask("/v1/meters/views")["series"] == 100_001
    assert "series" not in whole.ask("/v1/meters/latency")


def test_few_series_are_no_warning(whole):
    views = whole.store.registry.meter("main", "views")
    whole.store.heartbeats.beat("keeper", {"series": {str(views.set_id): 100_000}}, now_ms=whole.now_ms)
    assert whole.ask("/v1/status")["warnings"] == []


def lineage(desk, name="slow", **more):
    now_s = desk.now_ms // 1000
    own = Lineage(len(name), "main", name, "digest", 7680, now_s - 600, now_s - 120, now_s - 60, now_s - 120, 8)
    desk.store.windows.write([ShareChange(own.share, 1, 1, [replace(own, **more)])])


def test_saved_queries_say_how_far_they_are_and_that_they_are_far_behind(desk):
    running(desk, "collector", "pipeline", "keeper", "query")
    assert "queries" not in desk.ask("/v1/status")
    lineage(desk)
    lineage(desk, "old", dropped=True)
    told = desk.ask("/v1/status")
    assert told["queries"] == {"saved": 1, "windows": 8, "behind_ms": 60_000, "failing": 0}
    assert told["problems"] == [
        "saved queries are 60 s behind: windows that are complete are not stored yet,"
        " and are computed each time they are asked for"
    ]
    lineage(desk, due_s=desk.now_ms // 1000 - 1)
    assert desk.ask("/v1/status")["problems"] == []


def test_saved_queries_that_cannot_be_evaluated_are_named(desk):
    running(desk, "collector", "pipeline", "keeper", "query")
    for number in range(7):
        lineage(desk, "q" * (number + 1), problem="its meter is gone")
    told = desk.ask("/v1/status")
    assert told["problems"][0] == "saved query q cannot be evaluated: its meter is gone"
    assert told["problems"][-1] == "2 more saved queries cannot be evaluated"
    assert len(told["problems"]) == 6
    assert told["queries"]["failing"] == 7
