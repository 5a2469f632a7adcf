"""Dead letters over HTTP: which there are, and what they hold."""

import ast
import io
import json
import os
import resource
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import tallymark
from tallymark.events import columns, frame, refusals
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.validation import validate
from tallymark.query import dead_letters, frame_rows
from tallymark.store.model import DeadLetter

SOURCE = Path(tallymark.__file__).parent
AT_MS = 1_763_208_000_123
SENT = [
    {"event": "view", "id": "a", "time": AT_MS, "props": {"video": "A", "first": True}},
    {"event": "rpc", "id": "b", "time": AT_MS + 1, "value": 0.5, "values": {"cpu": 0.25}},
]


def payload(events=SENT) -> bytes:
    clocks = Clocks(accept_past_ms=10**9, accept_future_ms=10**9, tolerance_ms=5_000)
    accepted = validate(Delivery(json.dumps(events).encode(), AT_MS + 7), clocks, max_events=10_000)
    assert accepted.refusals == []
    ((_, content),) = frame.frames(columns.batch([accepted]))
    return content


def refused(number: int, reason: str = "bad_time") -> DeadLetter:
    raw = b'{"event": "view", "id": "%d", "time": "noon"}' % number
    return DeadLetter("collector", reason, "`time`: 'noon' is not a time", 1, raw, AT_MS + number)


def uncounted(reason: str, raw: bytes, events: int = 2) -> DeadLetter:
    return DeadLetter("pipeline", reason, "why", events, raw, AT_MS, partition=1, offset=42)


def test_none_is_an_empty_list(desk):
    assert desk.ask("/v1/dlq") == {"letters": [], "counts": []}


def test_letters_come_newest_first_with_counts_by_reason(desk):
    for letter in (refused(0), refused(1), refused(2, "too_old"), uncounted("undecodable", b"xyz")):
        desk.store.bury(letter)
    told = desk.ask("/v1/dlq")
    assert [each["id"] for each in told["letters"]] == [4, 3, 2, 1]
    assert told["letters"][0] == {
        "id": 4, "time": "2025-11-15T12:00:00.123Z", "hop": "pipeline", "reason": "undecodable", "events": 2,
        "bytes": 3, "partition": 1, "offset": 42, "detail": "why",
    }  # fmt: skip
    assert "offset" not in told["letters"][1]
    assert told["counts"][0] == {
        "hop": "collector", "reason": "bad_time", "events": 2, "last": "2025-11-15T12:00:00.124Z",
        "means": "Not a time. Send RFC 3339 with a zone, or epoch milliseconds.",
    }  # fmt: skip
    assert [each["id"] for each in desk.ask("/v1/dlq?hop=collector&limit=2")["letters"]] == [3, 2]
    some = desk.ask("/v1/dlq?reason=bad_time&reason=undecodable")
    assert [each["id"] for each in some["letters"]] == [4, 2, 1]
    assert [each["reason"] for each in some["counts"]] == ["bad_time", "undecodable"]
    assert desk.ask("/v1/dlq?reason=too_new") == {"letters": [], "counts": []}, "known, and has not occurred"


@pytest.mark.parametrize(
    ("target", "status", "code", "said"),
    [
        ("/v1/dlq?reason=bad_tiem", 400, "bad_choice", "did you mean bad_time?"),
        ("/v1/dlq?hop=keeper", 400, "bad_choice", "known: collector, pipeline"),
        ("/v1/dlq?reson=bad_time", 400, "unknown_parameter", "did you mean reason?"),
        (
            "/v1/dlq?limit=1001",
            400,
            "over_limit",
            "limit = 1,001 exceeds 1,000, the most that one answer can have; ask for less",
        ),
        ("/v1/dlq?consistency=fresh", 400, "unknown_parameter", "it takes limit, hop, reason"),
        ("/v1/dlq?limit=x", 400, "bad_number", "whole number"),
        ("/v1/dlq/7", 404, "unknown_letter", "the newest is 1"),
        ("/v1/dlq/99999999999999999999", 404, "unknown_letter", "is not the number of a dead letter"),
        ("/v1/dlq/bad_time", 404, "unknown_letter", "`tallymark dlq list` shows them"),
        ("/v1/dlq/1?limt=5", 400, "unknown_parameter", "did you mean limit?"),
    ],
)
def test_mistakes_are_answered_with_the_way_out(desk, target, status, code, said):
    desk.store.bury(refused(0))
    problem = desk.refused(target)
    assert (problem.status, problem.code) == (status, code)
    assert said in problem.detail


