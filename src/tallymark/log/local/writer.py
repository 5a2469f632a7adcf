"""The local log's writer: one process, locked; frames grouped by partition, partitions synced at the same time."""

import fcntl
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tallymark import telemetry
from tallymark.log.local.append_clock import AppendClock, steady_ns, wall_ms
from tallymark.log.local.disk import Disk
from tallymark.log.local.layout import open_layout, partition_folder
from tallymark.log.local.partition import PartitionWriter, WriterRules
from tallymark.log.local.record import seed
from tallymark.log.local.retention import no_retention
from tallymark.log.protocol import Appended, LogBusy, NotAppended, Outgoing, Positions

MAX_PAYLOAD_BYTES = 1 << 30


class LocalLogWriter:
    """Appends to a stream under `folder`, making it if there is none. Safe for many threads of this one process.

    `instance` names this writer in every record; a fresh random number unless given. Its sequence counts the records
    of each partition without a gap, so that an auditor can tell that none is missing.
    """

    def __init__(  # noqa: PLR0913
        self,
        folder: Path,
        *,
        stream: str,
        partitions: int,
        partition_by: str,
        segment_bytes: int,
        reserve_bytes: int = 0,
        instance: int | None = None,
        clock: Callable[[], int] = wall_ms,
        steady: Callable[[], int] = steady_ns,
        disk: Disk | None = None,
    ) -> None:
        # Taken here so that they are shown as zero before the first append.
        self._appended_records = telemetry.LOG_APPENDED_RECORDS.labels(stream)
        self._appended_bytes = telemetry.LOG_APPENDED_BYTES.labels(stream)
        self._refused_records = telemetry.LOG_REFUSED_RECORDS.labels(stream)
        self._folder = folder / stream
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self._folder / "writer.lock")
        self._pool = ThreadPoolExecutor(max_workers=min(partitions, 16), thread_name_prefix=f"log-{stream}")
        self._partitions: list[PartitionWriter] = []
        rules = WriterRules(
            segment_bytes=segment_bytes,
            reserve_bytes=reserve_bytes,
            # 63 bits: fits every engine's signed integers.
            instance=secrets.randbits(63) if instance is None else instance,
            disk=disk or Disk(),
            synced_after=telemetry.LOG_SYNC_SECONDS.labels(stream).observe,
        )
        try:
            layout = open_layout(self._folder, partitions=partitions, partition_by=partition_by, disk=rules.disk)
            self.identity = layout.identity
            with no_retention(self._folder):
                for number in range(partitions):
                    folder_of = partition_folder(self._folder, number)
                    key = seed(layout.identity, number)
                    self._partitions.append(PartitionWriter(folder_of, partition=number, seed=key, rules=rules))
            # Who appended last knows best how far append time is ahead; the others may have been quiet since a step.
            newest = max(self._partitions, key=lambda partition: partition.append_ms)
            ahead_ms = newest.positions().clock_ahead_ms
            shared = AppendClock(wall=clock, steady=steady, last_ms=newest.append_ms, ahead_ms=ahead_ms)
            for partition in self._partitions:
                partition.start(shared)
        except BaseException:
            self.close()
            raise

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    def append(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
        """One outcome a frame, in order; what is `Appended` is durable when this returns."""
        if self._lock < 0:
            return [NotAppended(frame.partition, "the log is closed") for frame in frames]
        places: dict[int, list[int]] = {}
        for place, frame in enumerate(frames):
            _check(frame, self.partitions)
            places.setdefault(frame.partition, []).append(place)
        outcomes: dict[int, Appended | NotAppended] = {}
        batches = [([frames[place] for place in group], group) for group in places.values()]
        # fdatasync releases the interpreter lock: partitions wait for the disk together, the last one in this thread.
        waiting = [
            (self._pool.submit(self._partitions[batch[0].partition].append, batch), group)
            for batch, group in batches[:-1]
        ]
        for batch, group in batches[-1:]:
            outcomes.update(zip(group, self._partitions[batch[0].partition].append(batch), strict=True))
        for future, group in waiting:
            outcomes.update(zip(group, future.result(), strict=True))
        self._measure(frames, outcomes)
        return [outcomes[place] for place in range(len(frames))]

    def positions(self) -> Mapping[int, Positions]:
        return {number: partition.positions() for number, partition in enumerate(self._partitions)}

    def sealed(self) -> Mapping[int, str]:
        """Partitions that take nothing more before the log is opened again, and why."""
        return {number: why for number, partition in enumerate(self._partitions) if (why := partition.sealed)}

    def close(self) -> None:
        self._pool.shutdown()
        for partition in self._partitions:
            partition.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _measure(self, frames: Sequence[Outgoing], outcomes: Mapping[int, Appended | NotAppended]) -> None:
        taken = [place for place, outcome in outcomes.items() if isinstance(outcome, Appended)]
        self._appended_records.inc(len(taken))
        self._appended_bytes.inc(sum(len(frames[place].payload) for place in taken))
        self._refused_records.inc(len(frames) - len(taken))


def _lock(path: Path) -> int:
    """The writer's lock, held until its file is closed, also by a crash."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file, 20, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(file)
        raise LogBusy(
            f"{path.parent} is being written by process {holder}; stop it, or use another data folder"
        ) from None
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file


def _check(frame: Outgoing, partitions: int) -> None:
    if not 0 <= frame.partition < partitions:
        raise ValueError(f"partition {frame.partition} does not exist; the stream has 0 to {partitions - 1}")
    if len(frame.payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a frame of {len(frame.payload):,} bytes exceeds {MAX_PAYLOAD_BYTES:,}")
    if not 0 <= frame.events < 1 << 32:
        raise ValueError(f"a frame cannot hold {frame.events} events")
