"""Whatever kills the writer, whatever power leaves of the files: what was acknowledged is there, nothing torn is."""

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.log import Appended, LocalLogWriter, LogDamaged, Outgoing
from tallymark.log.local.disk import Disk
from tallymark.log.local.reader import LocalLogReader

OpenLog = Callable[..., LocalLogWriter]
ReaderOf = Callable[[], LocalLogReader]
PARTITIONS = 2
MEMORY = Path("/dev/shm")


class Killed(BaseException):
    """The process ends here: nothing after it runs."""


class MortalDisk(Disk):
    """Lets the process die after so many bytes, and knows how much of each file would survive a power cut."""

    def __init__(self) -> None:
        self.bytes_to_live: int | None = None
        self.dead = False
        self.durable: dict[Path, int] = {}

    def write(self, file: int, data: memoryview, position: int) -> int:
        self._live()
        if self.bytes_to_live is not None and len(data) >= self.bytes_to_live:
            os.pwrite(file, data[: self.bytes_to_live], position)
            self.dead = True
            raise Killed
        if self.bytes_to_live is not None:
            self.bytes_to_live -= len(data)
        return super().write(file, data, position)

    def sync(self, file: int) -> None:
        self._live()
        self.durable[Path(f"/proc/self/fd/{file}").readlink()] = os.fstat(file).st_size

    def truncate(self, file: int, size: int) -> None:
        self._live()
        super().truncate(file, size)

    def sync_folder(self, folder: Path) -> None:
        self._live()

    def _live(self) -> None:
        if self.dead:
            raise Killed


