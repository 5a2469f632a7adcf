"""A clock that is turned by hand."""


class ManualClock:
    """Give it to a `Client` as `clock`. Both its clocks stand still until `advance`."""

    def __init__(self, *, wall_ms: int = 1_763_208_000_000, now: float = 1000.0) -> None:
        self._wall_ms, self._start, self._now = wall_ms, now, now

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return self._wall_ms + round((self._now - self._start) * 1000)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"advance({seconds}): a clock that never goes back")
        self._now += seconds

    def advance_to(self, now: float) -> None:
        """Nothing happens if that is past."""
        self._now = max(self._now, now)
