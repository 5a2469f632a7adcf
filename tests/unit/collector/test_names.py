"""A name for every event: refused beyond the limit, and harmless below it."""

import base64
import json
import threading
import uuid
from typing import Any

import numpy as np

from tallymark.events import frame
from tallymark.testing import MemoryLog


def distinct(count: int) -> bytes:
    """Events with names of 128 letters that hardly compress."""
    rng = np.random.default_rng(1)
    made = ["e" + base64.b32encode(rng.bytes(80)).decode()[1:] for _ in range(count)]
    assert {len(name) for name in made} == {128}
    return json.dumps([{"event": name} for name in made]).encode()


def sizes(log: MemoryLog) -> list[int]:
    positions = log.positions()
    return [len(record.payload) for number in positions for record in log.read(number, 0, positions[number].end)]


def test_names_beyond_the_limit_are_refused_for_good_and_told_what_to_do(make: Any) -> None:
    collector = make(max_event_names=100)
    before = collector.metric("tallymark_collector_events_refused_total", code="too_many_names")
    assert collector.post({"event": "sale"}).status == 202
    reply = collector.post([{"event": f"view:{uuid.uuid4()}"} for _ in range(500)])
    assert (reply.status, reply.json["accepted"], reply.json["rejected"]) == (202, 99, 401)
    assert {(error["code"], error["retryable"]) for error in reply.json["errors"]} == {("too_many_names", False)}
    assert "collector.max_event_names = 100; put the part that varies into `props`" in str(reply.json["errors"][0])
    assert collector.post({"event": "view:one-more"}).status == 422
    assert collector.post({"event": "sale"}).status == 202, "known names go on"
    assert collector.metric("tallymark_collector_event_names") == 100
    assert collector.metric("tallymark_collector_events_refused_total", code="too_many_names") == before + 402
    assert sum(letter.events for letter in collector.letters() if letter.reason == "too_many_names") == 402


def test_a_flood_of_names_after_a_restart_does_not_shut_out_those_in_use(make: Any) -> None:
    before = make(max_event_names=200)
    assert before.post([{"event": "sale"}, {"event": "view"}]).status == 202
    before.stop()
    collector = make(max_event_names=200)
    assert collector.metric("tallymark_collector_event_names") == 2
    for _ in range(3):
        collector.post([{"event": f"view:{uuid.uuid4()}"} for _ in range(200)])
    assert collector.post({"event": "view:one-more"}).status == 422
    assert collector.post([{"event": "sale"}, {"event": "view"}]).json["accepted"] == 2


def test_one_request_leaves_room_for_the_new_names_of_others(make: Any) -> None:
    collector = make(max_event_names=10_000)
    reply = collector.post([{"event": f"view:{number}"} for number in range(10_000)])
    assert (reply.json["accepted"], reply.json["rejected"]) == (1_000, 9_000)
    assert collector.post({"event": "sale"}).status == 202


def test_ten_thousand_names_in_one_request_are_written_once(make: Any) -> None:
    collector = make(max_event_names=1_000_000)
    body = distinct(10_000)
    assert collector.post(body).json["accepted"] == 10_000
    assert sum(sizes(collector.log)) < 2 * len(body)
    assert max(sizes(collector.log)) <= frame.MAX_FRAME_BYTES
    assert len(sizes(collector.log)) <= 6
    assert len({row["event"] for row in collector.events()}) == 10_000


def test_a_name_for_each_of_24_000_events_is_a_matter_of_limits(make: Any) -> None:
    body = json.dumps([{"event": f"view:{uuid.uuid4()}"} for _ in range(24_000)]).encode()
    assert make().post(body).status == 413
    collector = make(max_request_events=24_000)
    reply = collector.post(body)
    assert (reply.status, reply.json["accepted"], reply.json["rejected"]) == (202, 1_000, 23_000)
    assert "1,000 new names that one request may bring" in reply.json["errors"][0]["detail"]
    collector = make(max_request_events=24_000, max_event_names=240_000)
    assert collector.post(body).json["accepted"] == 24_000
    assert sum(sizes(collector.log)) < 2 * len(body)


def test_honest_requests_are_answered_beside_it(make: Any) -> None:
    collector = make(max_event_names=1_000_000)
    body = distinct(10_000)
    sending = [threading.Thread(target=collector.post, args=(body,)) for _ in range(3)]
    for thread in sending:
        thread.start()
    assert [collector.post({"event": "view", "id": str(n)}).status for n in range(20)] == [202] * 20
    for thread in sending:
        thread.join()
    assert len(collector.events()) == 30_020
