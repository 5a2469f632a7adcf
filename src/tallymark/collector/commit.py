"""Group commit: requests that are in hand together become one write to the log, and are answered when it is durable."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tallymark import telemetry
from tallymark.collector import dead
from tallymark.events import columns, frame
from tallymark.events.refusals import CODES
from tallymark.events.validation import Accepted, Refusal
from tallymark.log.protocol import Appended, LogError, LogWriter, NotAppended, Outgoing

MAX_COMMIT_EVENTS = 32_768
# A failure that is older than this says nothing about now: somebody must be let in to try.
FAILING_S = 10.0
# After a commit that failed as a whole and took this long, those who waited for it are not kept waiting for another.
SLOW_FAILURE_S = 1.0

logger = logging.getLogger(__name__)


class Partitioner(Protocol):
    def assign(self, batch: pa.RecordBatch) -> Any:
        """The partition of each event."""
        ...


@dataclass(slots=True)
class Outcome:
    """What became of one request's good events."""

    accepted: int
    refusals: list[Refusal]
    """those of the validation, and the events the log could not take now"""
    offsets: dict[int, int] = field(default_factory=dict)
    """partition -> the last offset that may hold one of them"""


@dataclass(slots=True)
class _Waiting:
    request: Accepted
    answered: "asyncio.Future[Outcome]"


