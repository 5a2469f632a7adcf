"""The client without its threads, sockets, files and clock: what to send next, and what an outcome means.

    offer ──> buffer ──> next ──> in flight ──> answered / failed
                 |         ^          |
                 |         |          +──> retries ──┐   (due after a pause, within the budget)
                 v         └─────────────────────────┤
              overflow ──> (file) ──> spilled ───────┘

Whoever drives it has to do what it names: send an `Attempt` to its address, write what `overflow` and `abandon`
return, remove the files and tell the user of the events in a `Report`. All methods are for one thread at a time.
"""

from bisect import insort
from collections.abc import Callable, Iterator, Sequence

from tallymark.client.account import Account
from tallymark.client.addresses import Address, Addresses, Health
from tallymark.client.attempt import Attempt, Report
from tallymark.client.backoff import BackOff, chance
from tallymark.client.batch import Batch
from tallymark.client.budget import RetryBudget
from tallymark.client.buffer import Buffer
from tallymark.client.clock import Clock
from tallymark.client.encoding import id_of
from tallymark.client.errors import Dropped, Refused
from tallymark.client.options import Options
from tallymark.client.retries import Retries
from tallymark.client.spill import SpillFile
from tallymark.client.stats import Stats
from tallymark.client.transport import Answer, NoAnswer, NotConnected, TimedOut
from tallymark.client.verdict import Verdict, judge

FULL, TAKEN, NEWS = 0, 1, 2
"""what `offer` returns: no room; taken; taken, and the sender should wake up"""
UNLOADED_S = 1.0
"""how long to wait after a file could not be read: too many open files, or a disk that is briefly unavailable"""


