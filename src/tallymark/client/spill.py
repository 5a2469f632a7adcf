"""Batches in files, for when memory is full and for when the process ends before the collector is back.

    spill folder
    ├── 4711-9f86d081.lock        held by the process as long as it lives
    └── 4711-9f86d081
        ├── 0000000000000012-500-0.batch                 number, events, never sent
        ├── 0000000000000013-480-1763208000000.batch     may have been sent, first at that time
        └── 0000000000000014-500-0-acme.batch            of the tenant `acme`

The name holds what must change or be known without reading the file. The content is a line with the number of events
and a checksum, then the events, a line each.
"""

import os
import re
import threading
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tallymark.client.folder_lock import FolderLock
from tallymark.events.tenants import NAME_RULE

# Clients that know no tenants leave a file with one alone, instead of sending it as somebody else's.
_NAME = re.compile(rf"(\d{{16}})-(\d+)-(\d+)(?:-({NAME_RULE}))?\.batch")
_LOCK = re.compile(r"\d+-[0-9a-f]{16}\.lock")
"""anything else in the folder is not ours, whatever its suffix"""
_HEAD = b"tallymark-spill-1"


class SpillFull(Exception):
    """No room for this batch in the folder."""


class SpillDamaged(Exception):
    """The file is not what was written."""


class SpillFile(msgspec.Struct, eq=False):
    """One batch on disk."""

    folder: Path
    number: int
    events: int
    size: int
    tried_ms: int = 0
    parts: int = 1
    """batches in memory whose events came from here; at 0 the file can be removed"""
    tenant: str | None = None

    @property
    def path(self) -> Path:
        whose = "" if self.tenant is None else f"-{self.tenant}"
        return self.folder / f"{self.number:016d}-{self.events}-{self.tried_ms}{whose}.batch"


