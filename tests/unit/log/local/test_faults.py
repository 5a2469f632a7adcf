"""A disk that is full, slow to say so, or broken: what cannot be made durable is refused, and nothing of it is left."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallymark.log import Appended, LocalLogWriter, LogLost, NotAppended, Outgoing
from tallymark.log.local.disk import Disk
from tallymark.log.local.reader import LocalLogReader

OpenLog = Callable[..., LocalLogWriter]
ReaderOf = Callable[[], LocalLogReader]

FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


class FaultyDisk(Disk):
    """Fails the calls named in `faults` after writing `room` more bytes."""

    def __init__(self) -> None:
        self.faults: dict[str, OSError] = {}
        self.room: int | None = None
        self.most_at_once = 1 << 30
        self.free = 1 << 40

    def _may_fail(self, call: str) -> None:
        if call in self.faults:
            raise self.faults[call]

    def create(self, path: Path) -> int:
        self._may_fail(f"create {path.suffix}")
        return super().create(path)

    def write(self, file: int, data: memoryview, position: int) -> int:
        self._may_fail("write")
        size = min(len(data), self.most_at_once)
        if self.room is not None:
            size = min(size, self.room)
            self.room -= size
            if size == 0:
                raise FULL
        return os.pwrite(file, data[:size], position)

    def sync(self, file: int) -> None:
        self._may_fail("sync")

    def truncate(self, file: int, size: int) -> None:
        self._may_fail("truncate")
        super().truncate(file, size)

    def sync_folder(self, folder: Path) -> None:
        self._may_fail("sync_folder")

    def free_bytes(self, folder: Path) -> int:
        self._may_fail("free_bytes")
        return self.free


class WatchedDisk(Disk):
    """Calls somebody in the middle of each sync."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look

    def sync(self, file: int) -> None:
        self.look()


def test_while_it_is_synced_a_record_has_an_append_time_and_nothing_more(
    open_log: OpenLog, reader_of: ReaderOf, clock: Any
) -> None:
    told: list[tuple[int, int]] = []

    def look() -> None:
        reader = reader_of()
        standing = reader.positions()[0]
        if standing.end > standing.synced:
            told.append((standing.synced, reader.append_ms(0, standing.synced)))
            with pytest.raises(LogLost):
                reader.read(0, standing.synced, standing.end)
            with pytest.raises(LogLost):
                reader.append_ms(0, standing.end)

    log = open_log(disk=WatchedDisk(look))
    for number in range(3):
        clock.ms = 1_000_000 + number
        log.append(frames(f"record {number}"))
    assert told == [(0, 1_000_000), (1, 1_000_001), (2, 1_000_002)]


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def frames(*texts: str, partition: int = 0) -> list[Outgoing]:
    return [Outgoing(partition, text.encode(), 1) for text in texts]


def contents(reader: LocalLogReader, partition: int = 0) -> list[str]:
    synced = reader.positions()[partition].synced
    return [record.payload.decode() for record in reader.read(partition, 0, synced)]


def reasons(outcomes: list[Appended | NotAppended]) -> set[str]:
    assert all(isinstance(outcome, NotAppended) for outcome in outcomes)
    return {outcome.reason for outcome in outcomes if isinstance(outcome, NotAppended)}


def test_a_write_that_fails_at_any_byte_leaves_nothing(open_log: OpenLog, reader_of: ReaderOf, disk, tmp_path: Path):
    log = open_log(disk=disk)
    log.append(frames("kept"))
    files = [tmp_path / "events" / "0000" / f"{0:020d}.{kind}" for kind in ("seg", "idx")]
    before = [path.read_bytes() for path in files]
    needed = 2 * (len("lost") + 60) + 2 * 40  # two records, two entries of the index
    for room in range(needed):
        disk.room = room
        assert reasons(log.append(frames("lost", "lost"))) == {
            f"cannot write {tmp_path}/events/0000: No space left on device"
        }
        assert [path.read_bytes() for path in files] == before
    disk.room = needed
    assert [type(outcome) for outcome in log.append(frames("more", "more"))] == [Appended, Appended]
    disk.room = None
    assert contents(reader_of()) == ["kept", "more", "more"]
    assert [record.sequence for record in reader_of().read(0, 0, 3)] == [0, 1, 2]


def test_short_writes_are_continued(open_log: OpenLog, reader_of: ReaderOf, disk):
    disk.most_at_once = 7
    log = open_log(disk=disk)
    log.append(frames("one", "two"))
    assert contents(reader_of()) == ["one", "two"]


