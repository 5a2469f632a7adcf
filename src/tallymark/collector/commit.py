"""Group commit: requests that are in hand together become one write to the log, and are answered when it is durable."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from tallymark import telemetry
from tallymark.collector import dead_letters
from tallymark.events import columns, frame
from tallymark.events.refusals import CODES
from tallymark.events.validation import Accepted, Refusal
from tallymark.log.local.append_clock import steady_ns
from tallymark.log.protocol import Appended, LogError, LogWriter, NotAppended, Outgoing

MAX_COMMIT_EVENTS = 32_768
# Of their bodies, which is about what their columns take. A request that is larger by itself is written alone.
MAX_COMMIT_BYTES = 8_000_000
# A failure that is older than this says nothing about now: somebody must be let in to try.
FAILING_S = 10.0
# After a commit that failed as a whole and took this long, those who waited for it are not kept waiting for another.
SLOW_FAILURE_S = 1.0
# What waits longer to be appended is to be sent again. Whether a late copy may have been counted before is judged by
# its receipt and append time, which are not of one clock: the pipeline must know how far apart they can be.
MOST_WAIT_S = 30

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
class _Written:
    """What became of the events of a commit; they are counted through all its requests."""

    offsets: dict[int, int] = field(default_factory=dict)
    """partition -> last offset"""
    failed: dict[int, str] = field(default_factory=dict)
    """event -> why it is not durable"""
    oversized: dict[int, int] = field(default_factory=dict)
    """event -> its bytes, which are more than a frame may have"""


@dataclass(slots=True)
class _Waiting:
    request: Accepted
    answered: "asyncio.Future[Outcome]"
    since_ns: int


class Committer:
    """Takes validated requests and answers each once its events are durable. One commit is under way at a time."""

    def __init__(
        self,
        events: LogWriter,
        dead_letters: LogWriter,
        partitioner: Partitioner,
        *,
        interval_s: float,
        clock_ns: Callable[[], int] = steady_ns,
    ) -> None:
        self._events, self._dead, self._partitioner = events, dead_letters, partitioner
        self._interval_s, self._clock_ns = interval_s, clock_ns
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
        self._waiting.append(_Waiting(request, answered, self._clock_ns()))
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
            if not group and self._closing.is_set():
                return
            if group := self._in_time(group):
                try:
                    outcomes = await loop.run_in_executor(self._thread, self._write, [each.request for each in group])
                    self._count(outcomes)
                except Exception as error:  # a fault of ours: those requests fail, the next ones are still served  # noqa: BLE001
                    _fail(group, error)
                    continue
                _answer(group, outcomes)
                if self._slow_failure:
                    self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        """A log that is away would keep the last of them waiting for as many time-outs as there are commits."""
        group, self._waiting = self._waiting, []
        self._give_up(group, self._slow_failure)
        if not self._closing.is_set():
            self._arrived.clear()

    def _in_time(self, group: list[_Waiting]) -> list[_Waiting]:
        """Those that have not waited too long; the others are answered."""
        oldest_ns = self._clock_ns() - MOST_WAIT_S * 1_000_000_000
        late = [each for each in group if each.since_ns < oldest_ns]
        if late:
            self._give_up(late, f"it waited more than {MOST_WAIT_S} s in the queue")
        return [each for each in group if each.since_ns >= oldest_ns]

    def _give_up(self, group: list[_Waiting], reason: str) -> None:
        outcomes = [
            _outcomes([each.request], _Written(failed=dict.fromkeys(range(len(each.request.events)), reason)))[0]
            for each in group
        ]
        lost = sum(len(each.request.refusals) for each in group)
        telemetry.COLLECTOR_DEAD.labels("no").inc(lost)
        self._count(outcomes)
        _answer(group, outcomes)

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
        events = size = count = 0
        for waiting in self._waiting:
            events += len(waiting.request.events)
            size += waiting.request.size_bytes
            if count and (events > MAX_COMMIT_EVENTS or size > MAX_COMMIT_BYTES):
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
                written = self._append(requests)
            except Exception as error:  # a request must be answered, also when the log or the code fails
                level = logging.WARNING if isinstance(error, LogError | OSError) else logging.ERROR
                logger.log(level, "commit failed; clients are told to retry its events", exc_info=error)
                written = _Written(failed=dict.fromkeys(range(count), f"{type(error).__name__}: {error}"))
            ended = time.monotonic()
            reason = next(iter(written.failed.values()), "")
            self._failure = (reason, ended) if written.failed else None
            failed_slowly = len(written.failed) == count > 0 and ended - begun > SLOW_FAILURE_S
            self._slow_failure = reason if failed_slowly else ""
            _refuse(requests, written.oversized)
            self._keep_refused(requests)
        telemetry.COLLECTOR_COMMITS.inc()
        return _outcomes(requests, written)

    def _append(self, requests: list[Accepted]) -> _Written:
        """What became of the events, which are counted through all requests."""
        written = _Written()
        if not any(request.events for request in requests):
            return written
        batch = columns.batch([request for request in requests if request.events])
        outgoing, rows = self._frames(batch, written)
        for outcome, places in zip(self._events.append(outgoing), rows, strict=True):
            match outcome:
                case Appended(partition, offset):
                    written.offsets[partition] = max(offset, written.offsets.get(partition, offset))
                case NotAppended(_, reason):
                    written.failed |= dict.fromkeys(places.tolist(), reason)
        return written

    def _frames(self, batch: pa.RecordBatch, written: _Written) -> tuple[list[Outgoing], list[Any]]:
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
                if len(payload) <= frame.MAX_FRAME_BYTES:
                    outgoing.append(Outgoing(partition, payload, events))
                    rows.append(places[used : used + events])
                else:  # one event
                    written.oversized[int(places[used])] = len(payload)
                used += events
            start += len(places)
        return outgoing, rows

    def _keep_refused(self, requests: list[Accepted]) -> None:
        """Keep the refused events as dead letters; if that fails they are counted as lost, and their senders know."""
        records = list(dead_letters.dead_records(requests))
        if not records:
            return
        try:
            outcomes: Sequence[Appended | NotAppended] = self._dead.append([each.record for each in records])
        except Exception as error:
            logger.error("%d dead letters lost", sum(each.record.events for each in records), exc_info=error)
            outcomes = [NotAppended(0, str(error))] * len(records)
        for each, outcome in zip(records, outcomes, strict=True):
            kept = each.kept if isinstance(outcome, Appended) else 0
            telemetry.COLLECTOR_DEAD.labels("yes").inc(kept)
            telemetry.COLLECTOR_DEAD.labels("no").inc(each.record.events - kept)


def _answer(group: list[_Waiting], outcomes: list[Outcome]) -> None:
    for each, outcome in zip(group, outcomes, strict=True):
        if not each.answered.done():
            each.answered.set_result(outcome)


def _fail(group: list[_Waiting], error: Exception) -> None:
    for each in group:
        if not each.answered.done():
            each.answered.set_exception(error)


def _refuse(requests: list[Accepted], oversized: dict[int, int]) -> None:
    """No frame has room for these events, now or ever: not to be sent again, so not `not_durable`."""
    if not oversized:
        return
    start = 0
    for request in requests:
        for place, event in enumerate(request.events):
            if (size := oversized.get(start + place)) is not None:
                detail = f"the event takes {size:,} bytes in the log; at most {frame.MAX_FRAME_BYTES:,} are allowed"
                raw = msgspec.json.encode(event)
                request.refusals.append(Refusal(request.indexes[place], "too_large", detail, raw, id=event.id))
        start += len(request.events)


def _outcomes(requests: list[Accepted], written: _Written) -> list[Outcome]:
    if not written.failed and not written.oversized:
        return [Outcome(len(request.events), request.refusals, written.offsets) for request in requests]
    outcomes, start = [], 0
    for request in requests:
        places = range(start, start + len(request.events))
        never = sum(place in written.oversized for place in places)
        lost = _lost(request, {place - start: written.failed[place] for place in places if place in written.failed})
        refusals = sorted([*request.refusals, *lost], key=lambda refusal: refusal.index)
        outcomes.append(Outcome(len(request.events) - len(lost) - never, refusals, written.offsets))
        start += len(request.events)
    return outcomes


def _lost(request: Accepted, failed: dict[int, str]) -> list[Refusal]:
    """The refusals of the events that are not durable, and of their twins.

    Ids made from a key tell equal events apart by their number in the request. A client that sends only some of them
    again would number them anew, so all are to be sent again, and those that are in the log are duplicates then.
    """
    for twins in request.twins:
        reason = next((failed[place] for place in twins if place in failed), None)
        if reason is not None:
            failed |= dict.fromkeys(twins, reason)
    return [
        Refusal(
            request.indexes[place],
            "not_durable",
            f"the log cannot take it now: {reason}",
            b"",
            retryable=True,
            id=request.events[place].id,
        )
        for place, reason in failed.items()
    ]
