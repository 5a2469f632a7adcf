"""What the log asks of the operating system when it writes. Tests hand in one that fails on purpose."""

import os
from pathlib import Path


class Disk:
    """Calls that can fail for lack of space or a broken device; each raises OSError."""

    def create(self, path: Path) -> int:
        """A new, empty file, open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)

    def write(self, file: int, data: memoryview, position: int) -> int:
        """The bytes written, which may be fewer than given."""
        return os.pwrite(file, data, position)

    def sync(self, file: int) -> None:
        os.fdatasync(file)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def sync_folder(self, folder: Path) -> None:
        """Makes the names in a folder durable; syncing a file does not."""
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def free_bytes(self, folder: Path) -> int:
        space = os.statvfs(folder)
        return space.f_bavail * space.f_frsize


def write_all(disk: Disk, file: int, data: bytes, position: int) -> None:
    """All of `data` at `position`; a write that makes no progress is an error."""
    rest = memoryview(data)
    while rest:
        written = disk.write(file, rest, position)
        if written <= 0:
            raise OSError(f"wrote {len(data) - len(rest):,} of {len(data):,} bytes, then nothing more")
        rest = rest[written:]
        position += written
