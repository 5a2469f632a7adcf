"""The clock that stamps append times: it goes at the pace of real time, whatever is done to the wall clock.

The law of duplicates measures the time between two copies in append time, so an hour of append time must be an hour.
The wall clock does not promise that: it is set forward and back, by people and by NTP. So append time follows a clock
that nobody sets, and is drawn towards the wall clock slowly. How far it is ahead of the wall clock is kept in the
partitions' marks, so that it goes on at the same pace after a restart.
"""

import threading
import time
from collections.abc import Callable

from tallymark.log.protocol import SLEW_PER_MILLE

_MS = 1_000_000


def wall_ms() -> int:
    return time.time_ns() // _MS


def steady_ns() -> int:
    """Nobody sets it. It goes on while the machine sleeps, as `time.monotonic` does not on every system."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class AppendClock:
    """Of one writer, for all its partitions and threads: after a kill a partition that had long been quiet goes by
    what a busy one noted.

    `last_ms` is the append time of the newest record, 0 if there is none. `ahead_ms` is what this clock was ahead of
    the wall clock when it was last asked, before a restart: without a word of that, 0. How long the log was closed only
    the wall clock can tell. What it says is believed, except that append time never goes back.
    """

    def __init__(self, *, wall: Callable[[], int], steady: Callable[[], int], last_ms: int, ahead_ms: int) -> None:
        self._lock = threading.Lock()
        self._wall = wall
        self._steady = steady
        self._steady_ns = steady()
        now_ms = wall()
        self._now_ns = max(now_ms + ahead_ms, last_ms) * _MS
        self.ahead_ms = self._now_ns // _MS - now_ms

    def now_ms(self) -> int:
        with self._lock:
            steady_ns, wall_ms = self._steady(), self._wall()
            passed = max(0, steady_ns - self._steady_ns)
            most = passed * SLEW_PER_MILLE // 1000
            behind = wall_ms * _MS - (self._now_ns + passed)
            self._steady_ns = max(steady_ns, self._steady_ns)
            self._now_ns += passed + max(-most, min(most, behind))
            now_ms = self._now_ns // _MS
            self.ahead_ms = now_ms - wall_ms
            return now_ms
