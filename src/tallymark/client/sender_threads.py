"""The threads that drive the engine: they take the next batch, send it to its address and do what follows."""

import math
import threading
from collections.abc import Callable
from contextlib import suppress

from tallymark.client.attempt import Attempt, Report
from tallymark.client.batch import Batch
from tallymark.client.clock import Clock
from tallymark.client.engine import FULL, NEWS, Engine
from tallymark.client.errors import CLOSED, DAMAGED, SPILL_FAILED, SPILL_FULL
from tallymark.client.errors import FULL as NO_ROOM
from tallymark.client.http_sender import HttpSender
from tallymark.client.options import Options
from tallymark.client.reports import Reports
from tallymark.client.spill import Spill, SpillDamaged, SpillFull
from tallymark.client.stats import Stats
from tallymark.client.transport import Answer, NoAnswer

GOODBYE_S = 1.0
"""how long `close` waits for idle threads to end"""
MAX_WAIT_S = 60.0
"""a thread checks again after this time, whatever the engine says"""


class SenderThreads:
    """The part of a client that belongs to one process: a fork gets its own.

    `_lock` guards the engine. It is held for microseconds: files, sockets and callbacks are touched without it.
    """

    def __init__(
        self,
        engine: Engine,
        options: Options,
        clock: Clock,
        *,
        spill: Spill | None,
        reports: Reports,
        new_sender: Callable[[], HttpSender],
        threads: int,
    ) -> None:
        self._engine, self._options, self._clock = engine, options, clock
        self._offer = engine.offer
        self._spill, self._reports, self._new_sender = spill, reports, new_sender
        # Reentrant: a signal handler may count while the thread that it interrupts is counting.
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        self._waiting = 0
        self._turn = threading.Lock()
        self._wanted_threads = threads
        self._threads: list[threading.Thread] = []
        self._started = self._closing = False
        self._closer = 0
        self._closed = threading.Event()
        if spill is not None and spill.adopted:
            self._start()

    # The callers' side

    def put_if_room(self, event: bytes) -> bool:
        with self._lock:
            offered = self._offer(event)
            if offered == NEWS:
                self._work.notify()
        if not self._started:
            self._start()
        return offered != FULL

    def put_when_full(self, event: bytes) -> None:
        """Applies `when_full`: may wait for room or write to disk."""
        if self._closing:
            self._drop(event, CLOSED)
        elif self._options.when_full == "drop":
            self._drop(event, NO_ROOM)
        elif self._options.when_full == "spill":
            self._put_spilling(event)
        else:
            self._put_waiting(event)

    def drop(self, event: bytes) -> None:
        """Give up an event for which there was no room in time."""
        self._drop(event, CLOSED if self._closing else NO_ROOM)

    @property
    def closing(self) -> bool:
        return self._closing

    def _put_waiting(self, event: bytes) -> None:
        taken = False

        def is_decided() -> bool:
            nonlocal taken
            taken = not self._closing and self._offered(event)
            return taken or self._closing

        self._wait_for(is_decided, self._options.block_s)
        if not taken:
            self.drop(event)

    def _offered(self, event: bytes) -> bool:
        offered = self._engine.offer(event)
        if offered == NEWS:
            self._work.notify()
        return offered != FULL

    def _drop(self, event: bytes, reason: str) -> None:
        with self._lock:
            dropped = self._engine.drop(event, reason)
        self._reports.dropped([dropped])

    def _put_spilling(self, event: bytes) -> None:
        while True:
            with self._lock:
                if self._offered(event):
                    return
                oldest = self._engine.overflow()
                batch = oldest if oldest is not None else self._engine.alone(event)
            self._store(batch)
            if oldest is None:
                return

    def _store(self, batch: Batch) -> None:
        """To a file, or reported as dropped."""
        assert self._spill is not None
        try:
            file = self._spill.write(batch.number, batch.events, tried_ms=batch.first_try_ms, tenant=batch.tenant)
        except SpillFull:
            self._lose(batch, SPILL_FULL)
        except OSError:
            self._lose(batch, SPILL_FAILED)
        except BaseException:
            # Control-C, say: the caller gets it, but every event still needs an outcome.
            self._lose(batch, SPILL_FAILED)
            raise
        else:
            with self._lock:
                report = self._engine.stored(batch, file)
                self._tell_waiting()
                self._work.notify()
            self._do(report)

    def _lose(self, batch: Batch, reason: str) -> None:
        with self._lock:
            report = self._engine.lost(batch, reason)
            self._tell_waiting()
            self._work.notify()
        self._do(report)

    def flush(self, timeout: float | None) -> bool:
        with self._lock:
            number = self._engine.flush()
            self._work.notify()
        return self._wait_for(lambda: not self._engine.holds(number), timeout)

    def close(self, timeout: float | None) -> None:
        """The first caller does it; the others wait."""
        clean = self._closing or self.flush(timeout)
        with self._lock:
            is_first = not self._closing
            if is_first:
                self._closing, self._closer = True, threading.get_ident()
                left = self._engine.abandon()[::-1]
                self._work.notify_all()
                self._settled.notify_all()
        if not is_first:
            # A callback called by `close` may call `close` itself.
            if self._closer != threading.get_ident():
                self._closed.wait(_bearable(timeout))
            return
        try:
            self._put_away(left)
            if clean:
                self._join()
        finally:
            if self._spill is not None:
                self._spill.close()
            self._closed.set()

    def _put_away(self, left: list[Batch]) -> None:
        """To files, or reported as dropped; `left` has the oldest at its end."""
        try:
            while left:
                batch = left.pop()
                if self._spill is not None:
                    self._store(batch)
                else:
                    self._lose(batch, CLOSED)
        finally:
            for batch in left:
                self._lose(batch, CLOSED)

    def _join(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(GOODBYE_S)

    def stats(self) -> Stats:
        with self._lock:
            return self._engine.stats(spill_bytes=self._spill.bytes if self._spill is not None else 0)

    def forget(self) -> None:
        """In a forked child: everything here belongs to the parent."""
        if self._spill is not None:
            self._spill.forget()

    def _wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        with self._lock:
            self._waiting += 1
            try:
                return self._settled.wait_for(condition, _bearable(timeout))
            finally:
                self._waiting -= 1

    def _tell_waiting(self) -> None:
        if self._waiting:
            self._settled.notify_all()

    # The threads' side

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        # At the interpreter's end no thread can be started any more: then `close` stores or reports what there is.
        with suppress(RuntimeError):
            for number in range(self._wanted_threads):
                thread = threading.Thread(target=self._run, name=f"tallymark-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)
        # With none at all, because the system has no more for now, the next event tries again.
        self._started = bool(self._threads) or not self._wanted_threads

    def _run(self) -> None:
        sender = self._new_sender()
        try:
            # One thread at a time looks for work and the others rest, so that an event wakes one thread, not all.
            while True:
                with self._turn:
                    attempt = self._await_attempt()
                if attempt is None:
                    return
                try:
                    self.carry(attempt, sender)
                except BaseException as error:  # noqa: BLE001
                    # From a callback or a transport that calls sys.exit(), say: the thread has more to send.
                    self._reports.surprised(error)
        finally:
            sender.close()

    def _await_attempt(self) -> Attempt | None:
        with self._lock:
            while not self._closing:
                step = self._engine.next()
                if isinstance(step, Attempt):
                    return step
                self._work.wait(None if step is None else min(MAX_WAIT_S, max(0.0, step - self._clock.now())))
        return None

    def step(self, sender: HttpSender) -> Attempt | float | None:
        """One round of a sending thread, for callers without threads: `Engine.next`, then sending it."""
        with self._lock:
            step = self._engine.next()
        if isinstance(step, Attempt):
            self.carry(step, sender)
        return step

    def carry(self, attempt: Attempt, sender: HttpSender) -> None:
        events = self._events_of(attempt)
        if events is None:
            return
        try:
            outcome = sender.deliver(attempt, events)
        except BaseException as error:
            self._conclude(attempt, NoAnswer(f"no answer from {attempt.address.url}: {error!r}"))
            raise
        self._conclude(attempt, outcome)

    def _conclude(self, attempt: Attempt, outcome: Answer | NoAnswer) -> None:
        surprise: Exception | None = None
        with self._lock:
            if isinstance(outcome, NoAnswer):
                report = self._engine.failed(attempt, outcome)
            else:
                try:
                    report = self._engine.answered(attempt, outcome)
                except Exception as error:  # noqa: BLE001
                    # An answer that cannot be interpreted counts as none.
                    surprise = error
                    report = self._engine.failed(attempt, NoAnswer(f"no answer from {attempt.address.url}: {error!r}"))
            self._work.notify()
            self._tell_waiting()
        if surprise is not None:
            self._reports.surprised(surprise)
        if isinstance(outcome, NoAnswer):
            self._reports.failed(str(outcome))
        elif outcome.worth_a_retry:
            self._reports.failed(f"{attempt.address.url} answered with HTTP {outcome.status}")
        else:
            self._reports.went_well()
        self._do(report)

    def _events_of(self, attempt: Attempt) -> list[bytes] | None:
        """From memory or from the file; None if neither works."""
        file = attempt.batch.file
        if not attempt.batch.parked or file is None:
            return attempt.batch.events
        assert self._spill is not None
        try:
            events = self._spill.load(file)
            self._spill.mark_tried(file, attempt.sent_at_ms)
        except (SpillDamaged, FileNotFoundError) as error:
            with self._lock:
                report = self._engine.unreadable(attempt, DAMAGED if isinstance(error, SpillDamaged) else SPILL_FAILED)
                self._work.notify()
                self._tell_waiting()
            if not attempt.abandoned:
                self._spill.set_aside(file)
            self._do(report)
            return None
        except Exception as error:  # noqa: BLE001
            # The events are still there, and the problem may go away.
            with self._lock:
                self._engine.unloaded(attempt)
                self._work.notify()
                self._tell_waiting()
            self._reports.failed(f"{file.path} cannot be read: {error}")
            return None
        with self._lock:
            self._engine.loaded(attempt, events)
        return events

    def _do(self, report: Report) -> None:
        if self._spill is not None:
            for file in report.done:
                self._spill.remove(file)
        self._reports.refused(report.refused)
        self._reports.dropped(report.dropped)


def _bearable(timeout: float | None) -> float | None:
    """A lock cannot wait for `inf` seconds, only without a timeout."""
    return None if timeout is None or math.isinf(timeout) else min(timeout, threading.TIMEOUT_MAX)
