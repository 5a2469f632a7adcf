"""A circuit breaker: an address that fails too often is left alone for a while, then probed."""

from collections import deque
from itertools import takewhile
from typing import Literal

State = Literal["closed", "open", "half_open"]

WINDOW = 20
WINDOW_S = 10.0
TRIPPING_WEIGHT = 5
TRIPPING_SHARE = 0.7
"""more than half: an address that fails every second time still takes as much as the retry budget lets through"""
TRIPPING_STREAK = 6
FIRST_REST_S, LONGEST_REST_S = 1.0, 5.0
"""a probe every few seconds does no harm, and after an outage everything waits for that probe"""
TIMED_OUT_WEIGHT = 2
"""a timeout costs its full duration, so three in a row are enough where it takes six quick failures"""


class Breaker:
    """Opens when 70 % of the last 20 outcomes within 10 s are failures, five at least; or after six in a row.

        closed --too many failures--> open --rest over--> half_open --probe answered--> closed
                                        ^                     |
                                        +----probe failed-----+   and the rest is doubled, 1 s to 5 s

    `begin` gives a token that goes with the outcome. Outcomes of requests that were begun in an earlier state say
    nothing about this one, and are ignored.
    """

    def __init__(self) -> None:
        self.state: State = "closed"
        self._outcomes: deque[tuple[float, int, bool]] = deque(maxlen=WINDOW)
        self._rest_s = FIRST_REST_S
        self._rested_at = 0.0
        self._epoch = 0

    def free_at(self) -> float | None:
        """When it may be tried again, possibly in the past; None while a probe is in flight."""
        if self.state == "half_open":
            return None
        return self._rested_at if self.state == "open" else 0.0

    def begin(self) -> int:
        if self.state == "open":
            self._turn("half_open")
        return self._epoch

    def succeeded(self, token: int, now: float) -> None:
        if token != self._epoch:
            return
        if self.state == "half_open":
            self._rest_s = FIRST_REST_S
            self._turn("closed")
        else:
            self._outcomes.append((now, 1, True))

    def failed(self, token: int, now: float, *, weight: int = 1) -> None:
        if token != self._epoch:
            return
        if self.state == "half_open":
            self._rest_s = min(LONGEST_REST_S, self._rest_s * 2)
            self._open(now)
            return
        self._outcomes.append((now, weight, False))
        recent = [(weight, good) for at, weight, good in self._outcomes if now - at <= WINDOW_S]
        bad = sum(weight for weight, good in recent if not good)
        streak = sum(weight for weight, _ in takewhile(lambda outcome: not outcome[1], reversed(recent)))
        is_bad = bad >= TRIPPING_WEIGHT and bad >= TRIPPING_SHARE * sum(weight for weight, _ in recent)
        if is_bad or streak >= TRIPPING_STREAK:
            self._open(now)

    def released(self, token: int) -> None:
        """The outcome says nothing about the address, so a probe may be repeated at once."""
        if token == self._epoch and self.state == "half_open":
            self._turn("open")

    def _open(self, now: float) -> None:
        self._turn("open")
        self._rested_at = now + self._rest_s

    def _turn(self, state: State) -> None:
        self.state = state
        self._epoch += 1
        self._outcomes.clear()
