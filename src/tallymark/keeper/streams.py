"""The log's streams as the keeper finds them: perhaps not made yet, perhaps closed after an error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tallymark.log.protocol import LogError, LogLost, LogReader


class Stream:
    """A reader that is opened when the log exists, and again after it failed."""

    def __init__(self, open_reader: Callable[[], LogReader]) -> None:
        self._open_reader = open_reader
        self._reader: LogReader | None = None

    @contextmanager
    def opened(self) -> Iterator[LogReader | None]:
        """The reader, which the next one who asks finds opened anew if it fails meanwhile."""
        try:
            yield self.reader()
        except LogError:
            # It may be of a log that was made again, or has grown: only a fresh look tells.
            self.close()
            raise

    def reader(self) -> LogReader | None:
        """None until the collector has made the log."""
        if self._reader is None:
            try:
                self._reader = self._open_reader()
            except LogLost:
                return None
        return self._reader

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
