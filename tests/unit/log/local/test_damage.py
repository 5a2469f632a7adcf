"""Damage to what was durable is found and named, wherever it is, and never skipped or cut."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallymark.log import LocalLogWriter, LogDamaged, NotAppended, Outgoing
from tallymark.log.local import segment
from tallymark.log.local.disk import Disk
from tallymark.log.local.reader import LocalLogReader
from tallymark.log.local.record import HEADER_BYTES, walk_headers

OpenLog = Callable[..., LocalLogWriter]
ReaderOf = Callable[[], LocalLogReader]

PAYLOADS = [b"first", b"second" * 700, b"", b"fourth", b"fifth" * 20]
# segments of 4096 bytes: offsets 0 | 1 | 2 3 4


@pytest.fixture
def folder(open_log: OpenLog, tmp_path: Path) -> Path:
    log = open_log()
    for payload in PAYLOADS:
        log.append([Outgoing(0, payload, 3)])
    log.close()
    folder = tmp_path / "events" / "0000"
    assert sorted(path.stem.lstrip("0") for path in folder.glob("*.seg")) == ["", "1", "2"]
    return folder


def read_every_way(reader: LocalLogReader) -> list[bytes]:
    """Everything, by every path through the index that there is."""
    for start in range(len(PAYLOADS)):
        assert [record.payload for record in reader.read(0, start, len(PAYLOADS))] == PAYLOADS[start:]
        assert reader.append_ms(0, start) == 1_000_000
        assert reader.events_in(0, start, len(PAYLOADS)) == 3 * (len(PAYLOADS) - start)
    assert reader.bounded_end(0, 0, max_events=100, max_bytes=100_000) == len(PAYLOADS)
    assert reader.offset_at(0, 1_000_000) == 0
    assert reader.offset_at(0, 1_000_001) == len(PAYLOADS)
    return [record.payload for record in reader.read(0, 0, len(PAYLOADS))]


def flips(path: Path, step: int) -> Iterator[int]:
    """Each byte of a file in turn, with one bit of it wrong."""
    good = path.read_bytes()
    for place in range(0, len(good), step):
        path.write_bytes(good[:place] + bytes([good[place] ^ (1 << place % 8)]) + good[place + 1 :])
        yield place
    path.write_bytes(good)


@pytest.mark.parametrize(("first", "step"), [(0, 1), (1, 97), (2, 1)])
def test_a_flipped_bit_anywhere_in_a_segment_is_found(folder: Path, reader_of: ReaderOf, first: int, step: int):
    path = folder / f"{first:020d}.seg"
    for _ in flips(path, step):
        with pytest.raises(LogDamaged, match=rf"{path.name}.*offset \d+"):
            read_every_way(reader_of())
    assert read_every_way(reader_of()) == PAYLOADS


def every_bit(path: Path) -> Iterator[tuple[int, int]]:
    """Each bit of a file in turn, wrong."""
    good = path.read_bytes()
    for place in range(len(good)):
        for bit in range(8):
            path.write_bytes(good[:place] + bytes([good[place] ^ (1 << bit)]) + good[place + 1 :])
            yield place, bit
    path.write_bytes(good)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_flipped_bit_anywhere_in_an_index_is_mended_by_whoever_reads(
    folder: Path, open_log: OpenLog, reader_of: ReaderOf, caplog: pytest.LogCaptureFixture, first: int
):
    path = folder / f"{first:020d}.idx"
    good = path.read_bytes()
    reader = reader_of()
    for place, bit in every_bit(path):
        caplog.clear()
        assert read_every_way(reader) == PAYLOADS
        assert path.read_bytes() == good
        assert "mended from the segment" in caplog.text, f"bit {bit} of byte {place} went unnoticed"


@pytest.mark.parametrize("ask", ["append_ms", "offset_at", "events_in", "bounded_end", "read"])
def test_each_use_of_a_damaged_index_gets_what_the_segment_says(folder: Path, reader_of: ReaderOf, ask: str):
    end = len(PAYLOADS)
    asked: dict[str, Callable[[LocalLogReader], object]] = {
        "append_ms": lambda reader: [reader.append_ms(0, offset) for offset in range(end)],
        "offset_at": lambda reader: [reader.offset_at(0, moment) for moment in (0, 1_000_000, 1_000_001)],
        "events_in": lambda reader: [reader.events_in(0, offset, end) for offset in range(end)],
        "bounded_end": lambda reader: [
            reader.bounded_end(0, 0, max_events=most, max_bytes=100_000) for most in range(0, 18, 3)
        ],
        "read": lambda reader: [list(reader.read(0, offset, end)) for offset in range(end)],
    }
    good = asked[ask](reader_of())
    for path in folder.glob("*.idx"):
        path.write_bytes(bytes(path.stat().st_size))
    assert asked[ask](reader_of()) == good


def test_the_writer_mends_a_damaged_index_when_it_opens(folder: Path, open_log: OpenLog):
    for path in folder.glob("*.idx"):
        good = path.read_bytes()
        for place in flips(path, 1):
            if place % 13 == 0:
                open_log().close()
                assert path.read_bytes() == good


def test_an_index_that_cannot_be_written_is_read_past(
    folder: Path, reader_of: ReaderOf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def refuse(file: int, data: bytes, position: int) -> int:
        raise OSError(30, "Read-only file system")

    path = folder / f"{2:020d}.idx"
    path.write_bytes(bytes(path.stat().st_size))
    monkeypatch.setattr("os.pwrite", refuse)
    assert read_every_way(reader_of()) == PAYLOADS
    assert "Read-only file system" in caplog.text
    assert set(path.read_bytes()) == {0}


def test_the_entry_of_a_record_that_is_not_synced_is_left_to_the_writer(
    open_log: OpenLog, reader_of: ReaderOf, tmp_path: Path, clock: Any
):
    """Who mends it could write what the writer has just taken back over what it wrote instead."""
    path = tmp_path / "events" / "0000" / f"{0:020d}.idx"
    looked: list[int] = []

    class Watched(Disk):
        def sync(self, file: int) -> None:
            if path.stat().st_size:
                path.write_bytes(bytes(path.stat().st_size))
                looked.append(reader_of().append_ms(0, 0))
                assert set(path.read_bytes()) == {0}
            super().sync(file)

    open_log(disk=Watched()).append([Outgoing(0, b"x", 1)])
    assert looked == [clock.ms]


def test_an_index_says_how_many_events_a_frame_holds_that_no_longer_reads(folder: Path, reader_of: ReaderOf):
    segment, idx = (folder / f"{2:020d}.{kind}" for kind in ("seg", "idx"))
    good = segment.read_bytes()
    segment.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))  # in the last frame
    idx.write_bytes(bytes(idx.stat().st_size))
    reader = reader_of()
    with pytest.raises(LogDamaged, match="the frame fails its checksum"):
        list(reader.read(0, 0, len(PAYLOADS)))
    assert reader.events_in(0, len(PAYLOADS) - 1, len(PAYLOADS)) == 3


def test_where_neither_the_index_nor_the_segment_reads_both_are_named(folder: Path, reader_of: ReaderOf):
    segment, idx = (folder / f"{2:020d}.{kind}" for kind in ("seg", "idx"))
    nothing = bytes(idx.stat().st_size)
    good, reader = segment.read_bytes(), reader_of()
    for place in range(HEADER_BYTES):
        segment.write_bytes(good[:place] + bytes([good[place] ^ (1 << place % 8)]) + good[place + 1 :])
        idx.write_bytes(nothing)
        with pytest.raises(LogDamaged, match=rf"{segment.name}.*header fails its checksum.*entry of offset 2 fails"):
            reader.append_ms(0, 2)
        assert idx.read_bytes() == nothing, "mended with what does not read"


def test_an_index_is_not_made_from_a_segment_under_the_name_of_another(folder: Path, reader_of: ReaderOf):
    shutil.copy(folder / f"{0:020d}.seg", folder / f"{1:020d}.seg")
    (folder / f"{1:020d}.idx").write_bytes(b"")
    with pytest.raises(LogDamaged, match="the record here has offset 0"):
        reader_of().append_ms(0, 1)


def test_the_writer_does_not_open_over_damage_in_the_last_segment(folder: Path, open_log: OpenLog):
    path = folder / f"{2:020d}.seg"
    size = path.stat().st_size
    for place in flips(path, 1):
        with pytest.raises(LogDamaged, match=r"were synced"):
            open_log()
        assert path.stat().st_size == size, f"cut after a flip at {place}"


def test_an_index_that_is_missing_is_made_again(folder: Path, open_log: OpenLog, reader_of: ReaderOf):
    for path in folder.glob("*.idx"):
        path.unlink()
    assert read_every_way(reader_of()) == PAYLOADS
    assert not list(folder.glob("*.idx")), "a reader made one: retention may be deleting this segment"
    open_log().close()
    assert len(list(folder.glob("*.idx"))) == 3
    assert read_every_way(reader_of()) == PAYLOADS


def test_without_an_index_a_segment_is_walked_through_once_and_warned_of_once(
    open_log: OpenLog, reader_of: ReaderOf, tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):  # fmt: skip
    log = open_log(segment_bytes=1 << 20)
    records = 5_000
    for _ in range(10):
        log.append([Outgoing(0, b"x", 1)] * (records // 10))
        clock.ms += 1_000
    (path,) = (tmp_path / "events" / "0000").glob("*.idx")
    path.unlink()
    walked: list[int] = []

    def counted(*arguments: Any, **more: Any) -> Iterator[Any]:
        for found in walk_headers(*arguments, **more):
            walked.append(found[0])
            yield found

    monkeypatch.setattr(segment, "walk_headers", counted)
    reader = reader_of()
    assert reader.bounded_end(0, 0, max_events=10**9, max_bytes=10**9) == records
    assert len(walked) < 2 * records
    walked.clear()
    for tenth in range(10):
        assert reader.offset_at(0, 1_000_000 + tenth * 1_000) == tenth * records // 10
        assert reader.append_ms(0, tenth * records // 10) == 1_000_000 + tenth * 1_000
    assert len(walked) < 10 * 15 * 256, "from the beginning of the segment for each"
    assert len([record for record in caplog.records if path.name in record.getMessage()]) == 1


def test_a_reader_that_found_no_index_uses_the_one_that_the_writer_makes(
    folder: Path, open_log: OpenLog, reader_of: ReaderOf, monkeypatch: pytest.MonkeyPatch
):
    for path in folder.glob("*.idx"):
        path.unlink()
    reader = reader_of()
    assert read_every_way(reader) == PAYLOADS
    open_log().close()
    monkeypatch.delattr(segment, "walk_headers")
    assert read_every_way(reader) == PAYLOADS


def test_an_index_that_cannot_be_read_is_read_past(
    folder: Path, open_log: OpenLog, reader_of: ReaderOf, monkeypatch: pytest.MonkeyPatch
):
    reader = reader_of()
    assert read_every_way(reader) == PAYLOADS
    indexes = {path.stat().st_ino for path in folder.glob("*.idx")}
    pread = os.pread

    def refuse(file: int, size: int, position: int) -> bytes:
        if os.fstat(file).st_ino in indexes:
            raise OSError(5, "Input/output error")
        return pread(file, size, position)

    monkeypatch.setattr("os.pread", refuse)
    assert read_every_way(reader) == PAYLOADS


def test_where_records_stand_that_are_not_synced_is_not_remembered(
    open_log: OpenLog, reader_of: ReaderOf, tmp_path: Path
):
    """The writer takes them back, and puts others of another size in their place."""
    log = open_log(segment_bytes=1 << 20, disk=(disk := Fails()))
    log.append([Outgoing(0, b"x", 1)])
    (path,) = (tmp_path / "events" / "0000").glob("*.idx")
    path.unlink()
    reader = reader_of()
    disk.before = lambda: reader.append_ms(0, 900)
    (refused, *_) = log.append([Outgoing(0, b"long" * 20, 1)] * 1_000)
    assert isinstance(refused, NotAppended)
    log.close()
    open_log(segment_bytes=1 << 20).append([Outgoing(0, b"x", 1)] * 1_000)
    path.unlink()
    assert [record.payload for record in reader.read(0, 900, 1_001)] == [b"x"] * 101


class Fails(Disk):
    """Fails a sync once somebody has looked at what is about to be taken back."""

    before: Callable[[], object] | None = None

    def sync(self, file: int) -> None:
        if self.before is not None:
            self.before()
            self.before = None
            raise OSError(5, "Input/output error")
        super().sync(file)


def test_an_index_with_entries_of_another_place_is_mended(folder: Path, reader_of: ReaderOf):
    path = folder / f"{2:020d}.idx"
    data = path.read_bytes()
    path.write_bytes(data[40:80] + data[:40] + data[80:])
    assert read_every_way(reader_of()) == PAYLOADS
    assert path.read_bytes() == data


@pytest.mark.parametrize("first", [0, 1, 2])
def test_missing_bytes_are_found(folder: Path, open_log: OpenLog, reader_of: ReaderOf, first: int):
    path = folder / f"{first:020d}.seg"
    good = path.read_bytes()
    for size in range(0, len(good), max(1, len(good) // 50)):
        path.write_bytes(good[:size])
        with pytest.raises(LogDamaged, match=path.name):
            read_every_way(reader_of())
        with pytest.raises(LogDamaged, match=path.name):
            open_log()


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_missing_segment_is_found(folder: Path, open_log: OpenLog, reader_of: ReaderOf, first: int):
    (folder / f"{first:020d}.seg").unlink()
    with pytest.raises(LogDamaged, match="missing"):
        read_every_way(reader_of())
    with pytest.raises(LogDamaged):
        open_log()


def test_a_segment_of_another_partition_does_not_pass(folder: Path, open_log: OpenLog, reader_of: ReaderOf):
    log = open_log()
    for payload in PAYLOADS:
        log.append([Outgoing(1, payload, 3)])
    log.close()
    other = folder.parent / "0001"
    shutil.copy(other / f"{2:020d}.seg", folder / f"{2:020d}.seg")
    with pytest.raises(LogDamaged, match="header fails its checksum"):
        read_every_way(reader_of())


def test_a_segment_under_the_name_of_another_does_not_pass(folder: Path, reader_of: ReaderOf):
    shutil.copy(folder / f"{0:020d}.seg", folder / f"{1:020d}.seg")
    with pytest.raises(LogDamaged, match="the record here has offset 0"):
        read_every_way(reader_of())


def test_a_missing_mark_is_damage(folder: Path, open_log: OpenLog, reader_of: ReaderOf):
    (folder / "mark").unlink()
    with pytest.raises(LogDamaged, match="mark"):
        open_log()
    with pytest.raises(LogDamaged, match="mark"):
        reader_of()


def test_a_glance_stops_at_its_limits_and_at_damage(folder: Path, reader_of: ReaderOf):
    reader, many = reader_of(), {"max_events": 10**9, "max_bytes": 10**9}

    def seen(start: int = 0, **limits: int) -> list[int]:
        return [record.offset for record in reader.glance(0, start, 5, **{**many, **limits})]

    assert seen() == [0, 1, 2, 3, 4]
    assert seen(max_events=4) == [0, 1]
    assert seen(max_bytes=6) == [0, 1]
    assert seen(3, max_events=1) == [3]
    segment_file = folder / f"{1:020d}.seg"
    segment_file.write_bytes(segment_file.read_bytes()[:-1] + b"\0")
    assert seen() == [0]
    assert seen(1) == []
    assert seen(2) == [2, 3, 4]
