"""`POST /v1/events` as the contract says it."""

import gzip
import json
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from tallymark.events import validation
from tallymark.http import Problem

EVENT = {"event": "view", "id": "1", "props": {"video": "A"}}


def now_ms() -> int:
    return int(time.time() * 1000)


def test_accepted_means_that_it_is_in_the_log(collector: Any) -> None:
    sent = {"event": "view", "id": "7c0e", "time": now_ms() - 1000, "value": 1.5, "props": {"video": "A", "n": 3}}
    reply = collector.post(sent)
    assert (reply.status, reply.json) == (202, {"accepted": 1, "rejected": 0, "errors": []})
    (row,) = collector.events()
    assert {name: row[name] for name in sent} == sent
    assert (row["tenant"], row["shift"], row["values"]) == ("main", 0, None)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (json.dumps(EVENT), {}),
        (json.dumps([EVENT, {**EVENT, "id": "2"}]), {}),
        (json.dumps({"events": [EVENT], "sent_at": None}), {}),
        (
            "\n".join([json.dumps(EVENT), "", json.dumps({**EVENT, "id": "2"}), ""]),
            {"content_type": "application/x-ndjson"},
        ),
        (" \n" + json.dumps(EVENT), {"content_type": "text/plain;charset=UTF-8"}),
        (json.dumps(EVENT), {"content_type": "application/x-www-form-urlencoded"}),
    ],
)
def test_all_shapes_of_a_body_are_taken(collector: Any, body: str, headers: dict[str, str]) -> None:
    reply = collector.post(body.encode(), **headers)
    assert reply.status == 202
    assert sorted(row["id"] for row in collector.events()) == ["1", "2"][: reply.json["accepted"]]


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", gzip.compress),
        ("zstd", zstandard.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda body: zlib.compress(body, wbits=-15)),
        ("identity", bytes),
    ],
)
def test_all_encodings_are_read(collector: Any, encoding: str, encode: Callable[[bytes], bytes]) -> None:
    reply = collector.post(encode(json.dumps([EVENT]).encode()), content_encoding=encoding)
    assert reply.status == 202
    assert [row["id"] for row in collector.events()] == ["1"]


def test_each_event_gets_its_result_and_the_refused_are_kept(collector: Any) -> None:
    bad = {"event": "view", "id": "b", "time": "yesterday"}
    reply = collector.post([EVENT, bad, {"event": "no spaces"}, {**EVENT, "id": "2"}])
    assert reply.status == 202
    assert (reply.json["accepted"], reply.json["rejected"]) == (2, 2)
    assert [(e["index"], e["code"], e["retryable"]) for e in reply.json["errors"]] == [
        (1, "bad_time", False),
        (2, "bad_event", False),
    ]
    assert sorted(row["id"] for row in collector.events()) == ["1", "2"]
    letters = collector.letters()
    assert [(letter.hop, letter.reason) for letter in letters] == [
        ("collector", "bad_time"),
        ("collector", "bad_event"),
    ]
    assert json.loads(letters[0].raw) == bad


def test_of_a_large_refused_event_the_beginning_is_kept(collector: Any) -> None:
    reply = collector.post({"event": "view", "nothing_like_it": "x" * 100_000})
    assert reply.status == 422
    (letter,) = collector.letters()
    assert letter.raw.startswith(b'{"event": "view"')
    assert len(letter.raw) == 16_000
    assert "16,000 of its 100," in letter.detail


