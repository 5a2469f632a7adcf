"""Retention deletes whole closed segments below what is asked for, and never the record to go on from."""

import mmap
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tallymark.log import Appended, LocalLogWriter, LogDamaged, LogLost, Outgoing, drop_oldest, retain
from tallymark.log.local.mark import Mark
from tallymark.log.local.reader import LocalLogReader

OpenLog = Callable[..., LocalLogWriter]
ReaderOf = Callable[[], LocalLogReader]


@pytest.fixture
def log(open_log: OpenLog, clock) -> LocalLogWriter:
    """Segments of two records: 0 1 | 2 3 | 4 5 | 6 7 | 8 9, appended at 0, 10, 20 …"""
    clock.ms = 0
    log = open_log(segment_bytes=4096)
    for number in range(10):
        clock.ms = number * 10
        log.append([Outgoing(0, b"%d" % number * 1900, 1)])
    return log


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return tmp_path / "events"


def firsts(stream: Path, partition: int = 0) -> list[int]:
    names = {
        kind: sorted(int(path.stem) for path in stream.glob(f"{partition:04d}/*.{kind}")) for kind in ("seg", "idx")
    }
    assert names["seg"] == names["idx"]
    return names["seg"]


@pytest.mark.parametrize(
    ("keep_from", "left"),
    [(0, [0, 2, 4, 6, 8]), (1, [0, 2, 4, 6, 8]), (2, [2, 4, 6, 8]), (5, [4, 6, 8]), (8, [8]), (10, [8]), (99, [8])],
)
def test_only_whole_segments_below_the_offset_go(
    log, stream: Path, reader_of: ReaderOf, keep_from: int, left: list[int]
):
    freed = retain(stream, {0: keep_from})
    assert firsts(stream) == left
    assert freed == left[0] // 2 * (2 * (1900 + 60) + 2 * 40)
    reader = reader_of()
    assert reader.positions()[0].first == left[0]
    assert reader.positions()[0].events == 10
    assert [record.offset for record in reader.read(0, left[0], 10)] == list(range(left[0], 10))


def test_deleted_offsets_are_lost_with_a_way_out(log, stream: Path, reader_of: ReaderOf):
    retain(stream, {0: 4})
    reader = reader_of()
    for ask in (lambda: reader.read(0, 3, 5), lambda: reader.append_ms(0, 0)):
        with pytest.raises(LogLost, match=r"is gone, the oldest kept is 4.*log\.keep_s"):
            ask()
    with pytest.raises(LogLost):
        reader.bounded_end(0, 0, max_events=1, max_bytes=1)
    assert reader.offset_at(0, 0) == 4
    assert reader.offset_at(0, 55) == 6


def test_a_read_under_way_is_told_when_its_records_go(log, stream: Path, reader_of: ReaderOf):
    reader = reader_of()
    reading = reader.read(0, 0, 10)
    assert next(reading).offset == 0
    retain(stream, {0: 6})
    assert next(reading).offset == 1  # the open segment is still there
    with pytest.raises(LogLost, match="offset 2 was deleted by retention"):
        next(reading)


def test_a_missing_segment_that_retention_did_not_take_is_damage(
    log, stream: Path, reader_of: ReaderOf, open_log: OpenLog
):
    for kind in ("seg", "idx"):
        (stream / "0000" / f"{0:020d}.{kind}").unlink()
    with pytest.raises(LogDamaged):
        list(reader_of().read(0, 0, 10))
    log.close()
    with pytest.raises(LogDamaged, match="is missing"):
        open_log(segment_bytes=4096)


def test_the_writer_goes_on_after_everything_else_was_deleted(log, stream: Path, open_log: OpenLog, clock):
    retain(stream, {0: 10, 1: 10})
    log.close()
    clock.ms = 3  # stepped back: the last record kept still says when it was
    log = open_log(segment_bytes=4096)
    assert log.append([Outgoing(0, b"x" * 4000, 1)]) == [Appended(0, 10, 90)]
    assert log.positions()[0].events == 11