def test_a_number_that_nobody_has_is_said_kindly_while_there_are_none(desk):
    assert desk.refused("/v1/dlq/1").detail == "there is no dead letter 1; none are kept"


def test_a_refused_event_is_shown_as_it_was_sent(desk):
    desk.store.bury(refused(5))
    told = desk.ask("/v1/dlq/1")
    assert told["text"] == '{"event": "view", "id": "5", "time": "noon"}'
    assert (told["reason"], told["detail"]) == ("bad_time", "`time`: 'noon' is not a time")


def test_what_is_not_text_is_shown_as_far_as_it_is(desk):
    desk.store.bury(DeadLetter("collector", "bad_text", "not UTF-8", 1, b'{"event": "\xff"}', AT_MS))
    assert desk.ask("/v1/dlq/1")["text"] == '{"event": "�"}'


def test_a_letter_that_only_counts_says_so(desk):
    desk.store.bury(DeadLetter("collector", "bad_time", "900 more", 900, b"", AT_MS))
    told = desk.ask("/v1/dlq/1")
    assert told["note"] == "its content was not kept, only the number of its events"
    assert not {"text", "rows", "hex"} & set(told)


@pytest.mark.parametrize("reason", ["maybe_duplicate", "kills_its_task"])
def test_the_events_of_a_frame_are_decoded(desk, reason):
    desk.store.bury(uncounted(reason, payload()))
    told = desk.ask("/v1/dlq/1")
    assert "left_out" not in told
    assert told["rows"] == [{**event, "received": AT_MS + 7} for event in SENT]


def test_of_many_events_the_first_are_shown(desk):
    many = [{"event": "view", "id": f"{number}"} for number in range(150)]
    desk.store.bury(uncounted("maybe_duplicate", payload(many), events=150))
    told = desk.ask("/v1/dlq/1")
    assert (len(told["rows"]), told["left_out"]) == (100, 50)
    told = desk.ask("/v1/dlq/1?limit=3")
    assert ([row["id"] for row in told["rows"]], told["left_out"]) == (["0", "1", "2"], 147)


def test_the_size_of_what_is_shown_is_bounded(desk, monkeypatch):
    wide = [{"event": "view", "id": f"{number}", "props": {"text": "x" * 1000}} for number in range(100)]
    desk.store.bury(uncounted("maybe_duplicate", payload(wide), events=100))
    monkeypatch.setattr(frame_rows, "MOST_BYTES", 20_000)
    told = desk.ask("/v1/dlq/1")
    assert len(told["rows"]) + told["left_out"] == 100
    assert len(json.dumps(told["rows"])) < 22_000
    desk.store.bury(uncounted("damaged", os.urandom(1_000_000)))
    told = desk.ask("/v1/dlq/2")
    assert (len(told["hex"]), told["left_out_bytes"]) == (2 * 4_096, 1_000_000 - 4_096)
    desk.store.bury(DeadLetter("collector", "bad_json", "no", 1, b"x" * 100_000, AT_MS))
    told = desk.ask("/v1/dlq/3")
    assert (len(told["text"]), told["left_out_bytes"]) == (64_000, 36_000)