def test_a_request_of_refused_events_fills_no_disk(collector: Any) -> None:
    before = {kept: collector.metric("tallymark_collector_dead_letters_total", kept=kept) for kept in ("yes", "no")}
    # 10 MB of them in some 20 kB.
    bad = [{"event": "view", "nothing_like_it": "x" * 5_000}] * 2_000 + [{"event": ""}] * 3
    reply = collector.post(gzip.compress(json.dumps(bad).encode()), content_encoding="gzip")
    assert (reply.status, reply.json["rejected"]) == (422, 2_003)
    records = list(collector.dead.read(0, 0, collector.dead.positions()[0].end))
    assert sum(len(record.payload) for record in records) < 1_100_000
    # Each is counted by its reason, in the log as in the metrics, whether its text is kept or not.
    assert sum(record.events for record in records) == 2_003
    letters = collector.letters()
    assert sum(letter.events for letter in letters if letter.reason == "bad_event") == 3
    only_counted = [letter for letter in letters if not letter.raw]
    assert "only counted" in only_counted[0].detail
    lost = sum(letter.events for letter in only_counted)
    assert 1_500 < lost < 2_003
    gained = {
        kept: collector.metric("tallymark_collector_dead_letters_total", kept=kept) - before[kept] for kept in before
    }
    assert gained == {"yes": 2_003 - lost, "no": lost}