class World:
    """A log, a disk that can kill it, and what the log has promised."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = MortalDisk()
        self.promised: list[list[tuple[bytes, int]]] = [[] for _ in range(PARTITIONS)]
        self.marks: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.made = 0
        self.open()

    def open(self) -> None:
        self.log = LocalLogWriter(
            self.folder, stream="s", partitions=PARTITIONS, partition_by="id", segment_bytes=4096, disk=self.disk
        )
        self._remember_marks()

    def frames(self, shape: list[tuple[int, int]]) -> list[Outgoing]:
        frames = []
        for partition, size in shape:
            self.made += 1
            frames.append(Outgoing(partition, f"{self.made}:".encode() + b"x" * size, self.made % 7))
        return frames

    def append(self, shape: list[tuple[int, int]]) -> None:
        frames = self.frames(shape)
        for frame, outcome in zip(frames, self.log.append(frames), strict=True):
            assert isinstance(outcome, Appended)
            assert outcome.offset == len(self.promised[frame.partition])
            self.promised[frame.partition].append((frame.payload, frame.events))
        self._remember_marks()

    def reopen(self) -> None:
        self.log.close()
        self.open()
        self.check([])

    def die(self, shape: list[tuple[int, int]], bytes_to_live: int, *, power: random.Random | None) -> None:
        frames = self.frames(shape)
        self.disk.bytes_to_live = bytes_to_live
        try:
            for frame, outcome in zip(frames, self.log.append(frames), strict=True):
                assert isinstance(outcome, Appended)
                self.promised[frame.partition].append((frame.payload, frame.events))
            frames = []
        except Killed:
            pass
        self.log.close()  # as the kernel does for a dead process: the files and the lock
        if power:
            self._cut_power(power)
        self.disk.dead, self.disk.bytes_to_live = False, None
        self.open()
        self.check(frames)

    def check(self, in_flight: list[Outgoing]) -> None:
        """All that was promised, then perhaps whole frames of the append that nobody answered, and nothing else."""
        reader = LocalLogReader(self.folder, "s")
        for partition, position in reader.positions().items():
            records = list(reader.read(partition, 0, position.synced))
            found = [(record.payload, record.events) for record in records]
            possible = [(frame.payload, frame.events) for frame in in_flight if frame.partition == partition]
            promised = self.promised[partition]
            assert found[: len(promised)] == promised
            assert found[len(promised) :] == possible[: len(found) - len(promised)]
            assert position.events == sum(events for _, events in found)
            times = [record.append_ms for record in records]
            assert times == sorted(times)
            assert [reader.append_ms(partition, offset) for offset in range(len(found))] == times
            self.promised[partition] = found
        reader.close()

    def _cut_power(self, chance: random.Random) -> None:
        """Every file keeps what was synced; beyond that anything may be there. The mark may be any older one."""
        for path in sorted(self.folder.glob("s/*/*.seg")) + sorted(self.folder.glob("s/*/*.idx")):
            data = path.read_bytes()
            safe = self.disk.durable.get(path, 0)
            if safe == len(data):  # nothing was on its way into this file
                continue
            tail = bytearray(data[safe:])
            if chance.random() < 0.3:
                tail = tail[: chance.randint(0, len(tail))]
            if tail and chance.random() < 0.5:
                begin, end = sorted(chance.randrange(len(tail) + 1) for _ in range(2))
                tail[begin:end] = bytes(end - begin) if chance.random() < 0.5 else chance.randbytes(end - begin)
            if chance.random() < 0.3:
                tail += bytes(chance.randint(0, 300))
            path.write_bytes(data[:safe] + tail)
        for partition, marks in enumerate(self.marks):
            (self.folder / "s" / f"{partition:04d}" / "mark").write_bytes(chance.choice(marks))

    def _remember_marks(self) -> None:
        for partition, marks in enumerate(self.marks):
            marks.append((self.folder / "s" / f"{partition:04d}" / "mark").read_bytes())


shapes = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.sampled_from([0, 1, 50, 900, 2500])), min_size=1, max_size=5
)
steps = st.one_of(
    st.tuples(st.just("append"), shapes),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("kill"), shapes, st.integers(0, 6000)),
    st.tuples(st.just("power"), shapes, st.integers(0, 6000), st.integers(0, 2**32)),
)


@settings(max_examples=120, deadline=None)
@given(history=st.lists(steps, max_size=12))
def test_no_death_loses_what_was_acknowledged_or_shows_what_was_torn(history):
    # The model decides what is durable, so real syncs would only cost time: in memory where there is such a folder.
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        world = World(Path(folder))
        for step, *values in history:
            match step, values:
                case "append", [shape]:
                    world.append(shape)
                case "reopen", []:
                    world.reopen()
                case "kill", [shape, bytes_to_live]:
                    world.die(shape, bytes_to_live, power=None)
                case "power", [shape, bytes_to_live, seed]:
                    # Seeded: partitions are written by threads, so how much chance is drawn differs between runs.
                    world.die(shape, bytes_to_live, power=random.Random(seed))
        world.reopen()
        ends = [world.log.positions()[partition].end for partition in range(PARTITIONS)]
        assert ends == [len(promised) for promised in world.promised]
        world.log.close()


def written(log: LocalLogWriter, *texts: str) -> None:
    for text in texts:
        assert isinstance(log.append([Outgoing(0, text.encode(), 1)])[0], Appended)


def contents(reader: LocalLogReader) -> list[str]:
    return [record.payload.decode() for record in reader.read(0, 0, reader.positions()[0].synced)]


@pytest.mark.parametrize(
    "tail", [b"\0", b"\0" * 5000, b"TMr1", b"TMr1" + b"\0" * 100, b"garbage" * 50], ids=lambda tail: f"{tail[:4]!r}"
)
def test_a_tail_that_is_not_a_record_is_cut(open_log: OpenLog, reader_of: ReaderOf, tmp_path: Path, tail: bytes):
    log = open_log()
    written(log, "a", "b")
    log.close()
    path = tmp_path / "events" / "0000" / f"{0:020d}.seg"
    good = path.read_bytes()
    path.write_bytes(good + tail)
    log = open_log()
    assert path.read_bytes() == good
    written(log, "c")
    assert contents(reader_of()) == ["a", "b", "c"]


def test_whole_records_beyond_an_old_mark_are_kept_and_the_mark_moves(
    open_log: OpenLog, reader_of: ReaderOf, tmp_path: Path
):
    log = open_log()
    mark = tmp_path / "events" / "0000" / "mark"
    old = mark.read_bytes()
    written(log, "a", "b", "c")
    log.close()
    mark.write_bytes(old)
    assert reader_of().positions()[0].synced == 0
    open_log()
    assert contents(reader_of()) == ["a", "b", "c"]


def test_records_kept_beyond_the_mark_are_written_again_before_they_count_as_synced(open_log: OpenLog, tmp_path: Path):
    """A sync that failed may have left clean pages in memory only: the next one would not write them."""

    class Watching(Disk):
        def __init__(self) -> None:
            self.calls: list[tuple[str, int]] = []

        def write(self, file: int, data: memoryview, position: int) -> int:
            self.calls.append(("write", len(data)))
            return super().write(file, data, position)

        def sync(self, file: int) -> None:
            self.calls.append(("sync", file))
            super().sync(file)

    log = open_log()
    written(log, "a")
    mark = tmp_path / "events" / "0000" / "mark"
    old = mark.read_bytes()
    written(log, "beyond")
    log.close()
    mark.write_bytes(old)
    disk = Watching()
    open_log(disk=disk)
    assert disk.calls[0] == ("write", 60 + len("beyond"))
    assert disk.calls[1][0] == "sync"


def test_an_old_mark_does_not_turn_damage_in_a_closed_segment_into_a_torn_tail(open_log: OpenLog, tmp_path: Path):
    #  mark says 0 | segment 0 (closed, so it was synced) | segment 1
    log = open_log(segment_bytes=4096)
    mark = tmp_path / "events" / "0000" / "mark"
    old = mark.read_bytes()
    written(log, "a" * 4000, "b" * 4000)
    log.close()
    mark.write_bytes(old)
    path = tmp_path / "events" / "0000" / f"{0:020d}.seg"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LogDamaged, match=path.name):
        open_log()


def test_a_stale_entry_of_the_index_is_not_believed(open_log: OpenLog, reader_of: ReaderOf, tmp_path: Path, clock):
    """An append that was undone may leave its entry on disk, whole and wrong, when power takes the newer one."""
    path = tmp_path / "events" / "0000" / f"{0:020d}.idx"
    log = open_log()
    clock.ms = 5
    written(log, "undone")
    stale = path.read_bytes()
    log.close()
    path.with_suffix(".seg").write_bytes(b"")
    path.write_bytes(b"")
    mark = path.parent / "mark"
    mark.write_bytes(mark.read_bytes()[:8].ljust(4096, b"\0"))
    clock.ms = 9
    log = open_log()
    written(log, "instead", "of it")
    log.close()
    path.write_bytes(stale + path.read_bytes()[len(stale) :])
    open_log()
    reader = reader_of()
    assert contents(reader) == ["instead", "of it"]
    assert reader.append_ms(0, 0) == 9
