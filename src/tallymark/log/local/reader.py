"""The local log's reader: in any process, any number of them. It sees nothing beyond the synced mark."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from tallymark.log.local.layout import mark_file, partition_folder, read_layout, segment_file, segments
from tallymark.log.local.mark import Mark
from tallymark.log.local.record import seed
from tallymark.log.local.segment import Segment
from tallymark.log.protocol import LogDamaged, LogLost, Positions, Record

# Two files each. Readers go forward, so the newest segment and the one before it are nearly all they touch.
_OPEN_SEGMENTS = 4


class LocalLogReader:
    """Reads a stream under `folder`; LogLost if its writer has not made it yet. For one thread at a time."""

    def __init__(self, folder: Path, stream: str) -> None:
        path = folder / stream
        layout = read_layout(path)
        self._identity = layout.identity
        self._partitions = [
            PartitionReader(partition_folder(path, number), partition=number, seed=seed(layout.identity, number))
            for number in range(layout.partitions)
        ]

    @property
    def identity(self) -> str:
        """Of this log; positions taken from another log must not be used here."""
        return self._identity

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    @property
    def slack_ms(self) -> int:
        return 0  # the writer stamps under its lock, and never goes back

    @property
    def has_wall_times(self) -> bool:
        return False

    def positions(self) -> Mapping[int, Positions]:
        return {number: partition.positions() for number, partition in enumerate(self._partitions)}

    def read(self, partition: int, start: int, end: int) -> Iterator[Record]:
        """Records start <= offset < end; raises LogLost or LogDamaged rather than leave one out."""
        return self._partitions[partition].read(start, end)

    def glance(self, partition: int, start: int, end: int, *, max_events: int, max_bytes: int) -> list[Record]:
        """Some of these records, in order from `start`: until a limit is reached, or one can no longer be read."""
        found: list[Record] = []
        events = size = 0
        with suppress(LogDamaged):
            for record in self.read(partition, start, end):
                found.append(record)
                events, size = events + record.events, size + len(record.payload)
                if events >= max_events or size >= max_bytes:
                    break
        return found

    def bounded_end(self, partition: int, start: int, *, max_events: int, max_bytes: int) -> int:
        """Where a stretch from `start` ends that stays within both limits (but has a record if there is one)."""
        return self._partitions[partition].bounded_end(start, max_events=max_events, max_bytes=max_bytes)

    def events_in(self, partition: int, start: int, end: int) -> int:
        """How many events these records hold, also where a record itself can no longer be read."""
        return self._partitions[partition].events_in(start, end)

    def append_ms(self, partition: int, offset: int) -> int:
        """When the record at `offset` was appended."""
        return self._partitions[partition].append_ms(offset)

    def offset_at(self, partition: int, append_ms: int) -> int:
        """The first offset appended at or after this time (the synced end if none)."""
        return self._partitions[partition].offset_at(append_ms)

    def close(self) -> None:
        for partition in self._partitions:
            partition.close()


class PartitionReader:
    """One partition, while its writer appends and rolls, and retention deletes."""

    def __init__(self, folder: Path, *, partition: int, seed: int) -> None:
        self._folder = folder
        self._partition = partition
        self._seed = seed
        self._firsts: list[int] = []
        self._open: OrderedDict[int, Segment] = OrderedDict()
        try:
            self._mark = Mark(mark_file(folder))
        except (FileNotFoundError, ValueError) as error:
            raise LogDamaged(f"{mark_file(folder)}: {error}; restore the file from a copy") from error

    def positions(self) -> Positions:
        standing = self._mark.read()
        return Positions(self._mark.first, standing.synced, standing.end, standing.events, standing.ahead_ms)

    def read(self, start: int, end: int) -> Iterator[Record]:
        self._check(start, end)
        return self._records(start, end)

    def _records(self, start: int, end: int) -> Iterator[Record]:
        partition = self._partition
        for segment, begin, stop in self._stretches(start, end):
            for header, payload in segment.records(begin, stop):
                offset, append_ms, _, events, instance, sequence = header
                yield Record(partition, offset, append_ms, events, instance, sequence, payload)

    def bounded_end(self, start: int, *, max_events: int, max_bytes: int) -> int:
        synced = self._mark.read().synced
        self._check(start, synced)
        before: int | None = None
        size = 0
        for segment, begin, stop in self._stretches(start, synced):
            for entries in segment.entries(begin, stop):
                if before is None:
                    before = int(entries["events_before"][0])
                events = entries["events_before"] + entries["events"] - np.uint64(before)
                sizes = np.uint64(size) + np.cumsum(entries["payload_bytes"], dtype=np.uint64)
                fits = int(
                    min(
                        np.searchsorted(events, np.uint64(max_events), "right"),
                        np.searchsorted(sizes, np.uint64(max_bytes), "right"),
                    )
                )
                if fits < len(entries):
                    return max(begin + fits, start + 1)
                begin += fits
                size = int(sizes[-1])
        return synced

    def events_in(self, start: int, end: int) -> int:
        self._check(start, end)
        return sum(
            int(entries["events"].sum())
            for segment, begin, stop in self._stretches(start, end)
            for entries in segment.entries(begin, stop)
        )

    def append_ms(self, offset: int) -> int:
        # The entry of a record is written before `end` moves, so it is there while the record is being synced.
        standing = self._mark.read()
        is_synced = not standing.synced <= offset < standing.end
        if is_synced:
            self._check(offset, offset + 1)
        return self._segment(offset).entry(offset, synced=is_synced).append_ms

    def offset_at(self, append_ms: int) -> int:
        standing, first = self._mark.read(), self._mark.first
        self._list(standing.active)
        begins = [begin for begin in self._firsts if first <= begin < standing.synced]
        # Bisect over the segments' first records: the wanted one is in the last segment that begins before this time.
        low, high = 0, len(begins)
        while low < high:
            middle = (low + high) // 2
            if self._segment(begins[middle]).entry(begins[middle]).append_ms < append_ms:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return first
        segment = self._segment(begins[low - 1])
        return segment.offset_at(append_ms, begins[low] if low < len(begins) else standing.synced)

    def close(self) -> None:
        self._open.clear()
        self._mark.close()

    def _check(self, start: int, end: int) -> None:
        first, synced = self._mark.first, self._mark.read().synced
        if start < first:
            raise LogLost(
                f"{self._folder}: offset {start} is gone, the oldest kept is {first}; retention deleted the rest; "
                "start there, or keep more (log.keep_s)"
            )
        if end > max(synced, start):
            raise LogLost(f"{self._folder}: offset {end - 1} was asked for, but the log ends before offset {synced}")
        if start > synced:
            raise LogLost(f"{self._folder}: a read from offset {start} was asked for, but the log ends before {synced}")

    def _stretches(self, start: int, end: int) -> Iterator[tuple[Segment, int, int]]:
        """The segments that hold start <= offset < end, with the part of the range that each holds."""
        while start < end:
            segment = self._segment(start)
            after = bisect_right(self._firsts, start)
            stop = min(end, self._firsts[after]) if after < len(self._firsts) else end
            yield segment, start, stop
            start = stop

    def _segment(self, offset: int) -> Segment:
        """The segment that holds an offset at or above `first` and below the synced mark."""
        self._list(self._mark.read().active)
        for listed in (True, False):
            if not listed:
                self._firsts = segments(self._folder)
            place = bisect_right(self._firsts, offset) - 1
            if place < 0:
                continue
            try:
                return self._opened(self._firsts[place])
            except FileNotFoundError:
                continue
        if offset < self._mark.first:
            raise LogLost(f"{self._folder}: offset {offset} was deleted by retention while it was being read")
        raise LogDamaged(f"{self._folder}: the segment with offset {offset} is missing; put it back from a copy")

    def _opened(self, first: int) -> Segment:
        segment = self._open.pop(first, None) or Segment(self._folder, first, seed=self._seed)
        self._open[first] = segment
        if len(self._open) > _OPEN_SEGMENTS:
            self._open.popitem(last=False)
        return segment

    def _list(self, active: int) -> None:
        """Looks into the folder again only when the writer has begun a segment that is not known yet."""
        if not self._firsts or self._firsts[-1] < active:
            self._firsts = segments(self._folder)
            # Files that retention deleted would keep their space for as long as they are held open.
            for first in [first for first in self._open if first < self._mark.first]:
                del self._open[first]
            if not self._firsts or self._firsts[-1] < active:
                raise LogDamaged(f"{segment_file(self._folder, active)} is missing; put it back from a copy")
