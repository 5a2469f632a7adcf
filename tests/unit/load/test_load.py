"""`tallymark load` against a small service that counts right, or wrong on request."""

import json
from pathlib import Path

import pytest

from tallymark.cli import main

QUICK = ["--rate", "20000", "--patience", "10", "--keys", "40", "--output", "json"]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys, *arguments: str) -> tuple[int, dict]:
    code = main(["load", *QUICK, *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_a_right_service_is_found_exact(fake_service, capsys):
    code, told = run(capsys, "--events", "3000", "--duplicates", "0.05", "--late", "0.02")
    assert code == 0
    assert told["sent"] == told["acknowledged"] == 3000
    assert told["differences"] == []
    assert told["compared"] > 100
    assert len(fake_service.events) < 3000


def test_meter_events_and_questions_are_those_of_the_tenant(fake_service, capsys):
    code, told = run(capsys, "--events", "100", "--tenant", "acme")
    assert (code, told["acknowledged"]) == (0, 100)
    assert {headers.get("tallymark-tenant") for _, _, headers, _ in fake_service.requests} == {"acme"}
    assert {method for method, *_ in fake_service.requests} == {"PUT", "POST", "GET"}


@pytest.mark.parametrize(("sent_for", "asked_for"), [(["--tenant", "acme"], {"acme"}), ([], {None})])
def test_a_later_check_is_for_the_tenant_of_the_load(fake_service, capsys, monkeypatch, sent_for, asked_for):
    assert main(["load", *QUICK, "--events", "100", "--no-check", "--journal", "j", *sent_for]) == 0
    capsys.readouterr()
    monkeypatch.setenv("TALLYMARK_TENANT", "globex")
    fake_service.requests.clear()
    code, told = run(capsys, "--check", "j")
    assert (code, told["differences"]) == (0, [])
    assert {headers.get("tallymark-tenant") for _, _, headers, _ in fake_service.requests} == asked_for
    fake_service.requests.clear()
    assert main(["load", "--check", "j", "--tenant", "initech"]) == 2
    whose = sent_for[-1] if sent_for else "main"
    assert f"--tenant initech: the load in j was sent for the tenant {whose}" in capsys.readouterr().err
    assert fake_service.requests == []


def test_a_journal_that_does_not_say_whose_load_it_was_is_checked_for_the_tenant_of_today(fake_service, capsys):
    assert main(["load", *QUICK, "--events", "100", "--no-check", "--journal", "j"]) == 0
    written = Path("j").read_text()
    Path("j").write_text(written.replace(',"tenant":""', "", 1))
    assert Path("j").read_text() != written
    capsys.readouterr()
    fake_service.requests.clear()
    assert run(capsys, "--check", "j", "--tenant", "acme")[0] == 0
    assert {headers.get("tallymark-tenant") for _, _, headers, _ in fake_service.requests} == {"acme"}


def test_a_name_that_no_tenant_can_have_is_wrong_usage(fake_service, capsys):
    assert main(["load", "--tenant", "Acme"]) == 2
    assert "--tenant: 'Acme' cannot name a tenant" in capsys.readouterr().err
    assert fake_service.requests == []


def test_servers_with_metrics_are_found_exact(fake_service, capsys):
    code, told = run(capsys, "--servers", "200", "--metrics", "3", "--events", "400")
    assert code == 0
    assert told["acknowledged"] == 400
    assert told["compared"] > 100
    assert told["rate_asked"] == 200


@pytest.mark.parametrize("fate", ["503", "429", "silent", "half"])
def test_an_unclear_answer_is_retried_with_the_same_ids(fake_service, capsys, fate):
    fake_service.script = [fate, "", fate, fate]
    code, told = run(capsys, "--events", "2000")
    assert code == 0
    assert told["acknowledged"] == 2000
    assert told["retried"] > 0
    assert len(fake_service.events) == 2000


def test_an_acknowledged_event_that_is_not_counted_is_found(fake_service, capsys):
    fake_service.script = ["", "lossy"]
    code, told = run(capsys, "--events", "3000")
    assert code == 1
    wrong = {difference["where"].split()[0] for difference in told["differences"] if difference["what"] == "count"}
    assert wrong >= {"total", "series", "top"}
    total = next(difference for difference in told["differences"] if difference["where"] == "total")
    assert (total["what"], total["expected"], total["served"]) == ("count", "3000", "2999")


def test_an_event_counted_twice_is_found(fake_service, capsys):
    assert main(["load", *QUICK, "--events", "500", "--no-check", "--journal", "j"]) == 0
    capsys.readouterr()
    (name, identity), event = next(iter(fake_service.events.items()))
    fake_service.events[name, identity + "again"] = event
    code, told = run(capsys, "--check", "j")
    assert code == 1
    assert {difference["what"] for difference in told["differences"]} == {"count", "sum"}


def test_what_is_never_acknowledged_stays_unknown_and_the_bounds_allow_for_it(fake_service, capsys):
    fake_service.always = "silent"
    code, told = run(capsys, "--events", "100", "--patience", "0.5", "--journal", "j")
    assert code == 1
    assert told["unknown"] == 100
    assert told["differences"] == []  # counted, though nobody was told: possible, so not wrong
    fake_service.always = None
    assert main(["load", "--check", "j"]) == 0
    fake_service.events.clear()
    assert main(["load", "--check", "j"]) == 0
    assert "unknown outcome" in capsys.readouterr().out


def test_refused_events_are_reported_and_fail_the_load(fake_service, capsys):
    fake_service.script = ["400"]
    code, told = run(capsys, "--events", "200", "--batch", "100", "--connections", "1")
    assert code == 1
    assert told["refused"] == 100
    assert told["reasons"] == {"HTTP 400": 100}
    assert told["differences"] == []


@pytest.mark.parametrize(
    "wrong", [["--rate", "0"], ["--duplicates", "5"], ["--seconds", "1", "--events", "1"], ["--events", "0"]]
)
def test_wrong_usage_is_said_before_anything_is_sent(fake_service, capsys, wrong):
    assert main(["load", *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert fake_service.requests == []


def test_a_run_can_be_named_so_that_other_meters_can_count_it(fake_service, capsys):
    assert run(capsys, "--events", "10", "--run", "mine")[0] == 0
    assert {path for method, path, *_ in fake_service.requests if method == "PUT"} == {"/v1/meters/load_mine"}
    assert main(["load", "--run", "My run"]) == 2
    assert "--run My run" in capsys.readouterr().err
