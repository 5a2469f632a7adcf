"""Whether records are gone that nobody has counted: then no answer can say how much it misses."""

import time
from collections.abc import Callable, Mapping

from tallymark.store.protocol import Store

# Such a letter is written once in years, by hand: a look every few seconds costs a question nothing.
LOOK_S = 5.0
LETTER = ("pipeline", "lost_by_retention")


def are_lost(letters: Mapping[tuple[str, str], int]) -> bool:
    """The letter's events are 0, because nobody can know how many there were: it is there or not."""
    return LETTER in letters


class LostRecords:
    """What the store's dead letters say of it, asked for every few seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known_until = float("-inf")
        self._lost = False

    def known(self, store: Store) -> bool:
        now = self._clock()
        if now >= self._known_until:
            self._lost = are_lost(store.dead_letter_counts())
            self._known_until = now + LOOK_S
        return self._lost