@pytest.mark.parametrize("letter", [uncounted("undecodable", b"no frame"), uncounted("damaged", payload()[:-40])])
def test_what_cannot_be_decoded_is_shown_in_hex(desk, letter):
    desk.store.bury(letter)
    told = desk.ask("/v1/dlq/1")
    assert bytes.fromhex(told["hex"]) == letter.raw
    assert told["note"].startswith("its events cannot be read: ")


@pytest.mark.parametrize("rest", ["{", "[1]", "7", "[" * 100_000, '{"a":' * 100_000], ids=lambda rest: rest[:5])
def test_a_frame_that_holds_no_events_is_shown_in_hex(desk, rest):
    batch = frame.decode(payload())
    place = batch.schema.get_field_index("rest")
    field = batch.schema.field(place)
    raw = frame.encode(batch.set_column(place, field, pa.array([rest] * batch.num_rows, field.type)))
    desk.store.bury(uncounted("damaged", raw))
    told = desk.ask("/v1/dlq/1")
    assert "are a frame, but not of events: " in told["note"]
    assert bytes.fromhex(told["hex"]) == raw[:4_096]


def test_a_letter_of_letters_that_could_not_be_read_is_shown_in_hex(desk):
    desk.store.bury(DeadLetter("collector", "letter_unreadable", "no msgpack", 3, b"\xc1", AT_MS))
    assert desk.ask("/v1/dlq/1")["hex"] == "c1"


def test_a_frame_that_kills_its_reader_does_not_kill_the_service(desk, monkeypatch):
    desk.store.bury(uncounted("kills_its_task", payload()))
    monkeypatch.setattr(frame_rows.sys, "executable", "/bin/false")  # a reader that dies
    told = desk.ask("/v1/dlq/1")
    assert told["note"] == "its events cannot be read: the process that read it ended with code 1"
    assert bytes.fromhex(told["hex"]) == payload()


def test_a_reader_has_a_time_limit(desk, monkeypatch):
    def run(command, **how):
        raise subprocess.TimeoutExpired(command, how["timeout"])

    monkeypatch.setattr(frame_rows.subprocess, "run", run)
    desk.store.bury(uncounted("kills_its_task", payload()))
    assert desk.ask("/v1/dlq/1")["note"] == "its events cannot be read: reading it takes longer than 20 s"


def test_a_reader_has_bounded_its_memory_before_it_reads(monkeypatch):
    done = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, bounds: done.append((what, bounds)))
    monkeypatch.setattr(frame_rows, "rows", lambda content, limit, tenant: done.append((content, limit, tenant)) or [])
    monkeypatch.setattr(frame_rows.sys, "argv", ["frame_rows", "5", "acme"])
    monkeypatch.setattr(frame_rows.sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"frame")))
    monkeypatch.setattr(frame_rows.sys, "stdout", SimpleNamespace(buffer=io.BytesIO()))
    assert frame_rows.main() == 0
    assert done == [(resource.RLIMIT_AS, (4_000_000_000, 4_000_000_000)), (b"frame", 5, "acme")]


def given_reasons() -> set[str]:
    """What the pipeline and the keeper write into `reason`: by that name, or as the second argument of a letter."""
    found: list[ast.expr] = []
    for path in [path for stage in ("pipeline", "keeper") for path in (SOURCE / stage).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.keyword(arg="reason", value=value) | ast.Assign(targets=[ast.Name("reason")], value=value):
                    found.append(value)
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=value) if "reason" in map(ast.unparse, names):
                    found.append(value)
                case ast.Call(func=ast.Name("DeadLetter"), args=[_, reason, *_]):
                    found.append(reason)
    constants = [each.value for part in found for each in ast.walk(part) if isinstance(each, ast.Constant)]
    return {each for each in constants if isinstance(each, str)}


def test_every_reason_that_the_code_gives_is_known():
    assert len(given_reasons() & set(dead_letters.REASONS)) >= 5
    assert given_reasons() - {""} <= set(dead_letters.REASONS)


def test_every_reason_to_refuse_an_event_has_a_meaning():
    assert set(refusals.CODES) <= set(dead_letters.REASONS)
