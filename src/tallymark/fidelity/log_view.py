"""How far a stream of the log has come, seen by many threads and through its failures."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from tallymark import log as logs
from tallymark.log.protocol import LogError, LogReader, LogUnreachable, Positions
from tallymark.settings import Settings

# A log that does not answer gets a rest of this many times as long as it kept one caller waiting. Meanwhile the others
# are answered at once, without freshness.
SLOW_S, REST, LONGEST_REST_S = 0.05, 9.0, 20.0
MOST_WAIT_S = 1.0

_Found = TypeVar("_Found")


class LogView(Protocol):
    """How far a stream of the log has come; what cannot be found out is None."""

    @property
    def identity(self) -> str | None:
        """Which log it is; None while it cannot be read."""
        ...

    @property
    def is_away(self) -> bool:
        """True if the log exists but did not answer the last call, so what it holds is unknown."""
        ...

    @property
    def slack_ms(self) -> int:
        """How far apart the clocks that stamp append times may be."""
        ...

    def positions(self) -> Mapping[int, Positions] | None:
        """None while the stream does not exist or cannot be read."""
        ...

    def append_ms(self, partition: int, offset: int) -> int | None:
        """When this record was appended, durable or not; None if it is gone."""
        ...

    def events_in(self, partition: int, start: int, end: int) -> int | None:
        """How many events these records hold; None while they cannot be read."""
        ...


class StreamView:
    """A stream that may be created later, shared by many threads although its reader serves one at a time."""

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

    def _ask(self, question: Callable[[LogReader], _Found]) -> _Found | None:
        # One caller whom a silent log keeps waiting must not hold up the others.
        if not self._lock.acquire(timeout=MOST_WAIT_S):
            return None
        try:
            begun = time.monotonic()
            if begun < self._resting_until:
                return None
            try:
                if self._reader is None:
                    self._reader = self._open_reader()
                found = question(self._reader)
                self._unreachable = False
                return found
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
