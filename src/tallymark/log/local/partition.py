"""One partition as its writer has it: stamp, write, sync, publish, and take back what could not be made durable."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallymark.log.local import index
from tallymark.log.local.append_clock import AppendClock
from tallymark.log.local.disk import Disk, write_all
from tallymark.log.local.layout import index_file, mark_file, segment_file
from tallymark.log.local.mark import Mark, Standing
from tallymark.log.local.record import HEADER_BYTES, Header, pack
from tallymark.log.local.recovery import WAY_OUT, recover
from tallymark.log.protocol import Appended, LogDamaged, NotAppended, Outgoing, Positions


@dataclass(frozen=True, slots=True)
class WriterRules:
    """What all partitions of one writer share."""

    segment_bytes: int
    reserve_bytes: int
    instance: int
    disk: Disk
    synced_after: Callable[[float], None]
    """told the seconds each sync took"""


class PartitionWriter:
    """Appends to one partition, once it is started. Safe for many threads: one append at a time, each durable before
    the next begins.
    """

    def __init__(self, folder: Path, *, partition: int, seed: int, rules: WriterRules) -> None:
        self._folder = folder
        self._partition = partition
        self._seed = seed
        self._rules = rules
        self._disk = rules.disk
        self._lock = threading.Lock()
        self._sealed: str | None = None
        try:
            self._mark = Mark(mark_file(folder), writable=True)
        except (FileNotFoundError, ValueError) as error:
            raise LogDamaged(f"{mark_file(folder)}: {error}; {WAY_OUT}") from error
        try:
            recovered = recover(folder, seed=seed, mark=self._mark, disk=rules.disk)
        except BaseException:
            self._mark.close()
            raise
        last = recovered.last
        self._active = recovered.active
        self._position = recovered.position
        self._end = recovered.end
        self._events = last.events_before + last.events if last else 0
        self._append_ms = last.append_ms if last else 0
        self._clock: AppendClock | None = None
        self._sequence = last.sequence + 1 if last and last.instance == rules.instance else 0
        self._segment = os.open(segment_file(folder, self._active), os.O_RDWR)
        self._index = os.open(index_file(folder, self._active), os.O_RDWR)

    def start(self, clock: AppendClock) -> None:
        """Goes on by this clock, which all partitions of the writer share and which knows the last records of all."""
        self._clock = clock
        self._publish(end=self._end)
        self._mark.flush()

    @property
    def append_ms(self) -> int:
        """The append time of the last record, 0 if there is none."""
        return self._append_ms

    @property
    def sealed(self) -> str | None:
        """Why nothing can be appended any more before the log is opened again."""
        return self._sealed

    def append(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
        """All of the frames, durable, or none of them."""
        with self._lock:
            size = sum(len(frame.payload) + HEADER_BYTES for frame in frames)
            if (reason := self._sealed or self._lack_of_space(size)) is not None:
                return self._refused(frames, reason)
            try:
                if self._position and self._position + size > self._rules.segment_bytes:
                    self._roll()
                written = self._write(frames)
                self._sync(self._segment)
            except OSError as error:
                self._take_back()
                return self._refused(frames, self._sealed or f"cannot write {self._folder}: {error.strerror or error}")
            except BaseException:
                self._take_back()
                raise
            offset = self._end
            self._accept(written)
            return [
                Appended(self._partition, number, self._append_ms) for number in range(offset, offset + len(frames))
            ]

    def positions(self) -> Positions:
        standing = self._mark.read()
        return Positions(self._mark.first, standing.synced, standing.end, standing.events, standing.ahead_ms)

    def close(self) -> None:
        with self._lock:
            self._sealed = "the log is closed"
            if self._segment >= 0:
                os.close(self._segment)
                os.close(self._index)
                self._segment = self._index = -1
                if self._clock is not None:
                    # The wall clock may have been set since the last append: whoever goes on must know.
                    self._clock.now_ms()
                    self._publish(end=self._end)
                    self._mark.flush()
                self._mark.close()

    def _lack_of_space(self, size: int) -> str | None:
        """Refuses while there is still space for others to end well: the store, the log files."""
        try:
            free = self._disk.free_bytes(self._folder)
        except OSError as error:
            return f"cannot tell the free space of {self._folder}: {error.strerror or error}"
        if free - size >= self._rules.reserve_bytes:
            return None
        return f"{free:,} bytes are free on the disk, but log.reserve_bytes = {self._rules.reserve_bytes:,}; make room"

    def _roll(self) -> None:
        """Begins a new segment. The old one is synced: every append ends with that.

        The index is made first. A failure then leaves no segment, or a sealed partition: never one that goes on in the
        old segment while the new one stands behind it.
        """
        self._sync(self._index)
        files: list[int] = []
        try:
            for path in (index_file(self._folder, self._end), segment_file(self._folder, self._end)):
                files.append(self._disk.create(path))
            self._sync_folder()
        except OSError:
            for file in files:
                os.close(file)
            raise
        os.close(self._index)
        os.close(self._segment)
        self._index, self._segment = files
        self._active, self._position = self._end, 0

    def _write(self, frames: Sequence[Outgoing]) -> "_Written":
        append_ms = self._started().now_ms()
        instance = self._rules.instance
        position, events = self._position, self._events
        buffers: list[bytes] = []
        entries: list[bytes] = []
        for number, frame in enumerate(frames):
            header = Header(self._end + number, append_ms, events, frame.events, instance, self._sequence + number)
            buffers += (pack(header, frame.payload, seed=self._seed), frame.payload)
            entry = index.Entry(position, append_ms, events, frame.events, len(frame.payload))
            entries.append(index.pack(entry, offset=header.offset, seed=self._seed))
            position = entry.next_position
            events += frame.events
        write_all(self._disk, self._segment, b"".join(buffers), self._position)
        write_all(self._disk, self._index, b"".join(entries), (self._end - self._active) * index.ENTRY_BYTES)
        self._publish(end=self._end + len(frames))
        return _Written(len(frames), position, events, append_ms)

    def _accept(self, written: "_Written") -> None:
        """What was written is durable: offsets and sequence numbers are used up, readers may see it."""
        self._end += written.records
        self._sequence += written.records
        self._position = written.position
        self._events = written.events
        self._append_ms = written.append_ms
        self._publish(end=self._end)

    def _take_back(self) -> None:
        """Undoes an append that failed half way; a partition that cannot even do that is sealed."""
        try:
            self._publish(end=self._end)
            self._disk.truncate(self._segment, self._position)
            self._disk.truncate(self._index, (self._end - self._active) * index.ENTRY_BYTES)
            self._disk.sync(self._segment)
        except OSError as error:
            self._seal(f"a failed append could not be undone ({error.strerror or error})")

    def _sync(self, file: int) -> None:
        started = time.perf_counter()
        try:
            self._disk.sync(file)
        except OSError as error:
            # The kernel may have dropped the pages and call the next sync a success: only a fresh start can be trusted.
            self._seal(f"a sync failed ({error.strerror or error})")
            raise
        self._rules.synced_after(time.perf_counter() - started)

    def _sync_folder(self) -> None:
        try:
            self._disk.sync_folder(self._folder)
        except OSError as error:
            self._seal(f"a sync of the folder failed ({error.strerror or error})")
            raise

    def _seal(self, why: str) -> None:
        if self._sealed is None:
            self._sealed = f"{self._folder} takes nothing more: {why}; check the disk, then restart the collector"

    def _publish(self, *, end: int) -> None:
        self._mark.publish(
            Standing(
                synced=self._end,
                end=end,
                events=self._events,
                active=self._active,
                ahead_ms=self._started().ahead_ms,
            )
        )

    def _started(self) -> AppendClock:
        assert self._clock is not None, "an append before start()"
        return self._clock

    def _refused(self, frames: Sequence[Outgoing], reason: str) -> list[Appended | NotAppended]:
        return [NotAppended(self._partition, reason) for _ in frames]


@dataclass(frozen=True, slots=True)
class _Written:
    """Where the partition stands once what was written is durable."""

    records: int
    position: int
    events: int
    append_ms: int
