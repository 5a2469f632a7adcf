"""Floods: the honest are served, memory stays bounded, and what is in hand at the end is answered."""

import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tallymark.testing import until

EVENT = {"event": "view", "id": "1"}


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if hard > 0 else 8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_1500_half_sent_requests_do_not_delay_an_honest_one(collector: Any) -> None:
    heads = (
        b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8000\r\n\r\n[",
        b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n[",
        b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\n",
    )
    with ExitStack() as stack:
        clients = [stack.enter_context(collector.connect()) for _ in range(1500)]
        for number, client in enumerate(clients):
            client.sendall(heads[number % 3])
        assert collector.post(EVENT).status == 202
        # It waited for none of them: they are all still there, unanswered, their time-outs not yet over.
        for client in clients:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)


def test_what_waits_for_the_log_is_bounded(make: Any) -> None:
    collector = make(max_pending_bytes=100_000)
    gate, append = threading.Event(), collector.log.append

    def held(frames: Any) -> Any:
        gate.wait(20)
        return append(frames)

    collector.log.append = held
    body = json.dumps([{"event": "view", "props": {"pad": "x" * 1000}}] * 20).encode()
    statuses: list[int] = []
    retries: list[str | None] = []

    def send() -> None:
        reply = collector.post(body)
        statuses.append(reply.status)
        retries.append(reply.headers.get("retry-after"))

    threads = [threading.Thread(target=send) for _ in range(20)]
    for thread in threads:
        thread.start()
    # 20 kB each: four are in hand, the others are sent away at once while the log is stuck.
    until(lambda: len(statuses) == 16, "sixteen answers")
    assert statuses == [503] * 16
    assert set(retries) == {"1"}
    assert collector.metric("tallymark_collector_pending_bytes") <= 100_000
    gate.set()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [202] * 4 + [503] * 16
    assert collector.metric("tallymark_collector_pending_bytes") == 0
    assert len(collector.events()) == 80


def test_bodies_that_are_sent_slowly_are_bounded_too(make: Any) -> None:
    collector = make(max_pending_bytes=100_000)
    with ExitStack() as stack:
        clients = [stack.enter_context(collector.connect()) for _ in range(10)]
        for client in clients:
            client.sendall(
                b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n" + b" " * 30_000
            )
        turned_away = 0
        for client in clients:
            client.settimeout(1.0)
            try:
                turned_away += client.recv(100).startswith(b"HTTP/1.1 503")
            except TimeoutError:
                continue
        assert turned_away == 7


def test_over_the_rate_is_429_with_the_time_to_wait(make: Any) -> None:
    collector = make(max_events_per_second=10)
    assert collector.post([EVENT] * 40).status == 202
    reply = collector.post(EVENT)
    assert (reply.status, reply.json["code"]) == (429, "over_the_rate")
    assert reply.headers["retry-after"] == "3"
    assert "max_events_per_second = 10" in reply.json["detail"]


def test_a_request_in_hand_is_answered_when_the_collector_stops(collector: Any) -> None:
    entered, gate, append = threading.Event(), threading.Event(), collector.log.append

    def held(frames: Any) -> Any:
        entered.set()
        gate.wait(20)
        return append(frames)

    collector.log.append = held
    replies: list[int] = []
    sending = threading.Thread(target=lambda: replies.append(collector.post(EVENT).status))
    sending.start()
    assert entered.wait(20)
    collector.ask_to_stop()
    gate.set()
    sending.join()
    assert replies == [202]
    collector.stop()
    with pytest.raises(OSError, match=r"refused|reset"):
        socket.create_connection(("127.0.0.1", collector.port), timeout=1)


def test_a_half_sent_body_and_a_waiting_client_do_not_hold_up_the_stop(make: Any) -> None:
    collector = make(body_timeout_s=60)
    replies: list[int] = []
    waiting = threading.Thread(
        target=lambda: replies.append(collector.post(EVENT, "/v1/events?wait=applied&timeout=60").status)
    )
    with collector.connect() as client:
        client.sendall(b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        waiting.start()
        until(lambda: collector.events(), "the waiting request is durable")
        started = time.monotonic()
        collector.stop()
        assert time.monotonic() - started < 10
        assert client.recv(100).startswith(b"HTTP/1.1 408")
    waiting.join()
    assert replies == [202]
