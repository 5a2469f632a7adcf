"""`tallymark dlq`: what could not be counted, for people and for files."""

import json

import pytest

from tallymark.cli import main

COUNTS = [{"hop": "collector", "reason": "bad_time", "events": 1200, "last": "2026-11-15T12:00:00.123Z"}]
LETTER = {
    "id": 1017, "time": "2026-11-15T12:00:00.123Z", "hop": "collector", "reason": "bad_time", "events": 1, "bytes": 40,
    "detail": "`time`: 'noon'\nis not a time",
}  # fmt: skip


def test_a_list_has_counts_and_letters(fake_service, capsys):
    fake_service.answers["/v1/dlq"] = 200, {"counts": COUNTS, "letters": [LETTER]}
    assert (
        main(["dlq", "list", "--reason", "bad_time", "--reason", "too_old", "--hop", "collector", "--limit", "5"]) == 0
    )
    assert fake_service.requests[-1][1] == "/v1/dlq?hop=collector&limit=5&reason=bad_time&reason=too_old"
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["1,200", "collector", "bad_time", "2026-11-15T12:00:00.123Z"]
    assert lines[4][:5] == ["1017", "2026-11-15T12:00:00.123Z", "collector", "bad_time", "1"]
    assert " ".join(lines[4][5:]) == "`time`: 'noon' is not a time"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no dead letters\n"),
        (["--reason", "bad_time"], "no dead letters of this kind\n"),
        (["--hop", "pipeline"], "no dead letters of this kind\n"),
    ],
)
def test_none_is_said_kindly(fake_service, capsys, arguments, said):
    fake_service.answers["/v1/dlq"] = 200, {"counts": [], "letters": []}
    assert main(["dlq", "list", *arguments]) == 0
    assert capsys.readouterr().out == said


def test_letters_that_are_gone_are_still_counted(fake_service, capsys):
    fake_service.answers["/v1/dlq"] = 200, {"counts": COUNTS, "letters": []}
    assert main(["dlq", "list"]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[-2:] == [
        "none of them are kept: the oldest are deleted beyond log.dead_bytes",
        "(with Cassandra: none among the newest 10,000 letters of all tenants or 64 MB; older ones are not searched)",
    ]
    assert main(["dlq", "list", "--reason", "bad_time"]) == 0
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(
    ("counts", "others", "said"),
    [
        (COUNTS, {"ghost": 1, "globex": 1200}, "1,201 more belong to other tenants: ghost, globex"),
        (COUNTS, {"ghost": 1}, "1 more belongs to another tenant: ghost"),
        ([], {"ghost": 3}, "3 belong to another tenant: ghost"),
    ],
)
def test_whose_the_others_are_is_said_last(fake_service, capsys, counts, others, said):
    fake_service.answers["/v1/dlq"] = 200, {"counts": counts, "letters": [LETTER][: len(counts)], "others": others}
    assert main(["dlq", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == said
    assert (lines[0] == "no dead letters") == (not counts)


def test_the_events_alone_go_to_stdout(fake_service, capsys):
    fake_service.answers["/v1/dlq/1017"] = 200, {**LETTER, "text": '{"event": "view", "time": "noon"}'}
    assert main(["dlq", "show", "1017"]) == 0
    told = capsys.readouterr()
    assert told.out == '{"event": "view", "time": "noon"}\n'
    assert told.err.splitlines()[0] == "collector: bad_time, 1 event, 2026-11-15T12:00:00.123Z"


STEERING = "a\x1b[2J\x07\x7f\x9b31m\r\n\tö"
HARMLESS = "a\\u001b[2J\\u0007\\u007f\\u009b31m\\u000d\n\tö"


def test_what_was_sent_does_not_steer_the_terminal(fake_service, capsys):
    letter = {**LETTER, "detail": STEERING, "text": STEERING, "note": STEERING}
    fake_service.answers["/v1/dlq/1017"] = 200, letter
    assert main(["dlq", "show", "1017"]) == 0
    told = capsys.readouterr()
    assert told.out == f"{HARMLESS}\n"
    assert told.err.partition("\n")[2] == f"{HARMLESS}\n{HARMLESS}\n"
    assert main(["dlq", "show", "1017", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == letter


def test_rows_and_lists_do_not_steer_the_terminal_either(fake_service, capsys):
    rows = [{"event": "view", "id": STEERING}]
    fake_service.answers["/v1/dlq/7"] = 200, {**LETTER, "rows": rows}
    assert main(["dlq", "show", "7"]) == 0
    told = capsys.readouterr().out
    assert not {"\x1b", "\x7f", "\x9b"} & set(told)
    assert json.loads(told) == rows[0], "escaped as JSON does it: it still means the same"
    fake_service.answers["/v1/dlq"] = 200, {"counts": COUNTS, "letters": [{**LETTER, "detail": STEERING}]}
    assert main(["dlq", "list"]) == 0
    assert "a\\u001b[2J\\u0007\\u007f\\u009b31m ö\n" in capsys.readouterr().out


def test_rows_are_one_a_line(fake_service, capsys):
    rows = [{"event": "view", "id": "a"}, {"event": "view", "id": "ö"}]
    letter = {**LETTER, "hop": "pipeline", "partition": 1, "offset": 42, "rows": rows, "left_out": 1234}
    fake_service.answers["/v1/dlq/7"] = 200, letter
    assert main(["dlq", "show", "7", "--limit", "2"]) == 0
    assert fake_service.requests[-1][1] == "/v1/dlq/7?limit=2"
    told = capsys.readouterr()
    assert [json.loads(line) for line in told.out.splitlines()] == rows
    assert "partition 1 offset 42" in told.err
    assert "and 1,234 more events" in told.err


def test_bytes_are_shown_in_hex(fake_service, capsys):
    fake_service.answers["/v1/dlq/7"] = 200, {**LETTER, "hex": "ab" * 40, "note": "cannot be read", "left_out_bytes": 9}
    assert main(["dlq", "show", "7"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == ["ab" * 32, "ab" * 8]
    assert told.err.splitlines()[-2:] == ["cannot be read", "and 9 more bytes"]


def test_json_is_the_answer_as_it_came(fake_service, capsys):
    fake_service.answers["/v1/dlq/1017"] = 200, LETTER
    assert main(["dlq", "show", "1017", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == LETTER


def test_an_unknown_letter_fails_with_what_the_service_said(fake_service, capsys):
    fake_service.answers["/v1/dlq/9"] = 404, {"detail": "there is no dead letter 9; none are kept"}
    assert main(["dlq", "show", "9"]) == 1
    assert capsys.readouterr().err == "tallymark dlq: there is no dead letter 9; none are kept (HTTP 404)\n"
