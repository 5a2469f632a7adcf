"""The two clocks of the client, so that tests can turn them by hand."""

import time
from typing import Protocol


class Clock(Protocol):
    """`now` for durations, `wall_ms` for times that others compare with their own clocks."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        ...


class SystemClock:
    now = staticmethod(time.monotonic)

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000
