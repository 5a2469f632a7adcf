"""Where a stream is, in a form that travels to other processes."""

from dataclasses import dataclass
from pathlib import Path

from tallymark.log.local.reader import LocalLogReader
from tallymark.log.protocol import LogReader


@dataclass(frozen=True, slots=True)
class LogAddress:
    """Picklable; the folder is absolute, because other processes have other working folders."""

    kind: str
    folder: str
    stream: str

    def open_reader(self) -> LogReader:
        """A reader of its own for the calling process; LogLost if the log has not been made yet."""
        if self.kind != "local":
            raise ValueError(f"a log of kind {self.kind!r} cannot be opened; `local` can")
        return LocalLogReader(Path(self.folder), self.stream)
