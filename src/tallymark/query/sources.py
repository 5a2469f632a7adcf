"""What answers are made from: the store, the ends of the log, the settings and a clock."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tallymark import log as logs
from tallymark.log.protocol import LogError, LogReader, LogUnreachable, Positions
from tallymark.query.cache import AnswerCache
from tallymark.query.lost import LostRecords
from tallymark.settings import Settings
from tallymark.store.protocol import Store

# A log that does not answer is left alone for this many times as long as it kept one question waiting, so that the
# others are answered at once, without their freshness.
SLOW_S, REST, LONGEST_REST_S = 0.05, 9.0, 20.0
MOST_WAIT_S = 1.0

_Told = TypeVar("_Told")


@dataclass(frozen=True)
class Sources:
    """Everything a question may look at."""

    store: Store
    events: "LogView"
    refused: "LogView"
    settings: Settings
    clock_ms: Callable[[], int]
    answers: AnswerCache
    lost: LostRecords = field(default_factory=LostRecords)


class LogView(Protocol):
    """How far a stream of the log has come, as far as can be told from here."""

    @property
    def identity(self) -> str | None:
        """Of the log; None while it cannot be read."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether it was there and did not answer when it was last asked: then nobody knows what it holds."""
        ...

    @property
    def slack_ms(self) -> int:
        """How far the clocks that stamp append times may be apart."""
        ...

    def positions(self) -> Mapping[int, Positions] | None:
        """None while there is no such stream, or it cannot be read."""
        ...

    def append_ms(self, partition: int, offset: int) -> int | None:
        """When this record was appended, also one that is not yet durable; None if it is gone."""
        ...

    def events_in(self, partition: int, start: int, end: int) -> int | None:
        """How many events these records hold; None if they cannot be read now."""
        ...


class StreamView:
    """A stream whose writer may come later, asked from many threads (its reader is for one at a time)."""

    def __init__(self, open_reader: Callable[[], LogReader]) -> None:
        self._open_reader = open_reader
        self._lock = threading.Lock()
        self._reader: LogReader | None = None
        self._resting_until = 0.0
        self._unreachable = False

    @property
    def is_away(self) -> bool:
        return self._unreachable

    @property
    def identity(self) -> str | None:
        return self._ask(lambda reader: reader.identity)

    @property
    def slack_ms(self) -> int:
        return self._ask(lambda reader: reader.slack_ms) or 0

    def positions(self) -> Mapping[int, Positions] | None:
        return self._ask(lambda reader: reader.positions())

    def append_ms(self, partition: int, offset: int) -> int | None:
        return self._ask(lambda reader: reader.append_ms(partition, offset))

    def events_in(self, partition: int, start: int, end: int) -> int | None:
        return self._ask(lambda reader: reader.events_in(partition, start, end))

    def _ask(self, question: Callable[[LogReader], _Told]) -> _Told | None:
        # Others do not wait for long behind one whom a silent log keeps waiting.
        if not self._lock.acquire(timeout=MOST_WAIT_S):
            return None
        try:
            begun = time.monotonic()
            if begun < self._resting_until:
                return None
            try:
                if self._reader is None:
                    self._reader = self._open_reader()
                told = question(self._reader)
                self._unreachable = False
                return told
            except LogUnreachable:
                self._unreachable = True
                self._close()
                ended = time.monotonic()
                if ended - begun > SLOW_S:
                    self._resting_until = ended + min(LONGEST_REST_S, (ended - begun) * REST)
                return None
            except (LogError, OSError):
                self._unreachable = False
                self._close()
                return None
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def stream(settings: Settings, name: str) -> StreamView:
    return StreamView(lambda: logs.open_reader(settings, name))
