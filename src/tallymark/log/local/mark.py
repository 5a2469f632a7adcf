"""The mark of a partition: how far it is written and synced, in one page of shared memory backed by a file."""

import mmap
import os
from pathlib import Path
from typing import NamedTuple

MARK_BYTES = 4096
_MAGIC = int.from_bytes(b"TMmark1\0", "little")
# Words of 8 bytes. All lie in the first sector, which a disk writes whole.
_WORD_MAGIC, _WORD_FIRST, _WORD_TURN = 0, 1, 2
_SLOTS = (8, 16)


_MASK = 2**64 - 1
_AHEAD_CHECK = int.from_bytes(b"TMahead\0", "little")


class Standing(NamedTuple):
    """Where a partition stands: `events` were appended up to `synced`, `active` is the segment being written."""

    synced: int
    end: int
    events: int
    active: int
    ahead_ms: int = 0
    """how far append time is ahead of the writer's wall clock"""


class Mark:
    """The mapped file. One process publishes the standing, one (retention) moves `first`, any number read.

    A standing is written into the slot that is not current, then the turn moves: readers never see half of one, also
    when the writer is killed in between. The file is not synced, so after a power cut it may be old, which recovery
    allows for; it is never ahead of the data, because it is written after the data was synced.
    """

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        file = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            if os.fstat(file).st_size < MARK_BYTES:
                raise ValueError(f"{path} is shorter than {MARK_BYTES} bytes")
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(file, MARK_BYTES, access=access)
        finally:
            os.close(file)
        # A cast view moves 8 aligned bytes at once; struct would move them one by one and let a reader see a mixture.
        self._words = memoryview(self._map).cast("Q")
        if self._words[_WORD_MAGIC] != _MAGIC:
            self.close()
            raise ValueError(f"{path} is not a mark file")

    @staticmethod
    def create(path: Path) -> None:
        """A durable mark of an empty partition. Its blocks are allocated: a full disk must not fault a mapped store."""
        with open(path, "wb") as file:
            file.write(_MAGIC.to_bytes(8, "little").ljust(MARK_BYTES, b"\0"))
            file.flush()
            os.fsync(file.fileno())

    @property
    def first(self) -> int:
        """The oldest offset that retention has left."""
        return self._words[_WORD_FIRST]

    def move_first(self, offset: int) -> None:
        """Durable before the segments go, so that a missing one is known to be deleted rather than lost."""
        self._words[_WORD_FIRST] = offset
        self._map.flush()

    def read(self) -> Standing:
        words = self._words
        while True:
            turn = words[_WORD_TURN]
            slot = _SLOTS[turn % 2]
            standing = Standing(words[slot], words[slot + 1], words[slot + 2], words[slot + 3])
            ahead, check = words[slot + 4], words[slot + 5]
            if words[_WORD_TURN] == turn:
                # A writer of before there were these words leaves those of another standing.
                if check != _ahead_check(standing, ahead):
                    return standing
                return standing._replace(ahead_ms=ahead - (1 << 64) if ahead >> 63 else ahead)

    def publish(self, standing: Standing) -> None:
        words = self._words
        turn = words[_WORD_TURN] + 1
        slot = _SLOTS[turn % 2]
        words[slot], words[slot + 1], words[slot + 2], words[slot + 3], _ = standing
        ahead = standing.ahead_ms & _MASK
        words[slot + 4], words[slot + 5] = ahead, _ahead_check(standing, ahead)
        words[_WORD_TURN] = turn

    def flush(self) -> None:
        self._map.flush()

    def close(self) -> None:
        self._words.release()
        self._map.close()


def _ahead_check(standing: Standing, ahead: int) -> int:
    return (_AHEAD_CHECK ^ ahead ^ standing.synced << 32 ^ standing.end) & _MASK
