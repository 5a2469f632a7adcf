"""A cache of answers: equal questions that are asked at the same time or shortly after are computed once."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from tallymark import telemetry
from tallymark.query.response import Response

# A dashboard asks about ten questions over and over; the largest answers (query.max_points) take about 6 MB.
MOST_BYTES = 64_000_000
# What an entry takes besides its question and its body.
ENTRY_BYTES = 1_000

Positions = Mapping[int, int]
"""partition -> the next offset to apply"""


def covers(known: Positions, wanted: Positions) -> bool:
    """Whether all that was applied up to `wanted` is part of `known`."""
    return all(known.get(partition, 0) >= offset for partition, offset in wanted.items())


@dataclass(frozen=True, slots=True)
class Computed:
    """An answer, and what was applied at its snapshot."""

    answer: Response
    applied: Positions


@dataclass(frozen=True, slots=True)
class _Entry:
    computed: Computed
    size: int
    expires: float


@dataclass(frozen=True, slots=True)
class _Flight:
    """A computation in progress. Its snapshot is not known yet, but is no older than `floor`."""

    floor: Positions
    landing: Future[Response] = field(default_factory=Future)

    def __post_init__(self) -> None:
        # Someone who leaves while waiting must not cancel it for the others.
        self.landing.set_running_or_notify_cancel()


class AnswerCache:
    """Keeps each answer for `ttl_s` after it was computed; 0 keeps none. Errors are never kept."""

    def __init__(
        self, *, ttl_s: float, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl_s, self._most_bytes, self._clock = ttl_s, most_bytes, clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """in the order in which they expire"""
        self._held = 0
        self._flights: dict[str, _Flight] = {}
        self._seen: Positions = {}
        """the furthest positions of any snapshot so far; replaced, never changed"""
        self._hits, self._misses, self._fresh = (
            telemetry.QUERY_CACHE.labels(outcome) for outcome in ("hit", "miss", "fresh")
        )

    def get(
        self,
        question: str,
        compute: Callable[[], Computed],
        *,
        fresh: bool = False,
        since: Positions | None = None,
        applied: Callable[[], Positions] = dict,
    ) -> Response | Future[Response]:
        """The answer, or a future of the one that another thread is computing, including its error.

        `fresh` always computes. An answer from before `since` was applied is never returned. `applied` reads what is
        applied now; it is called only for a `since` beyond everything seen so far.
        """
        if fresh or self._ttl_s <= 0:
            self._fresh.inc()
            computed = compute()
            with self._lock:
                self._keep(question, computed)
            return computed.answer
        since = since or {}
        if not covers(self._seen, since):
            # Otherwise nobody with this `since` could join a computation that starts now. It is looked up rather than
            # trusted: a made-up one would let others join a computation from before theirs was applied.
            found = applied()
            with self._lock:
                self._see(found)
        with self._lock:
            self._forget()
            entry = self._entries.get(question)
            if entry is not None and covers(entry.computed.applied, since):
                self._hits.inc()
                return entry.computed.answer
            under_way = self._flights.get(question)
            if under_way is not None and covers(under_way.floor, since):
                self._hits.inc()
                return under_way.landing
            self._misses.inc()
            flight = self._flights[question] = _Flight(self._seen)
        return self._fly(question, flight, compute)

    def _fly(self, question: str, flight: _Flight, compute: Callable[[], Computed]) -> Response:
        try:
            computed = compute()
        except BaseException as error:
            with self._lock:
                self._land(question, flight)
            flight.landing.set_exception(error)
            raise
        with self._lock:
            self._land(question, flight)
            self._keep(question, computed)
        flight.landing.set_result(computed.answer)
        return computed.answer

    def _land(self, question: str, flight: _Flight) -> None:
        if self._flights.get(question) is flight:  # else a later one has taken its place
            del self._flights[question]

    def _see(self, applied: Positions) -> None:
        self._seen = {
            partition: max(self._seen.get(partition, 0), applied.get(partition, 0))
            for partition in {**self._seen, **applied}
        }

    def _keep(self, question: str, computed: Computed) -> None:
        self._see(computed.applied)
        size = len(question) + len(computed.answer.body) + ENTRY_BYTES
        if self._ttl_s <= 0 or size > self._most_bytes:
            return
        self._forget()
        before = self._entries.get(question)
        if before is not None:
            if not covers(computed.applied, before.computed.applied):
                return  # a slower computation of an older snapshot: answers never go back in time
            self._drop(question)
        self._entries[question] = _Entry(computed, size, self._clock() + self._ttl_s)
        self._held += size
        while self._held > self._most_bytes:
            self._drop(next(iter(self._entries)))

    def _forget(self) -> None:
        now = self._clock()
        while self._entries and (oldest := next(iter(self._entries.items())))[1].expires <= now:
            self._drop(oldest[0])

    def _drop(self, question: str) -> None:
        self._held -= self._entries.pop(question).size