def test_all_refused_for_good_is_422_with_the_same_body(collector: Any) -> None:
    reply = collector.post([{"event": ""}, {"evnt": "view"}])
    assert reply.status == 422
    assert reply.json["accepted"] == 0
    assert [error["code"] for error in reply.json["errors"]] == ["bad_event", "unknown_field"]
    assert "did you mean event?" in reply.json["errors"][1]["detail"]
    assert collector.events() == []


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/v1/events", {"content_type": "application/xml"}, 415, "unknown_type"),
        ("/v1/events", {"content_type": "application/json; charset=utf-16"}, 415, "unknown_type"),
        ("/v1/events", {"content_encoding": "br"}, 415, "unknown_encoding"),
        ("/v1/events", {"content_encoding": "gzip, gzip"}, 415, "unknown_encoding"),
        ("/v1/events", {"tallymark_sent_at": "noon"}, 400, "bad_time"),
        ("/v1/events", {"idempotency_key": "x" * 241}, 400, "bad_idempotency_key"),
        ("/v1/events?wait=forever", {}, 400, "bad_parameter"),
        ("/v1/events?wait=applied&timeout=x", {}, 400, "bad_parameter"),
        ("/v1/events?wiat=applied", {}, 400, "unknown_parameter"),
    ],
)
def test_what_a_request_can_get_wrong(
    collector: Any, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    reply = collector.post(EVENT, path, **headers)
    assert (reply.status, reply.json["code"]) == (status, code)
    assert reply.headers["content-type"] == "application/problem+json"
    assert collector.events() == []


@pytest.mark.parametrize(
    ("name", "code"), [("Idempotency-Key", "bad_idempotency_key"), ("Tallymark-Sent-At", "bad_time")]
)
@pytest.mark.parametrize("value", ["order-ü".encode(), b"\xff\xfe"])
def test_a_header_that_cannot_be_read_is_not_taken_for_absent(
    collector: Any, name: str, code: str, value: bytes
) -> None:
    body = b'{"event":"sale"}'
    with collector.connect() as sending:
        sending.sendall(b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n")
        sending.sendall(b"content-length: %d\r\n%s: %s\r\n\r\n%s" % (len(body), name.encode(), value, body))
        answer = b"".join(iter(lambda: sending.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == code
    assert f"header {name} may contain only printable ASCII".encode() in answer
    assert collector.events() == []


def test_another_method_is_405(collector: Any) -> None:
    reply = collector.get("/v1/events")
    assert (reply.status, reply.headers["allow"]) == (405, "POST, OPTIONS")


def test_too_large_says_limit_and_actual(make: Any) -> None:
    collector = make(max_body_bytes=1000, max_inflated_bytes=5000, max_request_events=3)
    reply = collector.post(b" " * 1001)
    assert reply.status == 413
    assert "1,001" in reply.json["detail"]
    assert "collector.max_body_bytes = 1,000" in reply.json["detail"]
    bomb = collector.post(gzip.compress(b"0" * 100_000), content_encoding="gzip")
    assert bomb.status == 413
    assert "collector.max_inflated_bytes = 5,000" in bomb.json["detail"]
    many = collector.post([EVENT] * 4)
    assert many.status == 413
    assert "4 events in one request; at most 3" in many.json["detail"]


def test_a_body_without_a_declared_size_is_cut_at_the_limit(make: Any) -> None:
    collector = make(max_body_bytes=1000)
    with collector.connect() as client:
        client.sendall(b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        client.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n1\r\n \r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_408(make: Any) -> None:
    collector = make(body_timeout_s=0.2)
    for size in (100, 100_000):
        with collector.connect() as client:
            client.sendall(b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n{" % size)
            assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_ids_are_made_from_the_idempotency_key_or_at_random(collector: Any) -> None:
    without = [{"event": "view"}, {"event": "view", "id": "own"}, {"event": "view"}]
    for _ in range(2):
        reply = collector.post(without, idempotency_key="order-7")
        assert "ids" not in reply.json
    found = Counter(row["id"] for row in collector.events())
    assert len(found) == 3
    assert set(found.values()) == {2}
    assert collector.post(without).json["ids"] == "made"
    assert len({row["id"] for row in collector.events()}) == 5


def test_a_clock_that_is_wrong_is_corrected(collector: Any) -> None:
    hour = 3_600_000
    now = now_ms()
    collector.post({"sent_at": now - hour, "events": [{"event": "view", "id": "envelope", "time": now - hour - 500}]})
    collector.post({"event": "view", "id": "header", "time": now - hour - 500}, tallymark_sent_at=str(now - hour))
    collector.post({"event": "view", "id": "field", "time": now - hour - 500, "sent_at": now - hour})
    collector.post({"event": "view", "id": "network", "time": now - 500}, tallymark_sent_at=str(now - 4000))
    collector.post({"event": "view", "id": "no time"}, tallymark_sent_at=str(now - hour))
    rows = {row["id"]: row for row in collector.events()}
    for name in ("envelope", "header", "field"):
        assert rows[name]["shift"] == rows[name]["received"] - (now - hour)
        assert abs(rows[name]["time"] - (now - 500)) < 5000
    assert (rows["network"]["time"], rows["network"]["shift"]) == (now - 500, 0)
    assert (rows["no time"]["time"], rows["no time"]["shift"]) == (rows["no time"]["received"], 0)


def test_what_the_log_cannot_take_now_is_retryable_and_the_rest_is_accepted(collector: Any) -> None:
    collector.log.refusing[1] = "disk full"
    events = [{"event": "view", "id": str(number)} for number in range(50)]
    reply = collector.post([*events[:25], {"event": "no spaces"}, *events[25:]])
    taken = {row["id"] for row in collector.events()}
    assert 0 < len(taken) < 50
    assert reply.status == 202
    assert (reply.json["accepted"], reply.json["rejected"]) == (len(taken), 51 - len(taken))
    assert [error["index"] for error in reply.json["errors"]] == sorted(
        error["index"] for error in reply.json["errors"]
    )
    again = [error for error in reply.json["errors"] if error["retryable"]]
    places = [*events[:25], None, *events[25:]]
    assert {places[error["index"]]["id"] for error in again} == {event["id"] for event in events} - taken
    assert {error["code"] for error in again} == {"not_durable"}
    assert "disk full" in again[0]["detail"]
    # Only what is refused for good is a dead letter; the others come again.
    assert [letter.reason for letter in collector.letters()] == ["bad_event"]
    collector.log.refusing.clear()
    resent = collector.post([places[error["index"]] for error in again])
    assert resent.json["accepted"] == len(again)
    assert {row["id"] for row in collector.events()} == {event["id"] for event in events}


def test_nothing_durable_is_503_and_not_ready_until_it_is_again(collector: Any) -> None:
    collector.log.refusing = {0: "disk full", 1: "disk full"}
    reply = collector.post([EVENT])
    assert (reply.status, reply.json["code"], reply.headers["retry-after"]) == (503, "not_durable", "1")
    assert reply.json["errors"][0]["retryable"] is True
    assert collector.get("/readyz").status == 503
    collector.log.refusing.clear()
    assert collector.post([EVENT]).status == 202
    assert collector.get("/readyz").status == 200


def test_a_log_that_raises_is_503_too(collector: Any) -> None:
    def broken(frames: Any) -> Any:
        raise OSError("input/output error")

    collector.log.append = broken
    assert collector.post([EVENT]).status == 503


def test_a_full_dead_letter_log_does_not_lose_the_answer(collector: Any) -> None:
    before = collector.metric("tallymark_collector_dead_letters_total", kept="no")
    collector.dead.refusing[0] = "disk full"
    assert collector.post([EVENT, {"event": ""}]).status == 202
    assert collector.metric("tallymark_collector_dead_letters_total", kept="no") == before + 1


def test_wait_applied_answers_200_once_counted_and_202_after_the_time_out(collector: Any) -> None:
    assert collector.post(EVENT, "/v1/events?wait=applied&timeout=0.05").status == 202
    collector.applied.update({0: 10, 1: 10})
    assert collector.post(EVENT, "/v1/events?wait=applied").status == 200

    collector.applied.clear()
    replies: list[Any] = []
    asking = threading.Thread(
        target=lambda: replies.append(collector.post(EVENT, "/v1/events?wait=applied&timeout=15"))
    )
    asking.start()
    collector.applied.update({0: 10, 1: 10})
    asking.join()
    assert replies[0].status == 200


def test_concurrent_requests_share_commits(make: Any) -> None:
    collector = make(commit_interval_ms=50)
    replies: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: replies.append(collector.post({"event": "view", "id": str(n)}).status))
        for n in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [202] * 40
    assert sorted(int(row["id"]) for row in collector.events()) == list(range(40))
    assert collector.log.appends < 20


def test_received_is_accepted_plus_refused(collector: Any) -> None:
    names = ("received", "accepted", "refused")
    before = {name: collector.metric(f"tallymark_collector_events_{name}_total") for name in names}
    collector.post([EVENT, EVENT, {"event": ""}])
    collector.log.refusing = {0: "no", 1: "no"}
    collector.post([EVENT])
    gained = {name: collector.metric(f"tallymark_collector_events_{name}_total") - before[name] for name in names}
    assert gained == {"received": 4, "accepted": 2, "refused": 2}
    assert collector.metric("tallymark_collector_events_refused_total", code="not_durable") >= 1


def test_origins_that_are_configured_may_send_from_a_browser(make: Any) -> None:
    collector = make(cors_origins="https://a.example")
    allowed = collector.post(EVENT, origin="https://a.example")
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    foreign = collector.post(EVENT, origin="https://b.example")
    assert (foreign.status, "access-control-allow-origin" in foreign.headers) == (403, False)
    assert len(collector.events()) == 1
    refused = collector.post(b"", origin="https://a.example")
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (400, "https://a.example")
    preflight = collector.request("OPTIONS", "/v1/events", origin="https://a.example")
    assert preflight.status == 204
    assert "content-type" in preflight.headers["access-control-allow-headers"]


def test_problems_are_one_shape() -> None:
    assert json.loads(Problem(400, "bad_json", "why").body()).keys() == {"type", "title", "status", "code", "detail"}


@pytest.mark.parametrize(
    ("events", "bad", "elsewhere"),
    [(1, 0, False), (5_000, 0, False), (5_000, 1, True), (10_000, 0, True), (1, 1, False)],
)
def test_what_takes_long_to_judge_is_judged_in_another_thread(
    collector: Any, monkeypatch: pytest.MonkeyPatch, events: int, bad: int, elsewhere: bool
) -> None:
    #                     16 kB                      1 MB
    #  all is well   here   |   here                   |   in a thread
    #  with flaws    here   |   in a thread            |   in a thread
    threads = []

    def finish(*judged: Any) -> None:
        threads.append(threading.current_thread())
        finished(*judged)

    finished = validation._finish
    monkeypatch.setattr(validation, "_finish", finish)
    body = json.dumps(
        [{"event": "view", "id": f"{n:080}"} for n in range(events)] + [{"event": "view", "id": ""}] * bad
    )
    assert collector.post(body.encode()).json["accepted"] == events
    assert [thread is not collector._thread for thread in threads] == [elsewhere]
