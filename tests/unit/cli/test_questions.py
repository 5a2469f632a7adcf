"""Asking and sending, against a small service."""

import json

import pytest

from tallymark.cli import main
from tallymark.meters import Meter, from_mapping, to_mapping
from tallymark.meters.model import METRICS, Late


@pytest.fixture
def views(fake_service):
    fake_service.meters["views"] = {"name": "views", "event": "view", "by": ["video", "country"], "compute": ["count"]}
    for number, (video, country) in enumerate([("A", "KR"), ("A", "DE"), ("B", "KR")]):
        props = {"video": video, "country": country}
        fake_service.events["view", str(number)] = {"event": "view", "time": 60_000, "value": 2, "props": props}
    return fake_service


def test_send_makes_one_event_with_an_id_and_a_time(fake_service, capsys):
    assert main(["send", "view", "video=A", "--value", "3", "n=2", "zip=007", "ok=true"]) == 0
    assert capsys.readouterr().out == "1 accepted\n"
    ((_, identity), event), *rest = fake_service.events.items()
    assert rest == []
    assert len(identity) == 32
    assert event["props"] == {"video": "A", "n": 2, "zip": "007", "ok": True}
    assert event["value"] == 3
    assert event["time"] > 1_700_000_000_000


def test_send_gives_the_key_as_bearer(fake_service, monkeypatch):
    monkeypatch.setenv("TALLYMARK_KEY", "secret")
    assert main(["send", "view"]) == 0
    assert fake_service.requests[-1][2]["authorization"] == "Bearer secret"


@pytest.mark.parametrize("fate", ["503", "silent", "half"])
def test_send_retries_with_the_same_id(fake_service, fate, tmp_path):
    fake_service.script = [fate]
    lines = [json.dumps({"event": "view", "id": str(number), "time": 0, "props": {}}) for number in range(6)]
    (tmp_path / "f").write_text("\n".join(lines))
    assert main(["send", "--file", str(tmp_path / "f")]) == 0
    assert len(fake_service.events) == 6
    assert len(fake_service.requests) == 2
    resent = fake_service.requests[1][3].splitlines()
    assert len(resent) == (3 if fate == "half" else 6)


@pytest.mark.parametrize("fate", ["503", "half"])
def test_a_retried_batch_without_ids_carries_the_same_idempotency_key(fake_service, tmp_path, fate):
    fake_service.script = [fate]
    (tmp_path / "f").write_text('{"event": "view"}\n{"event": "click"}\n')
    assert main(["send", "--file", str(tmp_path / "f")]) == 0
    first, second = (request[2]["idempotency-key"] for request in fake_service.requests)
    assert first == second


