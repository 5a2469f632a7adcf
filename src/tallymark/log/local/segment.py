"""A segment as a reader has it open: its index for finding, its records for reading."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tallymark.log.local import index
from tallymark.log.local.layout import index_file, segment_file
from tallymark.log.local.record import Broken, Header, walk, walk_headers
from tallymark.log.protocol import LogDamaged

logger = logging.getLogger(__name__)

# 160 kB of index at a time: a stretch of one micro-batch is usually found with one read.
_ENTRIES_AT_ONCE = 4096
# Without an index the place of every 256th record is remembered: a lookup then walks over 256 headers at most,
# and the places in a segment of two million small records take 0.3 MB.
_REMEMBERED_EVERY = 256


class Segment:
    """Open files of one segment, closed when the last user lets go: a running read outlives the cache."""

    def __init__(self, folder: Path, first: int, *, seed: int) -> None:
        self.first = first
        self.path = segment_file(folder, first)
        self._index_path = index_file(folder, first)
        self._seed = seed
        self._records = self._index = -1
        self._records = os.open(self.path, os.O_RDONLY)
        self._walked = [0]  # where records first, first + 256, … begin, as far as somebody walked
        self._has_warned = False
        with suppress(index.IndexDamaged):  # what it would say stands in the records too
            self._opened_index()

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
            raise LogDamaged(f"{self.path}: {broken}; restore the file from a copy") from None

    def position(self, offset: int) -> int:
        """The byte at which a record begins, as the index has it and the file's size allows."""
        position = self.entry(offset).position
        size = os.fstat(self._records).st_size
        if position >= size:
            raise LogDamaged(f"{self.path} has {size:,} bytes, but offset {offset} should stand at byte {position:,}")
        return position

    def entry(self, offset: int, *, synced: bool = True) -> index.Entry:
        """What the index says of a record; of one that is not synced, the writer may still take it back."""
        try:
            return index.read_one(self._opened_index(), first=self.first, offset=offset, seed=self._seed)
        except index.IndexDamaged as damaged:
            return self._from_records(offset, offset + 1, damaged, mend=synced)[0]

    def entries(self, start: int, end: int) -> Iterator[index.Entries]:
        """The entries of start <= offset < end, a few thousand at a time."""
        for begin in range(start, end, _ENTRIES_AT_ONCE):
            stop = min(begin + _ENTRIES_AT_ONCE, end)
            try:
                yield index.read_many(self._opened_index(), first=self.first, start=begin, end=stop, seed=self._seed)
            except index.IndexDamaged as damaged:
                found = self._from_records(begin, stop, damaged, mend=True)
                yield index.columns(self._packed(found, begin))

    def _opened_index(self) -> int:
        """Tried again at every use while there is none: the writer makes a missing one when it starts."""
        if self._index < 0:
            try:
                self._index = os.open(self._index_path, os.O_RDONLY)
            except FileNotFoundError:
                raise index.IndexDamaged("the file is missing") from None
            except OSError as error:
                raise index.IndexDamaged(f"the file cannot be opened ({error.strerror or error})") from error
        return self._index

    def _from_records(self, start: int, end: int, damaged: index.IndexDamaged, *, mend: bool) -> list[index.Entry]:
        """The entries of start <= offset < end as the records' headers have them; LogDamaged if these do not read."""
        entries = []
        place = min((start - self.first) // _REMEMBERED_EVERY, len(self._walked) - 1)
        begin, position = self.first + place * _REMEMBERED_EVERY, self._walked[place]
        headers = walk_headers(self._records, seed=self._seed, position=position, offset=begin, end=end)
        try:
            for position, header, size in headers:
                # What is not synced may be taken back, and another record stand elsewhere.
                if mend and header.offset == self.first + len(self._walked) * _REMEMBERED_EVERY:
                    self._walked.append(position)
                if header.offset >= start:
                    entries.append(index.Entry(position, header.append_ms, header.events_before, header.events, size))
        except Broken as broken:
            raise LogDamaged(
                f"{self.path}: {broken}, and its index does not help ({damaged}); a segment is missing behind this one,"
                " or this one is cut short: put the file back from a copy"
            ) from None
        if mend:
            self._mend(start, entries, damaged)
        return entries

    def _mend(self, start: int, entries: list[index.Entry], damaged: index.IndexDamaged) -> None:
        """Only below the synced mark: there the writer never changes an entry, and whoever mends writes the same."""
        try:
            file = os.open(self._index_path, os.O_WRONLY)
            try:
                os.pwrite(file, self._packed(entries, start), (start - self.first) * index.ENTRY_BYTES)
            finally:
                os.close(file)
        except OSError as error:
            if self._has_warned:
                return
            self._has_warned = True
            logger.warning(
                "%s: %s; read from the segment instead. It cannot be mended here (%s), but when the collector next"
                " starts",
                self._index_path,
                damaged,
                error.strerror or error,
            )
        else:
            logger.warning("%s: %s; mended from the segment", self._index_path, damaged)

    def _packed(self, entries: list[index.Entry], start: int) -> bytes:
        return b"".join(index.pack(entry, offset=start + n, seed=self._seed) for n, entry in enumerate(entries))

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
