"""How many different event names there may be: each is a series of its own, for ever."""

import threading
import time
from collections.abc import Callable, Set

import msgspec

from tallymark.events.model import NAME
from tallymark.events.refusals import Refused, shown

# A name that nobody has used for one to two of these is forgotten, so that a mistake is forgotten within a day.
REMEMBERED_S = 12 * 3_600.0
# One request may take a tenth of the room, so that one mistake does not shut out everybody else's new names.
REQUEST_SHARE, REQUEST_MIN = 10, 100


class Known(msgspec.Struct, gc=False):
    """The names in use as they are kept from one run to the next."""

    recent: list[str]
    older: list[str]
    age_s: float
    """since when `recent` has been filled; the time between two runs does not count, as nobody could use a name"""


class Names:
    """The names of one tenant that are in use, as far as this collector has seen: the first `limit` to come."""

    def __init__(self, limit: int, *, known: Known | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._most_new = max(limit // REQUEST_SHARE, REQUEST_MIN)
        self._clock = clock
        self._recent: set[str] = set()
        self._older: set[str] = set()
        """not used since `_recent` was begun"""
        self._begun = clock()
        self._lock = threading.Lock()
        self.changed = False
        """since `known` was last asked for"""
        if known is not None:
            self._restore(known)

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def admit(self, names: Set[str], *, added: int = 0) -> int:
        """Remember these names, all or none of them, and say how many are new.

        Raises Refused if they are too many, also together with the `added` that the same request brought before.
        """
        if self._clock() - self._begun < REMEMBERED_S and names <= self._recent:
            return 0
        # Requests are judged in several threads.
        with self._lock:
            self._forget()
            new = names - self._recent - self._older
            if len(self) + len(new) > self._limit:
                raise Refused("too_many_names", self._no_room(min(new)))
            if new and added + len(new) > self._most_new:
                raise Refused("too_many_names", self._too_many_at_once(min(new)))
            self._older -= names
            self._recent |= names
            self.changed = True
            return len(new)

    def known(self) -> Known:
        """What to keep for the next run."""
        with self._lock:
            self.changed = False
            return Known([*self._recent], [*self._older], self._clock() - self._begun)

    def _restore(self, known: Known) -> None:
        # The limit may have been lowered since.
        kept = [name for name in dict.fromkeys([*known.recent, *known.older]) if NAME.fullmatch(name)][: self._limit]
        self._recent = set(kept) & set(known.recent)
        self._older = set(kept) - self._recent
        self._begun = self._clock() - max(known.age_s, 0.0)

    def _forget(self) -> None:
        passed_s = self._clock() - self._begun
        if passed_s >= REMEMBERED_S:
            self._older = self._recent if passed_s < 2 * REMEMBERED_S else set()
            self._recent = set()
            self._begun = self._clock()
            self.changed = True

    def _no_room(self, name: str) -> str:
        return (
            f"`event` is {shown(name)}, a new name beyond collector.max_event_names = {self._limit:,}; "
            "put the part that varies into `props`"
        )

    def _too_many_at_once(self, name: str) -> str:
        return (
            f"`event` is {shown(name)}, beyond the {self._most_new:,} new names that one request may bring; "
            "put the part that varies into `props`, or, if nothing varies, send it in another request"
        )
