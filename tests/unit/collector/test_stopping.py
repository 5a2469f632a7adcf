"""Stopping, and being one of several: nothing that was answered is lost, and nobody is sent to one that leaves."""

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from tallymark import log
from tallymark.collector import service
from tallymark.testing import until


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
