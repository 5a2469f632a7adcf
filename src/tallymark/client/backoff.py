"""How long a batch waits before it is tried again: doubling, with full jitter."""

import os
from collections.abc import Callable


def chance() -> float:
    """A number in [0, 1). The module `random` would do, but takes 3 ms to import."""
    return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << 53)


class BackOff:
    """10, 20, 40, 80 ms … up to the maximum; with jitter anything between nothing and that.

    Without jitter all clients of a collector that was away for a moment would come back at one and the same time.
    """

    def __init__(self, first_s: float, max_s: float, *, chance: Callable[[], float] | None = chance) -> None:
        self._first_s, self._max_s, self._chance = first_s, max_s, chance

    def longest(self, tries: int) -> float:
        """The upper bound of the pause after so many tries."""
        # 2**60 exceeds any maximum, and floats stay far from overflow.
        return min(self._max_s, self._first_s * 2.0 ** min(tries - 1, 60))

    def pause(self, tries: int) -> float:
        return self.longest(tries) * (1.0 if self._chance is None else self._chance())
