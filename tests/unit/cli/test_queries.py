"""`tallymark queries`: what is saved, how far it is stored, and errors under the place they are about."""

import io
import json
import sys

import pytest

from tallymark.cli import main

TEXT = "FROM * SELECT latency WINDOW 1m COMPUTE p99 BY server"
STORED = {"from": "2026-11-15T11:00:00Z", "through": "2026-11-15T12:00:00Z", "windows": 1200}
SLOW = {
    "name": "slow", "q": TEXT, "title": "Slow servers", "tz": None, "meter": "latency", "window": "1m",
    "created": "2026-11-15T11:00:30Z", "changed": "2026-11-15T11:00:30Z", "stored": STORED, "behind_ms": 0,
    "problem": None,
}  # fmt: skip
NEW = {**SLOW, "name": "new", "stored": {"from": None, "through": None, "windows": 0}, "behind_ms": None}
NOTE = "slow is evaluated from now on"


def cells(line: str) -> list[str]:
    return [each.strip() for each in line.split("  ") if each.strip()]


def test_list_says_how_far_each_is_stored(fake_service, capsys):
    late = {**SLOW, "name": "late", "behind_ms": 61_500}
    broken = {**SLOW, "name": "broken", "behind_ms": 5, "problem": "there is no meter latency"}
    fake_service.answers["/v1/queries"] = 200, {"queries": [SLOW, NEW, late, broken]}
    assert main(["queries", "list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert cells(head) == ["name", "window", "windows", "stored through", "state", "query"]
    assert [cells(line) for line in lines] == [
        ["slow", "1m", "1,200", "2026-11-15T12:00:00Z", "up to date", TEXT],
        ["new", "1m", "0", "not evaluated yet", TEXT],
        ["late", "1m", "1,200", "2026-11-15T12:00:00Z", "61.5 s behind", TEXT],
        ["broken", "1m", "1,200", "2026-11-15T12:00:00Z", "there is no meter latency", TEXT],
    ]
    assert main(["queries", "list", "--tenant", "shop", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[1] == NEW
    assert fake_service.requests[-1][2]["tallymark-tenant"] == "shop"


def test_list_of_none_says_how_to_save_one(fake_service, capsys):
    fake_service.answers["/v1/queries"] = 200, {"queries": []}
    assert main(["queries", "list"]) == 0
    assert "none is saved yet; save one: tallymark queries add" in capsys.readouterr().out
    assert main(["queries", "list", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_add_sends_what_was_given_and_nothing_else(fake_service, capsys):
    fake_service.answers["/v1/queries/slow"] = 201, {**SLOW, "note": NOTE}
    assert main(["queries", "add", "slow", TEXT]) == 0
    method, path, _, body = fake_service.requests[-1]
    assert (method, path, json.loads(body)) == ("PUT", "/v1/queries/slow", {"q": TEXT})
    assert capsys.readouterr().out == f"{NOTE}\n"
    fake_service.answers["/v1/queries/slow"] = 200, SLOW
    assert main(["queries", "add", "slow", *TEXT.split(), "--title", "Slow", "--tz", "Europe/Vienna"]) == 0
    assert json.loads(fake_service.requests[-1][3]) == {"q": TEXT, "title": "Slow", "tz": "Europe/Vienna"}
    assert capsys.readouterr().out == "slow is saved\n"


def test_add_reads_stdin_and_a_name_is_quoted(fake_service, capsys, monkeypatch):
    fake_service.answers["/v1/queries/a%2Fb"] = 201, {**SLOW, "name": "a/b"}
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TEXT}\n"))
    assert main(["queries", "add", "a/b", "-", "--output", "json"]) == 0
    assert json.loads(fake_service.requests[-1][3]) == {"q": TEXT}
    assert json.loads(capsys.readouterr().out)["name"] == "a/b"


def test_an_error_points_at_its_place(fake_service, capsys):
    wrong = {"code": "bad_query", "detail": "p100 is no function", "position": TEXT.index("p99")}
    fake_service.answers["/v1/queries/slow"] = 400, wrong
    assert main(["queries", "add", "slow", TEXT]) == 1
    told, query, mark = capsys.readouterr().err.splitlines()
    assert told == "tallymark queries: p100 is no function (HTTP 400)"
    assert query[mark.index("^") :].startswith("p99")


@pytest.mark.parametrize(
    ("query", "stored", "state"),
    [
        (SLOW, "1,200 windows, 2026-11-15T11:00:00Z to 2026-11-15T12:00:00Z", "up to date"),
        (NEW, "no window yet", "not evaluated yet"),
    ],
)
def test_show_has_all_of_one(fake_service, capsys, query, stored, state):
    fake_service.answers["/v1/queries/slow"] = 200, query
    assert main(["queries", "show", "slow"]) == 0
    shown = {found[0]: found[1:] for line in capsys.readouterr().out.splitlines() if (found := cells(line))}
    assert (shown["q"], shown["title"], shown["tz"], shown["meter"]) == ([TEXT], ["Slow servers"], [], ["latency"])
    assert (shown["stored"], shown["state"]) == ([stored], [state])
    assert main(["queries", "show", "slow", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == query


def test_one_that_is_unknown_is_refused(fake_service, capsys):
    detail = "there is no saved query 'slw'; did you mean slow?"
    fake_service.answers["/v1/queries/slw"] = 404, {"code": "unknown_query", "detail": detail}
    for command in ("show", "delete"):
        assert main(["queries", command, "slw"]) == 1
        assert capsys.readouterr().err == f"tallymark queries: {detail} (HTTP 404)\n"


def test_delete_says_what_is_gone(fake_service, capsys):
    note = "slow is no longer evaluated, and its stored windows are deleted; the boards wall still show it"
    fake_service.answers["/v1/queries/slow"] = 200, {"deleted": "slow", "note": note}
    assert main(["queries", "delete", "slow"]) == 0
    assert fake_service.requests[-1][:2] == ("DELETE", "/v1/queries/slow")
    assert capsys.readouterr().out == f"{note}\n"
    assert main(["queries", "delete", "slow", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["deleted"] == "slow"
