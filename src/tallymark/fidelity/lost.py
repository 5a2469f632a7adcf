"""Whether records are gone that were never counted: if so, no answer can say how much it lacks."""

import time
from collections.abc import Callable, Mapping

from tallymark.store.protocol import Store

# Such a letter is written once in years, by hand: checking every few seconds costs a question nothing.
CHECK_EVERY_S = 5.0
LETTER = ("pipeline", "lost_by_retention")


def are_lost(dead_letters: Mapping[tuple[str, str], int]) -> bool:
    """Only whether the letter exists counts: it says 0 events, because their number is unknown."""
    return LETTER in dead_letters


class LostRecords:
    """What the store's dead letters say about it, read again every few seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known_until = float("-inf")
        self._lost = False

    def known(self, store: Store) -> bool:
        now = self._clock()
        if now >= self._known_until:
            self._lost = are_lost(store.dead_letters.counts(tenant=None))
            self._known_until = now + CHECK_EVERY_S
        return self._lost