def test_a_full_partition_does_not_take_the_others_with_it(open_log: OpenLog, reader_of: ReaderOf, disk):
    class OneBadPartition(FaultyDisk):
        def write(self, file: int, data: memoryview, position: int) -> int:
            if "/0001/" in str(Path(f"/proc/self/fd/{file}").readlink()):
                raise BROKEN
            return super().write(file, data, position)

    log = open_log(disk=OneBadPartition())
    outcomes = log.append([Outgoing(0, b"a", 1), Outgoing(1, b"b", 1), Outgoing(0, b"c", 1)])
    assert [type(outcome) for outcome in outcomes] == [Appended, NotAppended, Appended]
    assert contents(reader_of(), 0) == ["a", "c"]
    assert contents(reader_of(), 1) == []


def test_a_failed_sync_is_final_until_the_log_is_opened_again(open_log: OpenLog, reader_of: ReaderOf, disk):
    log = open_log(disk=disk)
    log.append(frames("kept"))
    disk.faults["sync"] = BROKEN
    (reason,) = reasons(log.append(frames("lost")))
    assert "a sync failed (Input/output error)" in reason
    disk.faults.clear()  # syncs would succeed again, but the kernel may have dropped the pages
    assert reasons(log.append(frames("lost too"))) == {reason}
    assert log.sealed() == {0: reason}
    assert isinstance(log.append(frames("elsewhere", partition=1))[0], Appended)
    assert contents(reader_of()) == ["kept"]

    log.close()
    log = open_log(disk=disk)
    assert log.sealed() == {}
    assert log.append(frames("next")) == [Appended(0, 1, 1_000_000)]
    assert contents(reader_of()) == ["kept", "next"]


def test_a_write_that_cannot_be_undone_seals(open_log: OpenLog, reader_of: ReaderOf, disk):
    log = open_log(disk=disk)
    log.append(frames("kept"))
    disk.room = 70
    disk.faults["truncate"] = BROKEN
    (reason,) = reasons(log.append(frames("lost" * 10)))
    assert "could not be undone" in reason
    disk.faults.clear()
    disk.room = None
    assert reasons(log.append(frames("x"))) == {reason}
    log.close()
    log = open_log(disk=disk)  # the half-written record is cut here
    log.append(frames("next"))
    assert contents(reader_of()) == ["kept", "next"]


def test_a_segment_that_cannot_be_begun_is_tried_again_later(open_log: OpenLog, reader_of: ReaderOf, disk):
    log = open_log(disk=disk, segment_bytes=4096)
    log.append(frames("a" * 4000))
    for kind in ("create .idx", "create .seg"):
        disk.faults[kind] = FULL
        assert "cannot write" in reasons(log.append(frames("b" * 4000))).pop()
        disk.faults.clear()
    assert log.append(frames("c")) == [Appended(0, 1, 1_000_000)]  # fits into the old segment
    assert log.append(frames("d" * 4000)) == [Appended(0, 2, 1_000_000)]
    log.close()
    open_log(disk=disk)
    assert contents(reader_of()) == ["a" * 4000, "c", "d" * 4000]


@pytest.mark.parametrize("call", ["sync_folder", "sync"])
def test_a_failed_sync_while_rolling_is_final(open_log: OpenLog, reader_of: ReaderOf, disk, call: str):
    log = open_log(disk=disk, segment_bytes=4096)
    log.append(frames("a" * 4000))
    disk.faults[call] = BROKEN
    assert "sync" in reasons(log.append(frames("b" * 4000))).pop()
    disk.faults.clear()
    assert log.sealed()
    log.close()
    log = open_log(disk=disk, segment_bytes=4096)
    log.append(frames("c" * 4000))
    assert contents(reader_of()) == ["a" * 4000, "c" * 4000]


def test_a_reserve_of_space_is_left_to_others(open_log: OpenLog, disk):
    log = open_log(disk=disk, reserve_bytes=1000)
    disk.free = 1062
    assert isinstance(log.append(frames("ab"))[0], Appended)
    disk.free = 1061
    (reason,) = reasons(log.append(frames("ab")))
    assert reason == "1,061 bytes are free on the disk, but log.reserve_bytes = 1,000; make room"
    disk.free = 1 << 30
    assert log.append(frames("ab")) == [Appended(0, 1, 1_000_000)]


def test_an_interrupt_in_the_middle_is_undone_too(open_log: OpenLog, reader_of: ReaderOf):
    class Interrupted(FaultyDisk):
        interrupt = False

        def sync(self, file: int) -> None:
            if self.interrupt:
                self.interrupt = False
                raise KeyboardInterrupt

    disk = Interrupted()
    log = open_log(disk=disk)
    disk.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        log.append(frames("a longer one"))
    log.append(frames("b"))
    assert contents(reader_of()) == ["b"]
    log.close()
    open_log()
    assert contents(reader_of()) == ["b"]