class Engine:
    def __init__(
        self,
        options: Options,
        clock: Clock,
        *,
        instance: str,
        adopted: Sequence[SpillFile] = (),
        chance: Callable[[], float] | None = chance,
    ) -> None:
        self._options, self._clock = options, clock
        self._account = Account(instance=instance, adopted=sum(file.events for file in adopted))
        self._buffer = Buffer(
            batch_events=options.batch_events,
            batch_bytes=options.batch_bytes,
            linger_s=options.linger_s,
            now=clock.now,
            tenant=options.tenant,
        )
        self._addresses = Addresses(
            [
                Address(url, min_timeout_s=options.min_timeout_s, max_timeout_s=options.max_timeout_s)
                for url in options.urls
            ],
            options.balance,
        )
        self._back_off = BackOff(options.first_pause_s, options.max_pause_s, chance=chance)
        self._budget = RetryBudget(now=clock.now())
        self._retries = Retries()
        self._spilled: list[Batch] = [
            Batch(number - len(adopted), [], first_try_ms=file.tried_ms, file=file, whole=True, tenant=file.tenant)
            for number, file in enumerate(adopted)
        ]
        self._attempts: dict[int, Attempt] = {}
        self._moving: dict[int, Batch] = {}
        """batches that are being written to a file"""
        self._max_events, self._max_bytes = options.max_events, options.max_bytes

    # Events come in

    def offer(self, event: bytes) -> int:
        """FULL, TAKEN or NEWS; an event that does not fit is not counted yet."""
        size, account = len(event), self._account
        if account.held_events >= self._max_events or account.held_bytes + size > self._max_bytes:
            return FULL
        account.called += 1
        account.held_events += 1
        account.held_bytes += size
        return NEWS if self._buffer.add(event, size) else TAKEN

    def drop(self, event: bytes, reason: str) -> Dropped:
        """Account for an event that was counted and is now given up."""
        self._account.called += 1
        self._account.dropped += 1
        return Dropped(event, id_of(event), reason)

    def overflow(self) -> Batch | None:
        """The oldest batch that is not in flight, to be written to a file: ends with `stored` or `lost`."""
        candidates = [batch for batch in self._retries if batch.file is None]
        if (first := self._buffer.oldest()) is not None:
            candidates.append(first)
        if not candidates:
            return None
        batch = min(candidates, key=lambda each: each.number)
        if batch is first:
            self._buffer.take()
        else:
            self._retries.remove(batch)
        self._moving[batch.number] = batch
        return batch

    def alone(self, event: bytes) -> Batch:
        """A batch of one for a file, for when all that is held is in flight."""
        batch = self._buffer.new_batch([event])
        self._account.called += 1
        self._account.hold(batch)
        self._moving[batch.number] = batch
        return batch

    def stored(self, batch: Batch, file: SpillFile) -> Report:
        del self._moving[batch.number]
        report = Report()
        self._let_go_of_file(batch, report)
        self._account.release(batch)
        batch.events, batch.file, batch.whole = [], file, True
        self._park(batch)
        return report

    def lost(self, batch: Batch, reason: str) -> Report:
        """Drop a batch that could not be stored, or need not be."""
        del self._moving[batch.number]
        self._account.release(batch)
        self._account.dropped += batch.count
        report = Report(dropped=[Dropped(event, id_of(event), reason) for event in batch.events])
        self._let_go_of_file(batch, report)
        return report

    # Batches go out

    def next(self) -> Attempt | float | None:
        """What to send now; otherwise when to ask again at the latest, or None: not until something happens."""
        if len(self._attempts) >= self._options.in_flight:
            return None
        now = self._clock.now()
        free_at = self._addresses.free_at()
        if free_at is None or free_at > now:
            return free_at
        taken = self._take(now)
        return self._begin(taken, now) if isinstance(taken, Batch) else taken

    def _take(self, now: float) -> Batch | float | None:
        """Retries first, then files (they are older than what is in memory), then the buffer."""
        moments: list[float] = []
        if (first := self._retries.first) is not None:
            at = self._due(first, now)
            if at <= now:
                return self._retries.take()
            moments.append(at)
        if self._spilled and self._loaded() < 2 * self._options.in_flight:
            at = self._due(self._spilled[0], now)
            if at <= now:
                return self._spilled.pop(0)
            moments.append(at)
        if (at_or_none := self._buffer.ready_at()) is not None:
            if at_or_none <= now:
                return self._buffer.take()
            moments.append(at_or_none)
        return min(moments, default=None)

    def _due(self, batch: Batch, now: float) -> float:
        return max(batch.due, self._budget.ready_at(now)) if batch.tries else batch.due

    def _begin(self, batch: Batch, now: float) -> Attempt:
        if batch.tries:
            self._budget.spend(now)
        else:
            self._budget.earn()
        if batch.parked:
            # Its size is known when it is loaded, near enough from the file until then.
            self._account.held_events += batch.count
        if batch.tries or batch.first_try_ms:
            self._account.retried += batch.count
        batch.tries += 1
        address = self._addresses.choose(now, after=batch.last)
        batch.last = address
        wall_ms, resent_ms = self._clock.wall_ms(), batch.first_try_ms
        batch.first_try_ms = batch.first_try_ms or wall_ms
        self._account.requests += 1
        attempt = Attempt(
            batch=batch,
            address=address,
            token=address.begin(),
            number=self._account.requests,
            begun=now,
            timeout_s=address.timeout.seconds,
            sent_at_ms=wall_ms,
            resent_ms=resent_ms,
            counters=self._account.header(spilled=self._spilled_events()),
        )
        self._attempts[attempt.number] = attempt
        return attempt

    def loaded(self, attempt: Attempt, events: list[bytes]) -> None:
        """The events of a batch that was in its file."""
        if not attempt.abandoned:
            attempt.batch.events = events
            self._account.held_bytes += attempt.batch.size

    def unreadable(self, attempt: Attempt, reason: str) -> Report:
        """A batch's file no longer has its events."""
        self._end(attempt, Health.NEITHER)
        if attempt.abandoned:
            return Report()
        batch = attempt.batch
        self._account.held_events -= batch.count
        self._account.dropped += batch.count
        return Report(dropped=[Dropped(b"", "", reason)] * batch.count)

    def unloaded(self, attempt: Attempt) -> Report:
        """A batch's file cannot be read right now: it stays where it is, to be tried again later."""
        self._end(attempt, Health.NEITHER)
        if not attempt.abandoned:
            attempt.batch.first_try_ms = attempt.resent_ms
            self._retry(attempt.batch, UNLOADED_S)
        return Report()

    # Outcomes

    def answered(self, attempt: Attempt, answer: Answer) -> Report:
        batch = attempt.batch
        verdict = judge(answer, batch.count)
        self._end(attempt, verdict.health)
        if answer.worth_a_retry and verdict.retry_after_s:
            attempt.address.hold(self._clock.now() + verdict.retry_after_s)
        if attempt.abandoned:
            return Report()
        if verdict.untouched:
            batch.first_try_ms = attempt.resent_ms
        report = Report()
        if verdict.split:
            self._split(batch)
        else:
            self._settle(batch, verdict, report)
        return report

    def failed(self, attempt: Attempt, error: NoAnswer) -> Report:
        self._end(attempt, Health.TIMED_OUT if isinstance(error, TimedOut) else Health.BAD)
        if not attempt.abandoned:
            if isinstance(error, NotConnected):
                attempt.batch.first_try_ms = attempt.resent_ms
            self._retry(attempt.batch, 0.0)
        return Report()

    def _end(self, attempt: Attempt, health: Health) -> None:
        self._attempts.pop(attempt.number, None)
        now = self._clock.now()
        attempt.address.end(attempt.token, health, now, now - attempt.begun)

    def _settle(self, batch: Batch, verdict: Verdict, report: Report) -> None:
        for index, (code, detail) in verdict.refused.items():
            event = batch.events[index]
            report.refused.append(Refused(event, id_of(event), code, detail))
        again = [batch.events[index] for index in verdict.again]
        self._account.refused += len(report.refused)
        self._account.delivered += batch.count - len(again) - len(report.refused)
        if len(again) == batch.count:
            self._retry(batch, verdict.retry_after_s)
            return
        self._account.release(batch)
        if again:
            batch.events, batch.whole = again, False
            self._account.hold(batch)
            self._retry(batch, verdict.retry_after_s)
        else:
            self._let_go_of_file(batch, report)

    def _split(self, batch: Batch) -> None:
        """Two halves, to be sent right away: only the size was wrong."""
        middle = batch.count // 2
        second = Batch(
            self._buffer.new_number(),
            batch.events[middle:],
            first_try_ms=batch.first_try_ms,
            part_of=batch.came,
            tenant=batch.tenant,
        )
        batch.events, batch.tries, batch.due, batch.whole = batch.events[:middle], 0, 0.0, False
        if batch.file is not None:
            second.file = batch.file
            batch.file.parts += 1
        self._retries.add(batch)
        self._retries.add(second)

    def _retry(self, batch: Batch, after_s: float) -> None:
        batch.due = self._clock.now() + max(after_s, self._back_off.pause(batch.tries))
        if batch.whole:
            self._account.release(batch)
            batch.events = []
            self._park(batch)
        else:
            self._retries.add(batch)

    # The end

    def flush(self) -> int:
        """Let no batch wait for more events; returns the number to pass to `holds`."""
        self._buffer.cut()
        return self._buffer.new_number()

    def holds(self, number: int) -> bool:
        """True if any event counted before then is still in memory without an outcome."""
        return any(batch.came <= number and not batch.whole for batch in self._in_memory())

    def abandon(self) -> list[Batch]:
        """Everything that is in memory only, each to end with `stored` or `lost`; answers to come are ignored.

        From now on nothing more is taken.
        """
        self._max_events = 0
        self._buffer.cut()
        found = self._retries.take_all()
        while self._buffer.ready_at() is not None:
            found.append(self._buffer.take())
        for attempt in self._attempts.values():
            attempt.abandoned = True
            if attempt.batch.whole:
                if attempt.batch.events:
                    self._account.release(attempt.batch)
                else:
                    self._account.held_events -= attempt.batch.count
                attempt.batch.events = []
                self._park(attempt.batch)
            else:
                found.append(attempt.batch)
        self._attempts = {}
        for batch in found:
            if batch.number < 0:
                batch.number = self._buffer.new_number()
        self._moving |= {batch.number: batch for batch in found}
        return sorted(found, key=lambda batch: batch.number)

    # The account

    def stats(self, *, spill_bytes: int = 0) -> Stats:
        # Counted from the batches themselves, so that the law checks the bookkeeping and not itself.
        in_flight = sum(attempt.batch.count for attempt in self._attempts.values())
        waiting = sum(batch.count for batch in (*self._retries, *self._moving.values()))
        return Stats(
            called=self._account.called,
            adopted=self._account.adopted,
            queued=self._buffer.events + waiting,
            in_flight=in_flight,
            delivered=self._account.delivered,
            refused=self._account.refused,
            spilled=self._spilled_events(),
            dropped=self._account.dropped,
            retried=self._account.retried,
            requests=self._account.requests,
            breakers={address.url: address.breaker.state for address in self._addresses},
            timeout_s={address.url: address.timeout.seconds for address in self._addresses},
            spill_bytes=spill_bytes,
            held_bytes=self._account.held_bytes,
        )

    def _spilled_events(self) -> int:
        return sum(batch.count for batch in self._spilled)

    def _in_memory(self) -> Iterator[Batch]:
        yield from self._buffer
        yield from self._retries
        yield from self._moving.values()
        yield from (attempt.batch for attempt in self._attempts.values())

    def _loaded(self) -> int:
        """Batches in memory that came from files: they do not count in the bound on memory, so they are few."""
        return sum(batch.file is not None for batch in self._in_memory())

    def _park(self, batch: Batch) -> None:
        insort(self._spilled, batch, key=lambda each: each.number)

    def _let_go_of_file(self, batch: Batch, report: Report) -> None:
        if batch.file is not None:
            batch.file.parts -= 1
            if not batch.file.parts:
                report.done.append(batch.file)
