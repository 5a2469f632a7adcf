"""One screen: the verdict first."""

import json

import pytest

from tallymark.cli import main
from tallymark.commands.freshness import footnote

GOOD = {
    "healthy": True, "problems": [], "received": 1005, "accepted": 1000, "refused": 5, "counted": 900, "duplicate": 90,
    "dead": 0, "aside": 0, "unmatched": 0, "in_flight": 10, "missing": 0, "events_per_second": 50.5,
    "lag_ms": {"p50": 120.0, "p95": 300.5, "p99": 400.0, "highest": 500.0, "events": 3000, "window_s": 60},
    "roles": [{"role": "collector", "state": "running", "address": "127.0.0.1:8080"}],
    "meters": [{"name": "events"}], "dead_letters": [], "freshness": {"complete_through": "2026-11-15T12:00:00Z"},
}  # fmt: skip


def test_all_is_well(fake_service, capsys):
    fake_service.answers["/v1/status"] = 200, GOOD
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("all is well")
    shown = {line.split()[0]: line.split()[-1] for line in lines if line}
    assert (shown["received"], shown["accepted"], shown["counted"], shown["duplicate"]) == (
        "1,005",
        "1,000",
        "900",
        "90",
    )
    assert len(lines) < 25
    assert len({len(line) for line in lines if line.split()[:1] in (["received"], ["counted"], ["duplicate"])}) == 1


def position(partition: int, behind: int) -> dict:
    return {"partition": partition, "first": 0, "end": 1012, "synced": 1010, "applied": 1010 - behind, "behind": behind}


