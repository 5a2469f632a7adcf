"""What answers are made from: the store, the ends of the log, the settings and a clock."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tallymark import log as logs
from tallymark.log.protocol import LogError, LogReader, Positions
from tallymark.query.cache import RowCache
from tallymark.settings import Settings
from tallymark.store.protocol import Store


@dataclass(frozen=True)
class Sources:
    """Everything a question may look at."""

    store: Store
    events: "LogView"
    refused: "LogView"
    settings: Settings
    clock_ms: Callable[[], int]
    cache: RowCache = field(default_factory=RowCache)


class LogView(Protocol):
    """How far a stream of the log has come, as far as can be told from here."""

    def positions(self) -> Mapping[int, Positions] | None:
        """None while there is no such stream, or it cannot be read."""
        ...

    def append_ms(self, partition: int, offset: int) -> int | None:
        """When this record was appended, also one that is not yet durable; None if it is gone."""
        ...


class StreamView:
    """A stream whose writer may come later, asked from many threads (its reader is for one at a time)."""

    def __init__(self, open_reader: Callable[[], LogReader]) -> None:
        self._open_reader = open_reader
        self._lock = threading.Lock()
        self._reader: LogReader | None = None

    def positions(self) -> Mapping[int, Positions] | None:
        with self._lock:
            try:
                return self._opened().positions()
            except (LogError, OSError):
                self._close()
                return None

    def append_ms(self, partition: int, offset: int) -> int | None:
        with self._lock:
            try:
                return self._opened().append_ms(partition, offset)
            except (LogError, OSError):
                self._close()
                return None

    def close(self) -> None:
        with self._lock:
            self._close()

    def _opened(self) -> LogReader:
        if self._reader is None:
            self._reader = self._open_reader()
        return self._reader

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def stream(settings: Settings, name: str) -> StreamView:
    return StreamView(lambda: logs.open_reader(settings, name))
