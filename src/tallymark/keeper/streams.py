"""The log's streams as the keeper finds them: perhaps not made yet, perhaps closed after an error."""

from collections.abc import Callable

from tallymark.log.protocol import LogLost, LogReader


class Stream:
    """A reader that is opened when the log exists, and again after it failed."""

    def __init__(self, open_reader: Callable[[], LogReader]) -> None:
        self._open_reader = open_reader
        self._reader: LogReader | None = None

    def reader(self) -> LogReader | None:
        """None until the collector has made the log."""
        if self._reader is None:
            try:
                self._reader = self._open_reader()
            except LogLost:
                return None
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
