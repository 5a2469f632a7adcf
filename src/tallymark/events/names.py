"""How many different event names there may be: each is a series of its own, for ever."""

import threading
import time
from collections.abc import Callable, Set

from tallymark.events.refusals import Refused, shown

# A name that nobody has used for one to two of these is forgotten, so that a mistake is forgotten within a day.
REMEMBERED_S = 12 * 3_600.0


class Names:
    """The names of one tenant that are in use, as far as this process has seen: the first `limit` to come."""

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._recent: set[str] = set()
        self._older: set[str] = set()
        """not used since `_recent` was begun"""
        self._begun = clock()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def admit(self, names: Set[str]) -> None:
        """Remember these names, all or none of them; raises Refused if one more would be over the limit."""
        if self._clock() - self._begun < REMEMBERED_S and names <= self._recent:
            return
        # Requests are judged in several threads.
        with self._lock:
            self._forget()
            new = names - self._recent - self._older
            if len(self) + len(new) > self._limit:
                raise Refused("too_many_names", self._reason(min(new)))
            self._older -= names
            self._recent |= names

    def _forget(self) -> None:
        passed_s = self._clock() - self._begun
        if passed_s >= REMEMBERED_S:
            self._older = self._recent if passed_s < 2 * REMEMBERED_S else set()
            self._recent = set()
            self._begun = self._clock()

    def _reason(self, name: str) -> str:
        return (
            f"`event` is {shown(name)}, one name more than collector.max_event_names = {self._limit:,}; "
            "put the part of it that varies into `props`"
        )
