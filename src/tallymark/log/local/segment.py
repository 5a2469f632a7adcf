"""A segment as a reader has it open: its index for finding, its records for reading."""

import os
from collections.abc import Iterator
from pathlib import Path

from tallymark.log.local import index
from tallymark.log.local.layout import index_file, segment_file
from tallymark.log.local.record import Broken, Header, walk
from tallymark.log.protocol import LogDamaged

# 160 kB of index at a time: a stretch of one micro-batch is usually found with one read.
_ENTRIES_AT_ONCE = 4096


class Segment:
    """Open files of one segment, closed when the last user lets go: a running read outlives the cache."""

    def __init__(self, folder: Path, first: int, *, seed: int) -> None:
        self.first = first
        self.path = segment_file(folder, first)
        self._index_path = index_file(folder, first)
        self._seed = seed
        self._records = self._index = -1
        self._records = os.open(self.path, os.O_RDONLY)
        self._index = os.open(self._index_path, os.O_RDONLY)

    def __del__(self) -> None:
        for file in (self._records, self._index):
            if file >= 0:
                os.close(file)

    def records(self, start: int, end: int) -> Iterator[tuple[Header, bytes]]:
        """Headers and frames of start <= offset < end, each checked; LogDamaged at the first that is not whole."""
        position = self.position(start)
        try:
            for _, header, payload in walk(self._records, seed=self._seed, position=position, offset=start, end=end):
                yield header, payload
        except Broken as broken:
            raise LogDamaged(f"{self.path}: {broken}; put the file back from a copy") from None

    def position(self, offset: int) -> int:
        """The byte at which a record begins, as the index has it and the file's size allows."""
        position = self.entry(offset).position
        size = os.fstat(self._records).st_size
        if position >= size:
            raise LogDamaged(f"{self.path} has {size:,} bytes, but offset {offset} should stand at byte {position:,}")
        return position

    def entry(self, offset: int) -> index.Entry:
        try:
            return index.read_one(self._index, first=self.first, offset=offset, seed=self._seed)
        except index.IndexDamaged as damaged:
            raise self._damaged(damaged) from None

    def entries(self, start: int, end: int) -> Iterator[index.Entries]:
        """The entries of start <= offset < end, a few thousand at a time."""
        for begin in range(start, end, _ENTRIES_AT_ONCE):
            stop = min(begin + _ENTRIES_AT_ONCE, end)
            try:
                yield index.read_many(self._index, first=self.first, start=begin, end=stop, seed=self._seed)
            except index.IndexDamaged as damaged:
                raise self._damaged(damaged) from None

    def _damaged(self, damaged: index.IndexDamaged) -> LogDamaged:
        return LogDamaged(
            f"{self._index_path}: {damaged}; a segment is missing behind this one, or only the index is damaged: "
            "then it is made again when the collector next starts"
        )

    def offset_at(self, append_ms: int, end: int) -> int:
        """The first offset below `end` appended at or after this time, or `end`; append times never decrease."""
        low, high = self.first, end
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).append_ms < append_ms:
                low = middle + 1
            else:
                high = middle
        return low
