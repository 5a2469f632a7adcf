"""What keeps a flood from becoming memory: a budget of bytes in hand, and a rate of events."""

import math
import time
from collections.abc import Callable
from types import TracebackType

from tallymark import telemetry
from tallymark.http import Problem


class Budget:
    """Bytes of requests that are being read or wait for the log, all together."""

    def __init__(self, limit_bytes: int, *, retry_after_s: int = 1, is_published: bool = True) -> None:
        self._limit = limit_bytes
        self._retry_after = str(retry_after_s)
        self.held = 0
        if is_published:
            telemetry.COLLECTOR_PENDING_BYTES.set_function(lambda: self.held)

    def take(self, size: int) -> None:
        """Hold `size` bytes more, or answer 503 before memory grows."""
        if self.held + size > self._limit:
            raise Problem(
                503,
                "overloaded",
                f"{self.held:,} bytes are waiting for the log and {size:,} more would exceed "
                f"collector.max_pending_bytes = {self._limit:,}; send it again later",
                headers={"retry-after": self._retry_after},
            )
        self.held += size

    def give(self, size: int) -> None:
        self.held -= size


class Holding:
    """The bytes one request holds, given back when it is answered: `with Holding(budget) as held: held.set(n)`."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._size = 0

    def __enter__(self) -> "Holding":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.give(self._size)

    def set(self, size: int) -> None:
        """Hold this many bytes from now on."""
        if size > self._size:
            self._budget.take(size - self._size)
        else:
            self._budget.give(self._size - size)
        self._size = size


class Rate:
    """A token bucket of events, one second deep. 0 a second is no limit.

    A request is let in while there are tokens and then pays for all its events, if need be with tokens of the future:
    so a refusal costs no decoding, and a batch larger than the bucket can still pass.
    """

    def __init__(self, events_per_second: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = events_per_second
        self._clock = clock
        self._tokens = float(events_per_second)
        self._at = clock()

    def check(self) -> None:
        if not self._rate:
            return
        now = self._clock()
        self._tokens = min(float(self._rate), self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens <= 0:
            wait_s = max(1, math.ceil(-self._tokens / self._rate))
            raise Problem(
                429,
                "over_the_rate",
                f"more than collector.max_events_per_second = {self._rate:,}; send it again in {wait_s} s",
                headers={"retry-after": str(wait_s)},
            )

    def spend(self, events: int) -> None:
        self._tokens -= events