def test_positions_of_each_partition_are_shown(fake_service, capsys):
    fake_service.answers["/v1/status"] = 200, {**GOOD, "positions": [position(0, 7), position(1, 0)]}
    assert main(["status"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    place = lines.index(["partition", "end", "synced", "applied", "behind"])
    rows = [["0", "1,012", "1,010", "1,003", "7"], ["1", "1,012", "1,010", "1,010", "0"]]
    assert lines[place + 1 : place + 4] == [*rows, []]


def test_of_many_partitions_those_furthest_behind_are_shown(fake_service, capsys):
    positions = [position(number, behind=5 if number in (17, 40) else 0) for number in range(64)]
    fake_service.answers["/v1/status"] = 200, {**GOOD, "positions": positions}
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "1,010" in line] == ["0", "1", "17", "40"]
    assert "and 60 more, none further behind: see --output json" in lines


@pytest.mark.parametrize(("dropping", "code"), [({"clients": 1, "dropped": 1200}, 1), ({"clients": 0}, 0), (None, 0)])
def test_what_clients_dropped_lately_is_one_line(fake_service, capsys, dropping, code):
    """Of all of them: the list shows only a hundred."""
    fake_service.answers["/v1/status"] = 200, GOOD
    fake_service.answers["/v1/clients"] = 200, {"known": 2, "totals": {"dropped": 9999}, "dropping": dropping}
    assert main(["status"]) == code
    told = [line for line in capsys.readouterr().out.splitlines() if "clients" in line]
    wanted = "! 1 clients dropped events within the last hour, 1,200 in all: see GET /v1/clients"
    assert told == ([wanted] if code else [])


def test_a_warning_is_told_and_does_not_fail(fake_service, capsys):
    fake_service.answers["/v1/status"] = 200, {**GOOD, "warnings": ["meter views has 100,001 series"]}
    assert main(["status"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("all is well")
    assert "  meter views has 100,001 series" in shown


def test_what_a_resumed_meter_missed_is_told_and_does_not_fail(fake_service, capsys):
    resumed = {"name": "views", "broken": None, "missed": 1234}
    fake_service.answers["/v1/status"] = 200, {**GOOD, "meters": [{"name": "events", "missed": 0}, resumed]}
    assert main(["status"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "all is well: nothing is late",
        "  meter views counts again, but lacks 1,234 events from when it was broken",
        "",
    ]


def test_a_broken_meter_is_told_once(fake_service, capsys):
    broken = {"name": "views", "broken": "no such column", "missed": 1234}
    problem = "meter views is broken: no such column; it has missed 1,234 events"
    fake_service.answers["/v1/status"] = 200, {**GOOD, "healthy": False, "problems": [problem], "meters": [broken]}
    assert main(["status"]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [f"! {problem}", ""]


@pytest.mark.parametrize(("loss", "told"), [(0, ""), (None, "loss unknown"), (3, "loss 3")])
def test_loss_is_told_under_a_table(capsys, loss, told):
    footnote({"freshness": {"lag_ms": 10, "loss": loss}})
    assert capsys.readouterr().err == (f"{told}: see `tallymark status`\n" if told else "")


def test_what_an_answer_leaves_out_is_told_under_its_table(capsys):
    footnote({"freshness": {"lag_ms": 10, "error": {"distinct": 0.0163}}, "left_out": 1200, "other": {"count": 5}})
    assert capsys.readouterr().err == (
        "approximate: distinct ±1.6 % (standard error); 1,200 more series are left out;"
        " 5 events are under __other__ (max_series): some may be of these labels\n"
    )


def test_what_waits_has_come_in_although_nothing_was_counted(fake_service, capsys):
    fake_service.answers["/v1/status"] = 200, {**GOOD, "lag_ms": None, "in_flight": 1}
    assert main(["status"]) == 0
    assert "lag       nothing was counted in the last minute\n" in capsys.readouterr().out


def test_an_unknown_loss_is_no_crash(fake_service, capsys):
    letters = [{"hop": "pipeline", "reason": "lost_by_retention", "events": 0}]
    lost = {"freshness": {"complete_through": None, "loss": None}, "dead_letters": letters, "problems": ["records"]}
    fake_service.answers["/v1/status"] = 200, {**GOOD, **lost, "healthy": False}
    assert main(["status"]) == 1
    assert "pipeline: lost_by_retention" in capsys.readouterr().out


def test_what_is_wrong_comes_first_and_fails(fake_service, capsys):
    dead = [{"hop": "pipeline", "reason": "damaged", "events": 3}]
    problems = ["pipeline is absent", "counts are 90.0 s behind"]
    fake_service.answers["/v1/status"] = 200, {**GOOD, "healthy": False, "problems": problems, "dead_letters": dead}
    assert main(["status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["! pipeline is absent", "! counts are 90.0 s behind"]
    assert any("damaged" in line for line in lines)


def test_several_tenants_are_shown_with_their_events_and_meters(fake_service, capsys):
    meters = [{"name": "events", "tenant": "main"}, {"name": "events", "tenant": "demo"}]
    resumed = {"name": "demo_views", "tenant": "demo", "broken": None, "missed": 12}
    tenants = [{"name": "main", "accepted": 1000}, {"name": "demo", "accepted": 25}]
    fake_service.answers["/v1/status"] = 200, {**GOOD, "tenants": tenants, "meters": [*meters, resumed]}
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  meter demo_views of the tenant demo counts again, but lacks 12 events from when it was broken"
    place = lines.index("tenants")
    assert [line.split() for line in lines[place + 1 : place + 3]] == [["1,000", "main"], ["25", "demo"]]
    assert lines[-2:] == ["meters    events", "          demo: events, demo_views"]


def test_what_meters_dropped_because_nobody_asks_for_it(fake_service, capsys):
    meters = [{"name": "hosts", "dropped_values": 239_760}, {"name": "spare", "tenant": "shop", "dropped_values": 0}]
    fake_service.answers["/v1/status"] = 200, {**GOOD, "meters": meters}
    assert main(["status"]) == 0
    assert "          meter hosts dropped 239,760 numbers that no saved query selects\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("queries", "told"),
    [
        ({"behind_ms": 0, "failing": 0}, "queries   40 saved, 12,000 windows stored, up to date"),
        ({"behind_ms": 61_500, "failing": 0}, "queries   40 saved, 12,000 windows stored, 61.5 s behind"),
        (
            {"behind_ms": 0, "failing": 2},
            "queries   40 saved, 12,000 windows stored, up to date, 2 cannot be evaluated",
        ),
        # Nobody knows what is complete: then nobody knows either whether something is behind.
        ({"behind_ms": None, "failing": 0}, "queries   40 saved, 12,000 windows stored"),
    ],
)
def test_saved_queries_are_one_line(fake_service, capsys, queries, told):
    fake_service.answers["/v1/status"] = 200, {**GOOD, "queries": {"saved": 40, "windows": 12_000, **queries}}
    assert main(["status"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == told


def test_without_saved_queries_there_is_no_line(fake_service, capsys):
    fake_service.answers["/v1/status"] = 200, GOOD
    assert main(["status"]) == 0
    assert "queries" not in capsys.readouterr().out


def test_a_saved_query_that_cannot_be_evaluated_is_told_first(fake_service, capsys):
    problem = "saved query slow cannot be evaluated: there is no meter latency"
    queries = {"saved": 1, "windows": 5, "behind_ms": None, "failing": 1}
    fake_service.answers["/v1/status"] = 200, {**GOOD, "healthy": False, "problems": [problem], "queries": queries}
    assert main(["status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"! {problem}"
    assert lines[-1] == "queries   1 saved, 5 windows stored, 1 cannot be evaluated"


def test_dead_letters_of_other_tenants_are_named(fake_service, capsys):
    letters = [
        {"hop": "collector", "reason": "too_old", "events": 1200, "tenant": "main"},
        {"hop": "collector", "reason": "bad_time", "events": 3, "tenant": "ghost"},
    ]
    fake_service.answers["/v1/status"] = 200, {**GOOD, "dead_letters": letters}
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("dead letters")
    shown = [line.strip() for line in lines[place + 1 : place + 3]]
    assert shown == ["1,200  collector: too_old", "3  collector: bad_time, tenant ghost"]


def test_tenants_are_a_table(fake_service, capsys):
    tenants = [{"name": "main", "events": 1200, "meters": 4}, {"name": "ghost", "events": 0, "meters": 0}]
    fake_service.answers["/v1/tenants"] = 200, {"tenants": tenants}
    assert main(["tenants"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["name", "events", "meters"], ["main", "1,200", "4"], ["ghost", "0", "0"]]
    assert main(["tenants", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == tenants
