"""The collectors that can be sent to, and which of them is next."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Literal

from tallymark.client.breaker import TIMED_OUT_WEIGHT, Breaker
from tallymark.client.timeouts import TimeOut

Balance = Literal["round_robin", "least_pending", "least_time"]
BALANCES: tuple[Balance, ...] = ("round_robin", "least_pending", "least_time")

SMOOTHING = 0.2
HALF_LIFE_S = 10.0
"""after this time a slow address is assumed to be half as slow, so that it gets tried again eventually"""


class Health(Enum):
    """What an outcome says about the address."""

    GOOD = "good"
    BAD = "bad"
    TIMED_OUT = "timed out"
    NEITHER = "neither"


class Address:
    """One collector: what is in flight to it, and what is known about it."""

    def __init__(self, url: str, *, min_timeout_s: float, max_timeout_s: float) -> None:
        self.url = url
        self.breaker = Breaker()
        self.timeout = TimeOut(min_s=min_timeout_s, max_s=max_timeout_s)
        self.pending = 0
        # Until it has answered, and again after a failure, an address gets one request at a time: one that hangs
        # holds up one sending thread and not all of them.
        self._proven = False
        self._held_until = 0.0
        self._typical_s, self._measured_at = 0.0, 0.0

    def free_at(self) -> float | None:
        """The earliest time to send to it, possibly in the past; None: not before an answer arrives."""
        if self.pending and not self._proven:
            return None
        at = self.breaker.free_at()
        return None if at is None else max(at, self._held_until)

    def begin(self) -> int:
        self.pending += 1
        return self.breaker.begin()

    def end(self, token: int, health: Health, now: float, took_s: float) -> None:
        self.pending -= 1
        if health is Health.GOOD:
            self.breaker.succeeded(token, now)
        elif health is Health.NEITHER:
            self.breaker.released(token)
        else:
            self.breaker.failed(token, now, weight=TIMED_OUT_WEIGHT if health is Health.TIMED_OUT else 1)
        if health is Health.TIMED_OUT:
            self.timeout.timed_out()
        elif health is Health.GOOD:
            self.timeout.answered(took_s)
            self._typical_s += (took_s - self._typical_s) * (SMOOTHING if self._measured_at else 1.0)
            self._measured_at = now
        if health is not Health.NEITHER:
            self._proven = health is Health.GOOD

    def hold(self, until: float) -> None:
        """It asked to be left alone (`Retry-After`)."""
        self._held_until = max(self._held_until, until)

    def expected_s(self, now: float) -> float:
        """How long the answer to one more request would probably take."""
        faded: float = 0.5 ** ((now - self._measured_at) / HALF_LIFE_S)
        return self._typical_s * faded * (self.pending + 1)


class Addresses:
    """Those that fail are set aside by their breakers; among the others the chosen rule decides."""

    def __init__(self, addresses: Sequence[Address], balance: Balance) -> None:
        self._all = list(addresses)
        self._turn = 0
        self._score: Callable[[Address, float], float] = {
            "round_robin": lambda address, now: 0.0,
            "least_pending": lambda address, now: address.pending,
            "least_time": Address.expected_s,
        }[balance]

    def __iter__(self) -> Iterator[Address]:
        return iter(self._all)

    def free_at(self) -> float | None:
        """The earliest time to send to any of them, possibly in the past; None: not before an answer arrives."""
        return min((at for address in self._all if (at := address.free_at()) is not None), default=None)

    def choose(self, now: float, *, after: Address | None = None) -> Address:
        """One that is free now, and not the one that just failed if there is another."""
        free = [address for address in self._all if (at := address.free_at()) is not None and at <= now]
        others = [address for address in free if address is not after] or free
        count = len(self._all)
        # Equals take turns, also under the other rules.
        chosen = min(
            others, key=lambda address: (self._score(address, now), (self._all.index(address) - self._turn) % count)
        )
        self._turn = (self._all.index(chosen) + 1) % count
        return chosen
