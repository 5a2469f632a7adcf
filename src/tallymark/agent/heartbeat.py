"""The heartbeat file that the measuring process writes every second, and its watcher."""

import logging
import os
from contextlib import suppress
from pathlib import Path

from tallymark.role.outage import Outage

logger = logging.getLogger(__name__)

LOOK_S = 1.0
_FROZEN_LOOKS = 3


class Heartbeat:
    """A file with the last second that was measured, so that the next process knows which ids are used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(f"{path.name}.new")
        self._outage = Outage(logger, f"cannot write the heartbeat {path}")
        self.last = self._read()
        self.beat(self.last)

    def _read(self) -> int:
        try:
            return int(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    def beat(self, second: int) -> None:
        """Call it before sending the second: if killed in between, the next process only uses a longer id."""
        self.last = max(self.last, second)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Replaced as a whole: after a kill in mid-write, the next process would read nothing and reuse ids.
            self._draft.write_text(str(self.last), encoding="ascii")
            self._draft.replace(self._path)
            self._outage.over()
        except OSError as error:
            self._outage.failed(error)
            with suppress(OSError):  # a full disk must not look like a dead agent
                os.utime(self._path)


class Watch:
    """Tells when a process has fallen silent.

    It looks for changes of the file and takes the time between them by its own clock: a clock that was set or a machine
    that slept is not a process that hangs. One who could not look for a while (both were stopped, and go on in whatever
    order) counts anew.
    """

    def __init__(self, path: Path, *, silent_s: float, starting_s: float, look_s: float = LOOK_S) -> None:
        self._frozen_s = _FROZEN_LOOKS * look_s
        self._looked_s = 0.0
        self._path = path
        self._silent_s, self._starting_s = silent_s, starting_s
        self._process: object = None
        self._beat = 0
        self._since_s = 0.0
        self._has_beaten = False

    def is_silent(self, process: object, *, now_s: float) -> bool:
        """True if this process has not beaten for too long; a new one gets more time for its first beat."""
        beat = self._modified()
        was_frozen = now_s - self._looked_s > self._frozen_s
        self._looked_s = now_s
        if process != self._process:
            self._process, self._beat, self._since_s, self._has_beaten = process, beat, now_s, False
        elif beat != self._beat:
            self._beat, self._since_s, self._has_beaten = beat, now_s, True
        elif was_frozen:
            self._since_s = now_s
        return now_s - self._since_s > (self._silent_s if self._has_beaten else self._starting_s)

    def _modified(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0
