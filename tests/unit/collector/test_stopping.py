"""Stopping, and being one of several: nothing that was answered is lost, and nobody is sent to one that leaves."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tallymark import log
from tallymark.collector import service
from tallymark.events import frame
from tallymark.settings import load
from tallymark.testing import until

PROGRAM = """
import sys
from tallymark.collector.service import run
from tallymark.settings import load
flags = {"data": sys.argv[1], "collector.port": 0, "collector.commit_interval_ms": 50}
sys.exit(run(load(environment={}, flags=flags)))
"""
SENDERS = 8


def test_requests_in_hand_at_sigterm_are_answered_and_what_was_answered_is_durable(tmp_path: Path) -> None:
    place = tmp_path / "run" / "collector.json"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], env=os.environ)
    acknowledged: set[str] = set()
    statuses: list[int] = []
    broken_off: list[str] = []

    def send(sender: int) -> None:
        """A request after the other until no connection is taken any more."""
        number = 0
        while True:
            event = f"{sender}-{number}"
            connection = http.client.HTTPConnection(address, timeout=20)
            try:
                connection.connect()
            except OSError:
                return
            try:
                body = json.dumps({"event": "view", "id": event})
                connection.request("POST", "/v1/events", body, {"content-type": "application/json"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                # In the listener's queue, never taken: it may be sent again elsewhere.
                broken_off.append(event)
                return
            finally:
                connection.close()
            statuses.append(answer.status)
            acknowledged.add(event)
            number += 1

    try:
        until(lambda: place.exists() or process.poll() is not None, "the ready file")
        address = json.loads(place.read_text())["address"]
        senders = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        until(lambda: len(statuses) > 5 * SENDERS, "requests are under way")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        for sender in senders:
            sender.join(20)
    finally:
        process.kill()
        process.wait()
    assert set(statuses) == {202}
    assert acknowledged <= _in_the_log(tmp_path) <= acknowledged | set(broken_off)


def _in_the_log(folder: Path) -> set[str]:
    reader = log.open_reader(load(environment={}, flags={"data": str(folder)}), "events")
    records = [record for part, at in reader.positions().items() for record in reader.read(part, at.first, at.synced)]
    ids = [each for record in records for each in frame.decode(record.payload).column("id").to_pylist()]
    reader.close()
    assert len(ids) == len(set(ids))
    return set(ids)


@pytest.fixture
def one_of_several(make: Any) -> Any:
    """A collector whose log is shared with others, though it is in memory here."""
    return partial(make, log__kind="kafka", log__brokers="127.0.0.1:1")


def test_one_of_several_says_that_it_stops_before_it_closes_its_port(
    one_of_several: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LEAVE_S", 2.0)
    collector = one_of_several()
    assert collector.get("/readyz").status == 200
    collector.ask_to_stop()
    until(lambda: collector.get("/readyz").status == 503, "not ready")
    reply = collector.get("/readyz")
    assert reply.json["collector"] == {"ready": False, "troubles": ["stopping"]}
    # Who did not look is still served, until the port is closed.
    assert collector.post({"event": "view", "id": "late"}).status == 202
    collector.stop()
    assert [event["id"] for event in collector.events()] == ["late"]


def test_while_it_leaves_waiting_for_the_counts_goes_on(one_of_several: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    left = threading.Event()

    async def leave(stop: asyncio.Event, _: Any, halt: asyncio.Event, __: float) -> None:
        await stop.wait()
        await asyncio.to_thread(left.wait)
        halt.set()

    monkeypatch.setattr(service, "_leave", leave)
    collector = one_of_several()
    collector.ask_to_stop()
    until(lambda: collector.get("/readyz").status == 503, "not ready")
    counting = threading.Thread(target=lambda: _count_when_there(collector), daemon=True)
    counting.start()
    reply = collector.post({"event": "view", "id": "1"}, "/v1/events?wait=applied&timeout=20")
    counting.join()
    left.set()
    assert reply.status == 200


def test_who_waits_for_the_counts_is_answered_when_it_closes(make: Any) -> None:
    collector = make()
    replies: list[int] = []
    path = "/v1/events?wait=applied&timeout=60"
    waiting = threading.Thread(target=lambda: replies.append(collector.post({"event": "view"}, path).status))
    waiting.start()
    until(collector.events, "the event is in the log")
    collector.stop()
    waiting.join(20)
    assert replies == [202]


def _count_when_there(collector: Any) -> None:
    until(collector.events, "the event is in the log")
    collector.applied = {partition: standing.end for partition, standing in collector.log.positions().items()}


def test_a_log_that_does_not_answer_is_not_ready_and_recovers(one_of_several: Any) -> None:
    collector = one_of_several()
    answers = collector.log.positions

    def away() -> Any:
        raise log.LogUnreachable("no broker answers")

    collector.log.positions = away
    until(lambda: collector.get("/readyz").status == 503, "not ready")
    assert collector.get("/readyz").json["collector"]["troubles"] == ["the log does not answer: no broker answers"]
    assert collector.post({"event": "view", "id": "1"}).status == 202  # whether it takes events is asked of itself
    collector.log.positions = answers
    until(lambda: collector.get("/readyz").status == 200, "ready again")


def test_the_disk_is_no_matter_where_the_log_is_elsewhere(one_of_several: Any) -> None:
    assert one_of_several(min_free_bytes=10**18).get("/readyz").status == 200
