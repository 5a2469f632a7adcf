"""Sends a plan at its rate over several connections, and retries with the same ids until each outcome is known."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallymark.client.transport import Answer, NoAnswer, Request, Transport
from tallymark.load.encoding import Encoder
from tallymark.load.journal import Journal
from tallymark.load.plan import Plan

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
REQUEST_TIMEOUT_S = 10.0
HEADERS = {"content-type": "application/json"}


@dataclass
class Report:
    """What became of the sends so far."""

    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    retried: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """of refusals and of retries"""
    latencies_s: list[float] = field(default_factory=list)
    """per request, from the moment it was due, so that time spent waiting for a slow server counts"""
    behind_s: float = 0.0
    """the longest delay between the moment a request was due and its start"""
    seconds: float = 0.0
    cpu_s: float = 0.0
    last_acknowledged_ms: int = 0


class Sender:
    """`Sender(…).run()` returns when every send is acknowledged or refused, or `patience_s` is over."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        connect: Callable[[], Transport],
        *,
        batch: int,
        connections: int,
        patience_s: float,
    ) -> None:
        self.report = Report()
        self._plan, self._journal, self._connect = plan, journal, connect
        self._batch, self._connections, self._patience_s = batch, connections, patience_s
        self._encoder = Encoder(plan)
        self._next = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._begun = 0.0

    def start(self) -> list[threading.Thread]:
        self._begun = time.monotonic()
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._connections)]
        for thread in threads:
            thread.start()
        return threads

    def run(self, *, tick: Callable[[Report], None] = lambda report: None) -> Report:
        cpu = time.process_time()
        threads = self.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)
                    tick(self.report)
        except KeyboardInterrupt:
            self._stop.set()
            for thread in threads:
                thread.join(REQUEST_TIMEOUT_S)
        self.report.seconds = time.monotonic() - self._begun
        self.report.cpu_s = time.process_time() - cpu
        return self.report

    def _work(self) -> None:
        transport = self._connect()
        try:
            while (start := self._take()) is not None:
                end = min(start + self._batch, self._plan.sends)
                due = self._begun + end / self._plan.rate
                if self._stop.wait(max(0.0, due - time.monotonic())):
                    return
                self._deliver(transport, start, end, due)
        finally:
            transport.close()

    def _take(self) -> int | None:
        with self._lock:
            if self._next >= self._plan.sends:
                return None
            start, self._next = self._next, self._next + self._batch
            return start

    def _deliver(self, transport: Transport, start: int, end: int, due: float) -> None:
        """Send [start, end), then whatever of it still has no final outcome, until nothing is left."""
        sources = self._plan.sources(np.arange(start, end, dtype=np.uint64))
        left: Sequence[int] = range(start, end)
        body = self._encoder.encode(sources)
        pause_s = FIRST_PAUSE_S
        deadline = max(time.monotonic(), due) + self._patience_s
        with self._lock:
            self._journal.sending(start, end)
            self.report.sent += end - start
            self.report.behind_s = max(self.report.behind_s, time.monotonic() - due)
        while True:
            retry_after_s, reason, again = self._try(transport, body, left)
            if not again:
                break
            if time.monotonic() > deadline or self._stop.is_set():
                with self._lock:
                    self.report.unknown += len(again)
                return
            with self._lock:
                self.report.retried += len(again)
                self.report.reasons[reason] = self.report.reasons.get(reason, 0) + len(again)
            self._stop.wait(max(retry_after_s or 0.0, pause_s * random.uniform(0.5, 1.0)))
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
            if len(again) < len(left):
                left = again
                body = self._encoder.encode(sources[np.array(left) - start])
        with self._lock:
            self.report.latencies_s.append(time.monotonic() - due)

    def _try(self, transport: Transport, body: bytes, sends: Sequence[int]) -> tuple[float | None, str, Sequence[int]]:
        """One attempt: how long to wait, why, and which sends must be tried again."""
        try:
            answer = transport.exchange(Request("POST", "/v1/events", body, HEADERS), timeout_s=REQUEST_TIMEOUT_S)
        except NoAnswer:
            return None, "no answer", sends
        if answer.worth_a_retry:
            return answer.retry_after_s, f"HTTP {answer.status}", sends
        return answer.retry_after_s, "taken in part", self._settle(answer, sends)

    def _settle(self, answer: Answer, sends: Sequence[int]) -> Sequence[int]:
        """Records what the answer settles; returns the sends that must be sent again."""
        told = answer.json()
        if answer.status not in (200, 202, 422) or not isinstance(told, dict) or "accepted" not in told:
            self._note([], {f"HTTP {answer.status}": sends})
            return []
        again: list[int] = []
        refused: dict[str, list[int]] = {}
        errors: list[dict[str, Any]] = told.get("errors", [])
        for error in errors:
            send = sends[error["index"]]
            if error.get("retryable"):
                again.append(send)
            else:
                refused.setdefault(error["code"], []).append(send)
        out = {*again, *(send for some in refused.values() for send in some)}
        self._note([send for send in sends if send not in out] if out else sends, refused)
        return sorted(again)

    def _note(self, acknowledged: Sequence[int], refused: Mapping[str, Sequence[int]]) -> None:
        with self._lock:
            if acknowledged:
                self._journal.acknowledged(acknowledged)
                self.report.acknowledged += len(acknowledged)
                self.report.last_acknowledged_ms = time.time_ns() // 1_000_000
            for reason, some in refused.items():
                self._journal.refused(some)
                self.report.refused += len(some)
                self.report.reasons[reason] = self.report.reasons.get(reason, 0) + len(some)