def test_a_file_is_sent_in_batches_and_refusals_name_their_line(fake_service, tmp_path, capsys):
    lines = [json.dumps({"event": "view", "id": str(number)}) for number in range(2500)]
    lines[1200] = json.dumps({"event": "bad", "id": "x"})
    lines[7] = "{nonsense"
    lines[9] = ""
    (tmp_path / "f.ndjson").write_text("\n".join(lines))
    assert main(["send", "--file", str(tmp_path / "f.ndjson"), "--output", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["accepted"], told["rejected"]) == (2497, 2)
    assert {(error["place"], error["code"]) for error in told["errors"]} == {(8, "bad_json"), (1201, "bad_event")}
    assert len(fake_service.requests) == 3


def test_all_refused_is_reported_with_the_reason(fake_service, capsys):
    assert main(["send", "bad"]) == 1
    told = capsys.readouterr()
    assert told.out == "0 accepted, 1 rejected\n"
    assert "bad_event: is bad" in told.err


def test_waiting_in_vain_fails_and_says_so(fake_service, capsys):
    assert main(["send", "view", "--wait", "--timeout", "1"]) == 1
    assert "wait=applied&timeout=1" in fake_service.requests[0][1]
    assert "not in the counts after 1 s" in capsys.readouterr().err


def test_total_with_filters(views, capsys):
    assert main(["total", "views", "video=A"]) == 0
    assert "label.video=A" in views.requests[-1][1]
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["count", "sum", "min", "max"]
    assert row.split() == ["2", "4", "2", "2"]


def test_series_and_top(views, capsys):
    assert main(["series", "views", "--step", "1m", "--from", "0", "--to", "120000"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["1970-01-01T00:01:00Z", "3"]
    assert main(["top", "views", "--by", "video", "-k", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["1", "A", "2"]
    assert all(path.endswith("consistency=fresh") for _, path, *_ in views.requests)


def test_relative_times_are_no_options(views, capsys):
    views.answers["/v1/meters/views/total"] = 200, {"value": {"count": 1}}
    assert main(["total", "views", "--from", "-1h", "--to", "-5m", "video=A"]) == 0
    assert views.requests[-1][1] == "/v1/meters/views/total?label.video=A&from=-1h&to=-5m&consistency=fresh"


def test_json_is_the_answer_as_it_came(views, capsys):
    assert main(["total", "views", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["value"]["count"] == 3


def test_a_refusal_of_the_service_is_one_line(views, capsys):
    assert main(["meters", "show", "veiws"]) == 1
    assert capsys.readouterr().err == "tallymark meters: no meter veiws (HTTP 404)\n"


def test_late_counts_are_said_beside_the_table(views, capsys):
    views.answers["/v1/meters/views/total"] = 200, {"value": {"count": 1}, "freshness": {"lag_ms": 60_000}}
    assert main(["total", "views"]) == 0
    told = capsys.readouterr()
    assert told.out.split() == ["count", "1"]
    assert "60.0 s behind" in told.err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["total", "views"], {"value": {"count": 1, "sum": None}}),
        (["series", "views"], {"series": [{"points": [{"time": "2026-11-17T16:28:00Z", "count": 1, "sum": None}]}]}),
        (["top", "views"], {"items": [{"labels": {"video": "A"}, "value": {"count": 1, "sum": None}}]}),
    ],
)
def test_a_number_that_was_not_computed_from_the_beginning_has_a_footnote(views, capsys, words, found):
    since = {"sum": "2026-11-17T16:28:10.500Z"}
    views.answers[f"/v1/meters/views/{words[0]}"] = 200, {**found, "since": since}
    assert main(words) == 0
    assert capsys.readouterr().err == (
        "sum: computed since 2026-11-17T16:28:10.500Z; ask with --from 2026-11-17T16:29:00Z\n"
    )


def test_the_footnote_of_a_built_in_meter_has_no_moment(views, capsys):
    views.answers["/v1/meters/views/total"] = 200, {"value": {"last": None}, "since": {"last": None}}
    assert main(["total", "views"]) == 0
    assert capsys.readouterr().err == "last: not computed from the beginning; ask for less with --from\n"


def test_show_says_since_when_a_function_is_computed(views, capsys):
    views.meters["views"]["since"] = {"sum": "2026-11-17T16:28:10.500Z"}
    assert main(["meters", "show", "views"]) == 0
    assert ["since", "sum", "2026-11-17T16:28:10.500Z"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]


FILE = """
meters:
  - {name: views, event: view, by: [video, country], compute: [count]}
  - {name: sales, event: sale, compute: [count, sum], decimals: 2}
"""


def test_a_broken_meter_is_listed_with_what_it_missed_and_resumed(views, capsys):
    views.meters["views"] |= {"broken": "no such column", "missed": 1234}
    assert main(["meters", "list"]) == 0
    assert "broken: no such column, missed 1,234 events" in capsys.readouterr().out
    views.answers["/v1/meters/views/resume"] = 200, {"note": "views counts again"}
    assert main(["meters", "resume", "views"]) == 0
    assert capsys.readouterr().out == "views counts again\n"
    assert views.requests[-1][:2] == ("POST", "/v1/meters/views/resume")


def test_meters_are_checked_planned_and_applied_from_a_file(fake_service, tmp_path, capsys):
    path = tmp_path / "meters.yaml"
    path.write_text(FILE)
    assert main(["meters", "check", str(path)]) == 0
    assert fake_service.requests == []
    fake_service.meters["views"] = {"name": "views", "event": "view", "by": ["video"], "compute": ["count"]}
    fake_service.meters["old"] = {"name": "old", "event": "old"}
    capsys.readouterr()
    assert main(["meters", "plan", str(path), "--output", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned == {
        "added": ["sales"],
        "changed": ["views"],
        "unchanged": [],
        "not_in_file": ["old"],
        "applied": False,
    }
    assert "sales" not in fake_service.meters
    assert main(["meters", "apply", str(path)]) == 0
    assert fake_service.meters["views"]["by"] == ["video", "country"]
    assert fake_service.meters["sales"]["decimals"] == 2
    assert main(["meters", "plan", str(path)]) == 0
    assert "nothing to change; 2 meters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "effect"),
    [
        ({"by": ["video"]}, "new version that counts from now on"),
        ({"compute": ["count"]}, "new version that keeps its numbers, with max and avg of what is counted from now on"),
        ({"compute": ["count", "sum", "max"]}, "new version that keeps its numbers"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_plan_says_whether_a_meter_keeps_its_numbers(fake_service, tmp_path, capsys, command, before, effect):
    after = {"name": "views", "event": "view", "compute": ["count", "max", "avg"]}
    (tmp_path / "m.yaml").write_text(f"meters: [{json.dumps(after)}]")
    fake_service.meters["views"] = {**after, **before}
    assert main(["meters", command, str(tmp_path / "m.yaml")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(f": {'would be a' if command == 'plan' else 'a'} {effect}")


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_file_that_redefines_a_built_in_meter_changes_nothing(fake_service, tmp_path, capsys, command):
    path = tmp_path / "meters.yaml"
    path.write_text(FILE + "  - {name: metrics, event: metrics, by: [host]}\n")
    fake_service.meters["metrics"] = {**to_mapping(METRICS), "built_in": True}
    assert main(["meters", command, str(path)]) == 1
    assert "'metrics' is built in and cannot be redefined; choose another name" in capsys.readouterr().err
    assert fake_service.meters.keys() == {"metrics"}


def test_a_file_may_have_the_built_in_meters_of_a_tenant_to_be(fake_service, tmp_path, capsys):
    (tmp_path / "m.yaml").write_text(f"meters: [{json.dumps(to_mapping(METRICS))}]")
    fake_service.answers["/v1/meters"] = 404, {"code": "unknown_tenant", "detail": "there is no tenant 'acme'"}
    assert main(["meters", "plan", str(tmp_path / "m.yaml"), "--tenant", "acme"]) == 0
    assert "nothing to change" in capsys.readouterr().out


def test_every_mistake_in_a_file_has_its_line(tmp_path, capsys):
    (tmp_path / "m.yaml").write_text("meters:\n  - {name: a, evnt: x}\n  - {name: b, event: y, compute: [cuont]}\n")
    assert main(["meters", "check", str(tmp_path / "m.yaml")]) == 1
    told = capsys.readouterr().err
    assert "m.yaml:2:" in told
    assert "m.yaml:3:" in told
    assert "did you mean count?" in told


def test_meters_are_added_listed_and_deleted(fake_service, capsys):
    assert main(["meters", "add", "views", "--event", "view", "--by", "video,country", "--compute", "count,sum"]) == 0
    assert fake_service.meters["views"]["by"] == ["video", "country"]
    capsys.readouterr()
    assert main(["meters", "list"]) == 0
    assert "video, country" in capsys.readouterr().out
    assert main(["meters", "delete", "views"]) == 0
    assert fake_service.meters == {}


def test_every_key_of_a_definition_has_its_option(fake_service, capsys):
    words = (
        "meters add trending --weights view=1,like=2.5 --by video --compute count,sum,p99.9 --distinct user --grain 1s"
        " --late-after 1h --late-then aside --max-series 1000 --decimals 1 --where a=1"
    )
    assert main(words.split()) == 0
    kept = from_mapping(fake_service.meters["trending"])
    assert kept == Meter(
        "trending",
        ("like", "view"),
        ("video",),
        ("count", "sum", "distinct", "p99.9"),
        where="a = 1",
        decimals=1,
        distinct="user",
        grain_s=1,
        weights=(("like", 2.5), ("view", 1.0)),
        late=Late(3600, "aside"),
        max_series=1000,
    )
    capsys.readouterr()
    assert main(["meters", "show", "trending"]) == 0
    shown = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["weights", "view 1, like 2.5"] in shown
    assert ["late", "after 1h, then aside"] in shown


def test_every_mistake_of_a_definition_is_told_before_anything_is_sent(fake_service, capsys):
    words = "meters add views --event view --late-after soon --late-then dorp --grain 5m --weights view=x,viw=1"
    assert main(words.split()) == 1
    assert capsys.readouterr().err.splitlines() == [
        "weights.view: the weight of 'view' in meter 'views' is a finite number under 1e280, not 'x'",
        "weights.viw: 'viw' has a weight but is not in event in meter 'views'; add it there, or leave event out",
        "grain: grain is the finest step that is kept: 1s, 10s or 1m, not '5m'; coarser steps are made from it",
        "late.after: after is a whole number and s, m, h, d or w, like 90s, 5m, 1h or 7d, not 'soon'",
        "late.then: then is count, aside or drop, not 'dorp'; did you mean drop?",
        "tallymark meters: 5 mistakes in the definition of views; nothing was changed",
    ]
    assert fake_service.requests == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("meters add views", "which event does it count? Add --event E, or --weights"),
        ("meters add views --weights view", "'view' is not key=value; write it like view=1,like=3"),
        ("meters add views --weights view=1,view=2", "--weights has 'view' twice"),
    ],
)
def test_a_definition_that_cannot_be_read_is_wrong_usage(fake_service, capsys, words, message):
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


def test_what_comes_later_says_so(capsys):
    assert main(["meters", "backfill", "views"]) == 1
    assert "not in this version" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["total", "views"],
        ["series", "views", "--step", "1m", "--from", "0", "--to", "120000"],
        ["top", "views", "--by", "video"],
        ["meters", "list"],
        ["meters", "show", "views"],
        ["meters", "add", "clicks", "--event", "click"],
        ["meters", "delete", "views"],
        ["dlq", "list"],
        ["send", "view"],
    ],
)
def test_the_tenant_comes_from_the_option_or_else_the_environment(views, monkeypatch, words):
    views.answers["/v1/dlq"] = 200, {"counts": [], "letters": []}
    assert main([*words, "--tenant", "acme"]) == 0
    assert views.requests[-1][2]["tallymark-tenant"] == "acme"
    views.meters.setdefault("views", {"name": "views", "event": "view"})
    monkeypatch.setenv("TALLYMARK_TENANT", "globex")
    assert main(words) == 0
    assert views.requests[-1][2]["tallymark-tenant"] == "globex"


def test_without_a_tenant_none_is_named_and_status_is_of_all(views, monkeypatch):
    assert main(["total", "views"]) == 0
    assert "tallymark-tenant" not in views.requests[-1][2]
    views.answers["/v1/status"] = 200, {"healthy": True}
    monkeypatch.setenv("TALLYMARK_TENANT", "acme")
    assert main(["status"]) == 0
    assert all("tallymark-tenant" not in headers for _, _, headers, _ in views.requests)


def test_a_name_that_no_tenant_can_have_is_wrong_usage(views, monkeypatch, capsys):
    assert main(["total", "views", "--tenant", "Acme Inc"]) == 2
    assert "--tenant: 'Acme Inc' cannot name a tenant" in capsys.readouterr().err
    monkeypatch.setenv("TALLYMARK_TENANT", "ACME")
    assert main(["total", "views"]) == 2
    assert "TALLYMARK_TENANT: 'ACME' cannot name a tenant" in capsys.readouterr().err
    assert views.requests == []


def test_a_file_can_be_applied_to_a_tenant_that_does_not_exist_yet(fake_service, tmp_path, capsys):
    path = tmp_path / "meters.yaml"
    path.write_text(FILE)
    fake_service.answers["/v1/meters"] = 404, {"code": "unknown_tenant", "detail": "there is no tenant 'acme'"}
    assert main(["meters", "apply", str(path), "--tenant", "acme"]) == 0
    assert set(fake_service.meters) == {"views", "sales"}
    fake_service.answers["/v1/meters"] = 404, {"code": "unknown_path", "detail": "there is no /v1/meters"}
    assert main(["meters", "plan", str(path)]) == 1
    path.write_text("meters: [{name: events, event: view}]")
    fake_service.answers["/v1/meters"] = 404, {"code": "unknown_tenant", "detail": "there is no tenant 'acme'"}
    assert main(["meters", "apply", str(path), "--tenant", "acme"]) == 1
    assert "events" not in fake_service.meters
