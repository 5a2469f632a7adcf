"""How long to wait for an answer: learned from the answers that came."""

from collections import deque

FIRST_S = 0.5
"""before anything is known: plenty on a local network, yet not too long when an address hangs"""
REMEMBERED = 200
MARGIN = 3.0


class TimeOut:
    """Three times the 99th percentile of the last 200 answers, within bounds; doubled by every time-out in a row.

    The doubling is what lets a server that became slow answer at all: what was timed out never becomes a sample.
    """

    def __init__(self, *, min_s: float, max_s: float) -> None:
        self._min_s, self._max_s = min_s, max_s
        self._answers: deque[float] = deque(maxlen=REMEMBERED)
        self._learned_s = min(max_s, max(min_s, FIRST_S))
        self._in_a_row = 0

    @property
    def seconds(self) -> float:
        return min(self._max_s, self._learned_s * 2.0 ** min(self._in_a_row, 30))

    def answered(self, took_s: float) -> None:
        self._in_a_row = 0
        self._answers.append(took_s)
        ordered = sorted(self._answers)
        p99 = ordered[(99 * len(ordered) - 1) // 100]
        self._learned_s = min(self._max_s, max(self._min_s, MARGIN * p99))

    def timed_out(self) -> None:
        self._in_a_row += 1