class Spill:
    """This process's part of a spill folder, and what earlier processes left in it."""

    def __init__(self, folder: Path, *, max_bytes: int, instance: str, adopt: bool = True) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._own = folder / f"{os.getpid()}-{instance}"
        self._guard = threading.Lock()
        self._own_lock: FolderLock | None = None
        self._adopted_locks: dict[Path, FolderLock] = {}
        self._left: dict[Path, int] = {}
        """folder -> files not yet removed"""
        self.bytes = 0
        self.adopted: list[SpillFile] = []
        folder.mkdir(parents=True, exist_ok=True)
        if adopt:
            self._adopt()

    def write(self, number: int, events: Sequence[bytes], *, tried_ms: int, tenant: str | None = None) -> SpillFile:
        """Durable when it returns; raises SpillFull or OSError, and then leaves nothing behind."""
        lines = b"\n".join(events)
        content = b"%b %d %08x\n%b" % (_HEAD, len(events), zlib.crc32(lines), lines)
        file = SpillFile(self._own, number, len(events), len(content), tried_ms, tenant=tenant)
        with self._guard:
            if self.bytes + file.size > self._max_bytes:
                raise SpillFull(
                    f"{file.size:,} bytes on top of the {self.bytes:,} in {self._folder} would exceed "
                    f"max_spill_bytes = {self._max_bytes:,}"
                )
            if self._own_lock is None:
                self._own_lock = self._settle_in()
            self.bytes += file.size
            self._left[self._own] = self._left.get(self._own, 0) + 1
        try:
            try:
                _write_durably(file.path, content)
            except FileNotFoundError:
                self._settle_in_again()
                _write_durably(file.path, content)
        except BaseException:
            self._account(file, -1)
            raise
        return file

    def load(self, file: SpillFile) -> list[bytes]:
        """The events; raises SpillDamaged (the file is set aside) or OSError."""
        head, _, lines = file.path.read_bytes().partition(b"\n")
        events = lines.split(b"\n")
        if head != b"%b %d %08x" % (_HEAD, file.events, zlib.crc32(lines)) or len(events) != file.events:
            raise SpillDamaged(f"{file.path} is damaged: its checksum or number of events does not match")
        return events

    def mark_tried(self, file: SpillFile, tried_ms: int) -> None:
        """Call before the first try, so that after a crash the next process knows there may have been one."""
        if not file.tried_ms:
            # In this order: if renaming fails, the file still has the name we know it by.
            file.path.rename(msgspec.structs.replace(file, tried_ms=tried_ms).path)
            file.tried_ms = tried_ms
            _sync_folder(file.folder)

    def set_aside(self, file: SpillFile) -> None:
        """Keep a damaged file for someone to look at, where no client finds it."""
        with suppress(OSError):
            aside = self._folder / "damaged"
            aside.mkdir(exist_ok=True)
            file.path.rename(aside / f"{file.folder.name}-{file.path.name}")
        self._account(file, -1)

    def remove(self, file: SpillFile) -> None:
        with suppress(OSError):
            file.path.unlink(missing_ok=True)
        self._account(file, -1)

    def close(self) -> None:
        """Release what is left, for the next process to adopt."""
        with self._guard:
            locks = [*self._adopted_locks.values(), *([self._own_lock] if self._own_lock else [])]
            for lock in locks:
                self._let_go(lock)
            self._own_lock = None
            self._adopted_locks.clear()

    def forget(self) -> None:
        """In a forked child: the folders are the parent's."""
        for lock in (*self._adopted_locks.values(), *([self._own_lock] if self._own_lock else [])):
            lock.forget()

    def _adopt(self) -> None:
        ours = [path for path in _names(self._folder) if _LOCK.fullmatch(path.name)]
        for path in sorted(ours, key=_age):
            try:
                lock = FolderLock.acquire(path, create=False)
            except OSError as error:
                _say_skipped(path, error)
                continue
            if lock is None:
                continue
            folder = path.with_suffix("")
            try:
                found = _batches(folder)
            except OSError as error:
                _say_skipped(folder, error)
                lock.forget()
                continue
            self._adopted_locks[folder] = lock
            self._left[folder] = len(found)
            if not found:
                self._let_go(self._adopted_locks.pop(folder))
            self.adopted += sorted(found, key=lambda file: file.number)
        self.bytes = sum(file.size for file in self.adopted)

    def _settle_in_again(self) -> None:
        """Someone removed the folder while it was in use."""
        with self._guard:
            if self._own.is_dir():
                return
            if self._own_lock is not None:
                self._own_lock.forget()
                self._own_lock = None
            self._own_lock = self._settle_in()

    def _settle_in(self) -> FolderLock:
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock.acquire(self._own.with_name(self._own.name + ".lock"))
        if lock is None:
            # Another process adopted the lock file between its creation and its locking, and will release it.
            raise OSError(f"{self._own} is locked by another process; try again")
        self._own.mkdir(exist_ok=True)
        return lock

    def _account(self, file: SpillFile, files: int) -> None:
        with self._guard:
            self.bytes -= file.size
            self._left[file.folder] += files
            if not self._left[file.folder] and file.folder in self._adopted_locks:
                self._let_go(self._adopted_locks.pop(file.folder))

    def _let_go(self, lock: FolderLock) -> None:
        folder = lock.path.with_suffix("")
        # A folder that is not empty stays; half-written files are useless.
        with suppress(OSError):
            for each in folder.glob("*.tmp"):
                each.unlink()
            folder.rmdir()
        with suppress(OSError):
            lock.release(remove=not folder.exists())


def _names(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _age(lock: Path) -> tuple[float, str]:
    try:
        return lock.stat().st_mtime, lock.name
    except OSError:
        return 0.0, lock.name


def _batches(folder: Path) -> list[SpillFile]:
    found = []
    for path in _names(folder):
        # A file that disappears between the two lines below was taken by someone else.
        with suppress(FileNotFoundError):
            if match := _NAME.fullmatch(path.name):
                number, events, tried_ms = map(int, match.group(1, 2, 3))
                found.append(SpillFile(folder, number, events, path.stat().st_size, tried_ms, tenant=match[4]))
    return found


def _say_skipped(path: Path, error: OSError) -> None:
    import logging

    logging.getLogger("tallymark.client").warning("skipping %s: %s", path, error)


def _write_durably(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".tmp")
    try:
        with open(draft, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        # The finished file too: what is reported as dropped must not be sent by the next process.
        for each in (draft, path):
            with suppress(OSError):
                each.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
