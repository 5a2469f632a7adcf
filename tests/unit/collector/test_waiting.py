"""A collector whose log is away: at its start, and later."""

import asyncio
import http.client
import json
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import uvloop

from tallymark.collector import commit, waiting
from tallymark.collector.waiting import opened
from tallymark.http import free_port
from tallymark.log.protocol import Appended, LayoutChanged, LogUnreachable, NotAppended, Outgoing
from tallymark.settings import CollectorSettings
from tallymark.testing import MemoryLog, until


class Start:
    """The first seconds of a collector, in a thread; its log opens once `there` is set."""

    def __init__(self) -> None:
        self.settings = CollectorSettings(port=free_port())
        self.there = threading.Event()
        self.tries = 0
        self.found: Any = "waiting"
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=lambda: uvloop.run(self._run()), daemon=True)
        self.thread.start()

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.found = await opened(self._open, self.settings, stop=self._stop)

    def _open(self) -> str:
        self.tries += 1
        if not self.there.is_set():
            raise LogUnreachable("no broker answers at 127.0.0.1:1")
        return "the log"

    def stop(self) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)

    def ask(self, method: str, path: str) -> tuple[int, Any, dict[str, str]] | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.settings.port, timeout=20)
        try:
            connection.request(method, path, b"{}" if method == "POST" else None)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), dict(answer.getheaders())
        except OSError:
            return None  # the port is not open yet
        finally:
            connection.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "RETRY_S", 0.05)


def test_it_waits_for_its_log_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        start = Start()
        status, report, _ = until(lambda: start.ask("GET", "/readyz"), "the port is open")
        assert (status, report["ready"]) == (503, False)
        assert "no broker answers at 127.0.0.1:1" in report["collector"]["troubles"][0]
        assert start.ask("GET", "/healthz")[:2] == (200, {"alive": True})
        status, problem, headers = start.ask("POST", "/v1/events")
        assert (status, problem["code"], headers["retry-after"]) == (503, "log_unreachable", "1")
        until(lambda: start.tries > 3, "it tries again and again")
        start.there.set()
        start.thread.join(20)
    assert start.found == "the log"
    assert start.ask("GET", "/healthz") is None  # the real service opens the port anew
    assert caplog.text.count("no broker answers") == 1


def test_it_can_be_stopped_while_it_waits() -> None:
    start = Start()
    until(lambda: start.ask("GET", "/readyz"), "the port is open")
    start.stop()
    start.thread.join(20)
    assert start.found is None


def test_what_waiting_does_not_mend_is_raised() -> None:
    def wrong() -> None:
        raise LayoutChanged("has 2 partitions")

    with pytest.raises(LayoutChanged):
        asyncio.run(opened(wrong, CollectorSettings(), stop=asyncio.Event()))


class AwayLog(MemoryLog):
    """Takes its time to refuse everything."""

    def __init__(self) -> None:
        super().__init__(2)
        self.reached, self.go = threading.Event(), threading.Event()

    def append(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
        self.reached.set()
        assert self.go.wait(20)
        self.appends += 1
        return [NotAppended(each.partition, "no broker answers") for each in frames]


def test_those_who_waited_for_a_log_that_is_away_are_not_kept_waiting_again(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "SLOW_FAILURE_S", 0.0)
    monkeypatch.setattr(commit, "MAX_COMMIT_EVENTS", 1)
    away = AwayLog()
    collector = make(log=away)
    replies: list[Any] = []
    senders = [
        threading.Thread(target=lambda number=number: replies.append(collector.post({"event": "v", "id": str(number)})))
        for number in range(6)
    ]
    senders[0].start()
    assert away.reached.wait(20)
    for sender in senders[1:]:
        sender.start()
    until(lambda: collector.metric("tallymark_collector_pending_bytes") >= 6 * 20, "all are waiting")
    away.go.set()
    for sender in senders:
        sender.join(20)
    assert [(reply.status, reply.json["code"]) for reply in replies] == [(503, "not_durable")] * 6
    assert all(reply.headers["retry-after"] for reply in replies)
    assert all(reply.json["errors"][0]["retryable"] for reply in replies)
    assert away.appends < 6
