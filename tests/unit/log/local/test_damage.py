"""Damage to what was durable is found and named, wherever it is, and never skipped or cut."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallymark.log import LocalLogWriter, LogDamaged, Outgoing
from tallymark.log.local.reader import LocalLogReader

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
    assert reader.bounded_end(0, 0, max_events=100, max_bytes=100_000) == len(PAYLOADS)
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


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_flipped_bit_anywhere_in_an_index_is_found_and_mended_by_the_writer(
    folder: Path, open_log: OpenLog, reader_of: ReaderOf, first: int
):
    path = folder / f"{first:020d}.idx"
    good = path.read_bytes()
    for place in flips(path, 1):
        reader = reader_of()
        with pytest.raises(LogDamaged, match=rf"{path.name}.*collector next starts"):
            read_every_way(reader)
        if place % 13 == 0:
            open_log().close()
            assert path.read_bytes() == good
            assert read_every_way(reader) == PAYLOADS


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
    with pytest.raises(LogDamaged, match="missing"):
        read_every_way(reader_of())
    open_log().close()
    assert read_every_way(reader_of()) == PAYLOADS


def test_an_index_with_entries_of_another_place_is_found(folder: Path, reader_of: ReaderOf):
    path = folder / f"{2:020d}.idx"
    data = path.read_bytes()
    path.write_bytes(data[40:80] + data[:40] + data[80:])
    with pytest.raises(LogDamaged, match=path.name):
        read_every_way(reader_of())


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
