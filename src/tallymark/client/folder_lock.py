"""A file lock that is released when its process ends, however it ends."""

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class FolderLock:
    """Held as long as the file is open. `acquire` gives None if another process, or another client here, holds it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path, *, create: bool = True) -> "FolderLock | None":
        """Raises OSError if the file cannot even be opened."""
        flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            _lock(descriptor)
            # Someone who adopted the folder may have deleted the file between the two lines above: then this is a
            # lock on nothing, which the next process would not see.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return cls(path, descriptor)
        except OSError:
            pass
        os.close(descriptor)
        return None

    def release(self, *, remove: bool) -> None:
        # Deleted while it is still held, so that nobody can lock a file that is about to go.
        try:
            if remove:
                self.path.unlink(missing_ok=True)
        finally:
            self.forget()

    def forget(self) -> None:
        """Close the file. In a forked child the parent still has it open, and so keeps its lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
