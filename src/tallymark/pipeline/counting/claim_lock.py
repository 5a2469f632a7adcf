"""The lock of one partition's claims: one task at a time, but nobody waits for ever.

A zombie of an older attempt may still run on a partition, so tasks take turns. Whoever is stopped in the middle
(SIGSTOP, a debugger, a disk that hangs) keeps the lock and would stop its partition without a word. So a task waits
with a deadline, says who has the lock, and goes on without it.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

# Longer than a zombie takes to finish its stretch; a batch that waits this long is late, not wrong.
PATIENCE_S = 30.0
POLL_S = 0.05
NAME_BYTES = 160

# Path -> holder for whom a task of this process waited in vain: for the same one nobody waits again.
_stuck: dict[str, str] = {}


class ClaimLock:
    """`acquire()`, and if that is True then `release()`."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = path
        self._clock = clock
        self._sleep = sleep
        self._file: int | None = None
        self.is_news = False
        """after `acquire()` was False: whether this process did not know of that holder"""

    def acquire(self, what: str) -> bool:
        """True with the lock, under which `what` is written for whoever waits; False if the holder keeps it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        give_up = self._clock() + PATIENCE_S
        while not self._try():
            holder = self.holder
            self.is_news = holder != _stuck.get(str(self._path))
            if not self.is_news or self._clock() >= give_up:
                _stuck[str(self._path)] = holder
                self.release()
                return False
            self._sleep(POLL_S)
        _stuck.pop(str(self._path), None)
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same, just without a name
            # Always as long, over what was there: to cut the file first costs 2 ms, since the disk is waited for.
            os.pwrite(self._file, f"process {os.getpid()}, {what}".encode()[:NAME_BYTES].ljust(NAME_BYTES), 0)
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def holder(self) -> str:
        """Who has the lock, or had it last."""
        try:
            name = self._path.read_bytes()[:NAME_BYTES].decode(errors="replace").strip()
            return name or "a process that did not say its name"
        except OSError as error:
            return f"a process that cannot be named ({error})"

    def _try(self) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