def test_the_last_record_is_kept_while_the_newest_segment_is_empty(log, stream: Path, open_log: OpenLog):
    """A writer that dies after it began a segment leaves it empty; what it knows stands in the one before."""
    log.close()
    for kind in ("seg", "idx"):
        (stream / "0000" / f"{10:020d}.{kind}").touch()
    retain(stream, {0: 10})
    assert firsts(stream) == [8, 10]
    assert open_log(segment_bytes=4096).append([Outgoing(0, b"x", 1)]) == [Appended(0, 10, 90)]


def test_what_an_interrupted_retention_left_is_deleted_later(log, stream: Path, open_log: OpenLog, reader_of: ReaderOf):
    mark = Mark(stream / "0000" / "mark", writable=True)
    mark.move_first(6)  # and then the process died, before it deleted a file
    mark.close()
    with pytest.raises(LogLost):
        reader_of().read(0, 4, 6)
    retain(stream, {0: 0})
    assert firsts(stream) == [6, 8]
    log.close()
    open_log(segment_bytes=4096)
    assert [record.offset for record in reader_of().read(0, 6, 10)] == [6, 7, 8, 9]


def test_the_writer_deletes_what_an_interrupted_retention_left(log, stream: Path, open_log: OpenLog):
    log.close()
    mark = Mark(stream / "0000" / "mark", writable=True)
    mark.move_first(6)
    mark.close()
    open_log(segment_bytes=4096)
    assert firsts(stream) == [6, 8]


@pytest.mark.parametrize("died", ["a kill", "a power cut"])
def test_a_death_at_any_moment_of_retention_leaves_a_log_that_opens(
    log, stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died: str
):
    """After a kill the mark is as it was written, after a power cut as it was last flushed; deleted files are gone."""
    durable: list[bytes] = [(stream / "0000" / "mark").read_bytes()]
    copies: list[Path] = []

    class Flushed(mmap.mmap):
        def flush(self) -> None:
            super().flush()
            durable.append(bytes(self))

    def copy() -> None:
        copies.append(tmp_path / f"copy-{len(copies)}")
        shutil.copytree(stream, copies[-1] / "events")
        if died == "a power cut":
            (copies[-1] / "events" / "0000" / "mark").write_bytes(durable[-1])

    def unlink_and_copy(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        copy()

    unlink = Path.unlink
    with monkeypatch.context() as patched:
        patched.setattr("tallymark.log.local.mark.mmap.mmap", Flushed)
        patched.setattr(Path, "unlink", unlink_and_copy)
        retain(stream, {0: 6})
    assert len(copies) == 6, "three segments with their indexes"
    log.close()
    for folder in copies:
        writer = LocalLogWriter(folder, stream="events", partitions=2, partition_by="id", segment_bytes=4096)
        first = writer.positions()[0].first
        assert firsts(folder / "events") == [6, 8]
        writer.close()
        reader = LocalLogReader(folder, "events")
        assert [record.offset for record in reader.read(0, first, 10)] == [6, 7, 8, 9]
        reader.close()


def test_a_stream_is_kept_within_its_room(log, stream: Path, reader_of: ReaderOf):
    segment = 2 * (1900 + 60) + 2 * 40
    assert drop_oldest(stream, 2 * 10 * segment) == 0
    assert drop_oldest(stream, 2 * 3 * segment) == 2 * segment  # two partitions share the room
    assert firsts(stream) == [4, 6, 8]
    drop_oldest(stream, 0)
    assert firsts(stream) == [8]
    assert [record.offset for record in reader_of().read(0, 8, 10)] == [8, 9]


def test_appends_go_on_while_segments_are_deleted(log, stream: Path, reader_of: ReaderOf):
    reader = reader_of()
    for number in range(10, 60):
        log.append([Outgoing(0, b"x" * 1900, 1)])
        retain(stream, {0: number - 4})
        first = reader.positions()[0].first
        assert [record.offset for record in reader.read(0, first, number + 1)] == list(range(first, number + 1))
    assert first > 50