class Committer:
    """Takes validated requests and answers each once its events are durable. One commit is under way at a time."""

    def __init__(
        self, events: LogWriter, dead_letters: LogWriter, partitioner: Partitioner, *, interval_s: float
    ) -> None:
        self._events, self._dead, self._partitioner = events, dead_letters, partitioner
        self._interval_s = interval_s
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._closing = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")
        self._task = asyncio.create_task(self._run(), name="commit")
        self._refused = {code: telemetry.COLLECTOR_REFUSED.labels(code) for code in CODES}
        for kept in ("yes", "no"):
            telemetry.COLLECTOR_DEAD.labels(kept)
        self._failure: tuple[str, float] | None = None
        self._slow_failure = ""

    @property
    def failing(self) -> str | None:
        """Why the last commit could not be made durable, if it could not, and that was just now."""
        if self._failure is None or time.monotonic() - self._failure[1] > FAILING_S:
            return None
        return self._failure[0]

    async def commit(self, request: Accepted) -> Outcome:
        if self._closing.is_set():
            raise RuntimeError("the collector is stopping")
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(request, answered))
        self._arrived.set()
        return await answered

    async def close(self) -> None:
        """Write what is waiting, then stop."""
        self._closing.set()
        self._arrived.set()
        await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._interval_s)
            group = self._next_group()
            if group:
                try:
                    outcomes = await loop.run_in_executor(self._thread, self._write, [each.request for each in group])
                    self._count(outcomes)
                except Exception as error:  # a fault of ours: those requests fail, the next ones are still served
                    _fail(group, error)
                    continue
                _answer(group, outcomes)
                if self._slow_failure:
                    self._give_up_waiting()
            elif self._closing.is_set():
                return

    def _give_up_waiting(self) -> None:
        """A log that is away would keep the last of them waiting for as many time-outs as there are commits."""
        group, self._waiting = self._waiting, []
        outcomes = [
            _outcomes([each.request], {}, dict.fromkeys(range(len(each.request.events)), self._slow_failure))[0]
            for each in group
        ]
        lost = sum(len(each.request.refusals) for each in group)
        telemetry.COLLECTOR_DEAD.labels("no").inc(lost)
        self._count(outcomes)
        _answer(group, outcomes)
        if not self._closing.is_set():
            self._arrived.clear()

    def _count(self, outcomes: list[Outcome]) -> None:
        # All at once in the loop's thread, so that received = accepted + refused whenever it is looked at.
        accepted = sum(outcome.accepted for outcome in outcomes)
        refused = Counter(refusal.code for outcome in outcomes for refusal in outcome.refusals)
        telemetry.COLLECTOR_RECEIVED.inc(accepted + refused.total())
        telemetry.COLLECTOR_ACCEPTED.inc(accepted)
        for code, count in refused.items():
            self._refused[code].inc(count)

    def _next_group(self) -> list[_Waiting]:
        """The requests of the next commit, as many as its size allows, but at least one."""
        events = count = 0
        for waiting in self._waiting:
            events += len(waiting.request.events)
            if count and events > MAX_COMMIT_EVENTS:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        if not self._waiting and not self._closing.is_set():
            self._arrived.clear()
        return group

    def _write(self, requests: list[Accepted]) -> list[Outcome]:
        """In the commit thread: one outcome a request, whatever happens."""
        count = sum(len(request.events) for request in requests)
        begun = time.monotonic()
        with telemetry.COLLECTOR_COMMIT_SECONDS.time():
            try:
                offsets, failed = self._append(requests)
            except Exception as error:  # a request must be answered, also when the log or the code fails
                level = logging.WARNING if isinstance(error, LogError | OSError) else logging.ERROR
                logger.log(level, "commit failed; its events are answered as retryable", exc_info=error)
                offsets, failed = {}, dict.fromkeys(range(count), f"{type(error).__name__}: {error}")
            ended = time.monotonic()
            reason = next(iter(failed.values()), "")
            self._failure = (reason, ended) if failed else None
            failed_slowly = len(failed) == count > 0 and ended - begun > SLOW_FAILURE_S
            self._slow_failure = reason if failed_slowly else ""
            self._bury(requests)
        telemetry.COLLECTOR_COMMITS.inc()
        return _outcomes(requests, offsets, failed)

    def _append(self, requests: list[Accepted]) -> tuple[dict[int, int], dict[int, str]]:
        """Partition -> last offset, and event -> why it is not durable (counting through all requests)."""
        if not any(request.events for request in requests):
            return {}, {}
        batch = columns.batch([request for request in requests if request.events])
        outgoing, rows = self._frames(batch)
        offsets: dict[int, int] = {}
        failed: dict[int, str] = {}
        for outcome, places in zip(self._events.append(outgoing), rows, strict=True):
            match outcome:
                case Appended(partition, offset):
                    offsets[partition] = max(offset, offsets.get(partition, offset))
                case NotAppended(_, reason):
                    failed |= dict.fromkeys(places.tolist(), reason)
        return offsets, failed

    def _frames(self, batch: pa.RecordBatch) -> tuple[list[Outgoing], list[Any]]:
        """The batch cut by partition into frames, and the places in it that each frame took."""
        partitions = self._events.partitions
        if partitions == 1:
            groups = [(0, np.arange(batch.num_rows))]
        else:
            assigned = np.asarray(self._partitioner.assign(batch))
            order = np.argsort(assigned, kind="stable")
            # One gather and slices without copies cost less than a filter for each partition.
            batch = batch.take(order)
            ends = np.cumsum(np.bincount(assigned, minlength=partitions)).tolist()
            starts = [0, *ends[:-1]]
            groups = [(number, order[start:end]) for number, (start, end) in enumerate(zip(starts, ends, strict=True))]
        outgoing, rows = [], []
        start = 0
        for partition, places in groups:
            if len(places) == 0:
                continue
            used = 0
            for events, payload in frame.frames(batch.slice(start, len(places))):
                outgoing.append(Outgoing(partition, payload, events))
                rows.append(places[used : used + events])
                used += events
            start += len(places)
        return outgoing, rows

    def _bury(self, requests: list[Accepted]) -> None:
        """Keep the refused events as dead letters; if that fails they are counted as lost, and their senders know."""
        burials = list(dead.burials(requests))
        if not burials:
            return
        try:
            outcomes: Sequence[Appended | NotAppended] = self._dead.append([burial.record for burial in burials])
        except Exception as error:
            logger.error("%d dead letters lost", sum(burial.record.events for burial in burials), exc_info=error)
            outcomes = [NotAppended(0, str(error))] * len(burials)
        for burial, outcome in zip(burials, outcomes, strict=True):
            kept = burial.kept if isinstance(outcome, Appended) else 0
            telemetry.COLLECTOR_DEAD.labels("yes").inc(kept)
            telemetry.COLLECTOR_DEAD.labels("no").inc(burial.record.events - kept)


def _answer(group: list[_Waiting], outcomes: list[Outcome]) -> None:
    for each, outcome in zip(group, outcomes, strict=True):
        if not each.answered.done():
            each.answered.set_result(outcome)


def _fail(group: list[_Waiting], error: Exception) -> None:
    for each in group:
        if not each.answered.done():
            each.answered.set_exception(error)


def _outcomes(requests: list[Accepted], offsets: dict[int, int], failed: dict[int, str]) -> list[Outcome]:
    if not failed:
        return [Outcome(len(request.events), request.refusals, offsets) for request in requests]
    outcomes, start = [], 0
    for request in requests:
        lost = [
            Refusal(index, "not_durable", f"the log cannot take it now: {failed[start + place]}", b"", retryable=True)
            for place, index in enumerate(request.indexes)
            if start + place in failed
        ]
        refusals = sorted([*request.refusals, *lost], key=lambda refusal: refusal.index)
        outcomes.append(Outcome(len(request.events) - len(lost), refusals, offsets))
        start += len(request.events)
    return outcomes
