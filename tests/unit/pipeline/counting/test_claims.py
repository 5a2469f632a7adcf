"""The deduplication law, against the real claim table and side files."""

import fcntl
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tallymark.pipeline.counting import claim_lock, claim_table, claims, side_file
from tallymark.pipeline.counting.claim_lock import ClaimLock
from tallymark.pipeline.counting.claim_table import ClaimTable
from tallymark.pipeline.counting.claims import Claims, Ids
from tallymark.testing import ManualClock

HORIZON_MS = 10_000
START_MS = 1_763_208_000_000


class ListedLog:
    """A log given as a list of (append time in seconds, id), one event a record."""

    identity = "listed"
    first = 0

    def __init__(self, records: list[tuple[int, int]], slack_ms: int = 0) -> None:
        self.records = records
        self.slack_ms = slack_ms
        self.read: list[tuple[int, int]] = []

    def append_ms(self, offset: int) -> int | None:
        return START_MS + self.records[offset][0] * 1000 if offset < len(self.records) else None

    def offset_at(self, append_ms: int) -> int:
        return next(
            (n for n, (at, _) in enumerate(self.records) if START_MS + at * 1000 >= append_ms), len(self.records)
        )

    def ids(self, start: int, end: int) -> Iterator[Ids]:
        self.read.append((start, end))
        for middle in range(start, end, 7):
            yield self.chunk(middle, min(middle + 7, end))

    def is_whole(self, start: int, end: int) -> bool:
        return True

    def chunk(self, start: int, end: int) -> Ids:
        part = self.records[start:end]
        # Ids 0 and 1 share their first 64 bits: only the other 32 tell them apart.
        high = np.array([max(1, number) for _, number in part], np.uint64) << np.uint64(16)
        low = np.array([number for _, number in part], np.uint32)
        return Ids(high, low, np.array([START_MS + at * 1000 for at, _ in part], np.int64))


def law(records: list[tuple[int, int]], horizon_ms: int = HORIZON_MS) -> list[bool]:
    """True where the latest copy before it lies at most the horizon before it."""
    last: dict[int, int] = {}
    duplicates = []
    for at, number in records:
        duplicates.append(number in last and (at - last[number]) * 1000 <= horizon_ms)
        last[number] = max(at, last.get(number, at))
    return duplicates


def run(
    folder: Path,
    log: ListedLog,
    start: int,
    end: int,
    horizon_ms: int = HORIZON_MS,
    *,
    cuts: tuple[int, ...] = (),
    lock: ClaimLock | None = None,
) -> list[bool]:
    """The answers for a stretch, asked for in slices that end at `cuts`."""
    answers: list[bool] = []
    with Claims(folder, 0, start=start, end=end, horizon_ms=horizon_ms, history=log, lock=lock) as claims:
        for first, last in zip([start, *cuts], [*cuts, end], strict=True):
            answers += [bool(flag) for flag in claims.duplicates(log.chunk(first, last))]
    return answers


def a_log(rng: random.Random) -> ListedLog:
    """Half of them stamped by two clocks, as when a partition's leader changes from broker to broker."""
    clocks = [0, rng.choice([0, 4])]
    at, records = 0, []
    for _ in range(rng.randrange(1, 120)):
        at += rng.choice([0, 0, 1, 2, 5])
        records.append((at + rng.choice(clocks), rng.randrange(12)))
    return ListedLog(records, slack_ms=max(clocks) * 1000)


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.long) for block in range(1, 8))])
def test_any_history_of_cuts_crashes_zombies_and_lost_files_obeys_the_law(tmp_path, monkeypatch, block):
    monkeypatch.setattr(claim_table, "SMALLEST_BITS", 3)  # so that tables grow and forget all the time
    for seed in range(block * 125, block * 125 + 125):
        rng = random.Random(seed)
        log = a_log(rng)
        hosts = [tmp_path / f"{seed}-a", tmp_path / f"{seed}-b"]
        answers: list[bool] = []
        while (applied := len(answers)) < len(log.records):
            host = rng.choice(hosts)
            end = min(len(log.records), applied + rng.randrange(25))
            cuts = tuple(sorted(rng.randint(applied, end) for _ in range(rng.choice([0, 0, 1, 3]))))
            answer = run(host, log, applied, end, cuts=cuts)
            fate = rng.random()
            if fate > 0.95:
                # A store put back to an older copy: it is counted again from further back than the last range.
                answers = answers[: rng.randint(0, applied)]
                continue
            if fate < 0.25:
                continue  # a crash before the sink: the range will be cut differently
            if fate < 0.35:
                assert run(host, log, applied, end) == answer  # a second attempt
            if fate < 0.42:
                damage(rng.choice(hosts), rng)
            answers += answer
            if fate < 0.5:
                run(rng.choice(hosts), log, applied, end)  # a zombie after the commit
        assert answers == law(log.records), f"seed {seed}"


def damage(folder: Path, rng: random.Random) -> None:
    """Lose or garble one of the files, as seen by a new process."""
    claim_table._opened.clear()
    for path in folder.glob("0.*"):
        fate = rng.random()
        if fate < 0.4:
            path.unlink()
        elif fate < 0.7 and path.stat().st_size:
            content = bytearray(path.read_bytes())
            # Only bytes that mean something: the rest of the header's page is padding.
            limit = claim_table.HEADER.itemsize if rng.random() < 0.5 else len(content)
            spot = rng.randrange(min(limit, len(content)))
            content[spot] ^= 1 << rng.randrange(8)
            path.write_bytes(content)


def test_a_horizon_that_is_changed_and_changed_back_forgets_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(claim_table, "SMALLEST_BITS", 3)
    for seed in range(60):
        rng = random.Random(seed)
        log = a_log(rng)
        answers: list[bool] = []
        while (applied := len(answers)) < len(log.records):
            end = min(len(log.records), applied + rng.randrange(1, 12))
            horizon_s = rng.choice([2, 10, 10, 40])
            answers += run(tmp_path / str(seed), log, applied, end, horizon_s * 1000)
            assert answers[applied:] == law(log.records, horizon_s * 1000)[applied:end], f"seed {seed}"


def test_a_catch_up_cut_short_leaves_nothing_behind_for_a_start_further_back(tmp_path, monkeypatch):
    """The store was put back to an older copy just then: ids beyond the start must not be in the table."""
    log = ListedLog([(n // 10, n) for n in range(2, 60)])
    run(tmp_path, log, 0, 5)
    (tmp_path / "0.side").unlink()
    ids = log.ids

    def dies_after_two_chunks(start, end):
        for number, chunk in enumerate(ids(start, end)):
            if number == 2:
                raise KeyboardInterrupt
            yield chunk

    log.ids = dies_after_two_chunks
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, log, 40, 50)
    log.ids = ids
    claim_table._opened.clear()
    assert run(tmp_path, log, 5, 40) == [False] * 35


def test_a_log_that_lost_its_oldest_records_is_rebuilt_from_what_is_left(tmp_path):
    log = ListedLog([(n, n % 7 + 2) for n in range(40)])
    log.first = 33
    assert run(tmp_path, log, 36, 40) == [False, False, False, False]  # 33 to 35 hold other ids
    assert log.read == [(33, 36)]


def test_a_new_process_of_the_same_boot_goes_on_without_reading_the_log(tmp_path):
    log = ListedLog([(n, n) for n in range(2, 40)])
    run(tmp_path, log, 0, 20)
    claim_table._opened.clear()
    log.read.clear()
    assert run(tmp_path, log, 20, 38) == [False] * 18
    assert log.read == []


def test_another_boot_rebuilds_from_the_horizon_only(tmp_path, monkeypatch):
    log = ListedLog([(n, n % 15 + 2) for n in range(60)])
    run(tmp_path, log, 0, 50)
    claim_table._opened.clear()
    log.read.clear()
    monkeypatch.setattr(claim_table, "boot_id", lambda: b"another")
    assert run(tmp_path, log, 50, 60) == law(log.records)[50:]
    assert log.read == [(39, 50)]  # 50 s - horizon 10 s - margin 1 s


def test_a_merge_cut_short_is_not_trusted(tmp_path, monkeypatch):
    log = ListedLog([(n, n % 5) for n in range(30)])
    run(tmp_path, log, 0, 10)
    insert = ClaimTable._insert

    def dies_half_way(table, high, low, time):
        insert(table, high[: len(high) // 2], low[: len(high) // 2], time[: len(high) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ClaimTable, "_insert", dies_half_way)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, log, 10, 20)
    claim_table._opened.clear()
    assert run(tmp_path, log, 10, 20) == law(log.records)[10:20]


def test_a_full_disk_puts_the_table_into_memory(tmp_path, monkeypatch):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", no_space)
    log = ListedLog([(n, n % 5) for n in range(30)])
    assert run(tmp_path, log, 0, 10) + run(tmp_path, log, 10, 30) == law(log.records)
    assert not (tmp_path / "0.claims").exists()


def test_find_tells_ids_apart_by_all_96_bits(tmp_path):
    table = ClaimTable.create(tmp_path / "t", identity="x", horizon_ms=1, through=0)
    table = table.with_room(3, oldest_ms=START_MS)
    high, low = np.array([7, 7, 9], np.uint64), np.array([1, 2, 1], np.uint32)
    table.merge(high, low, np.array([START_MS, START_MS + 5, START_MS + 6]))
    table.finish(3)
    assert table.find(np.array([7, 7, 7, 9], np.uint64), np.array([2, 1, 3, 1], np.uint32)).tolist() == [
        START_MS + 5,
        START_MS,
        -1,
        START_MS + 6,
    ]


def test_a_table_that_grows_forgets_what_is_older_than_asked_and_nothing_else(tmp_path):
    table = ClaimTable.create(tmp_path / "t", identity="x", horizon_ms=1, through=0)
    table = table.with_room(3, oldest_ms=START_MS - 1)
    high, low = np.array([1, 2, 3], np.uint64), np.array([1, 1, 1], np.uint32)
    times = np.array([START_MS - 1, START_MS, START_MS + 1])
    table.merge(high, low, times)
    grown = table.with_room(table.capacity, oldest_ms=START_MS)
    assert grown.capacity > table.capacity
    assert grown.find(high, low).tolist() == [-1, START_MS, START_MS + 1]


def test_a_table_beyond_the_start_is_not_trusted(tmp_path):
    """A store that was put back to an older copy begins before what the table covers."""
    log = ListedLog([(n // 10, n) for n in range(2, 60)])
    for start in (0, 10, 20):
        run(tmp_path, log, start, start + 10)
    assert run(tmp_path, log, 5, 25) == [False] * 20


@pytest.mark.parametrize(
    ("field", "bit"), [("high", 1 << 40), ("high", 1 << 3), ("low", 1), ("time", 1 << 20)], ids=str
)
def test_one_flipped_bit_in_the_table_is_found_by_the_next_process(tmp_path, field, bit):
    log = ListedLog([(n // 10, n % 20) for n in range(40)])
    run(tmp_path, log, 0, 20)
    run(tmp_path, log, 20, 20)  # merges the twenty ids
    claim_table._opened.clear()
    content = bytearray((tmp_path / "0.claims").read_bytes())
    slots = np.frombuffer(content, claim_table.SLOT, offset=claim_table.HEADER_BYTES)
    filled = np.flatnonzero(slots["high"])
    assert len(filled) == 20
    slots[field][filled[7]] ^= bit
    (tmp_path / "0.claims").write_bytes(content)
    log.read.clear()
    assert run(tmp_path, log, 20, 40) == [True] * 20
    assert log.read == [(0, 20)]  # rebuilt


def test_a_merge_that_failed_is_not_trusted_by_the_same_process(tmp_path, monkeypatch):
    """Its header and its sum are as before, and nobody sums up a table that is open: only the flag tells."""
    log = ListedLog([(n // 10, n) for n in range(2, 42)])
    run(tmp_path, log, 0, 10)
    run(tmp_path, log, 10, 20)
    insert = ClaimTable._insert

    def is_short_of_memory_half_way(table, high, low, time):
        before = table._header.copy()
        insert(table, high[: len(high) // 2], low[: len(high) // 2], time[: len(high) // 2])
        table._header["used"], table._header["sum"] = before["used"], before["sum"]  # written last, so not yet
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(ClaimTable, "_insert", is_short_of_memory_half_way)
        with pytest.raises(MemoryError):
            run(tmp_path, log, 20, 30)
    # The store is put back to an older copy before the range is tried again.
    assert run(tmp_path, log, 10, 30) == [False] * 20


def test_a_stretch_that_raises_claims_nothing(tmp_path):
    log = ListedLog([(n, n) for n in range(2, 30)])
    run(tmp_path, log, 0, 5)
    before = (tmp_path / "0.side").read_bytes()

    def fails() -> None:
        with Claims(tmp_path, 0, start=5, end=9, horizon_ms=HORIZON_MS, history=log) as table:
            table.duplicates(log.chunk(5, 9))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (tmp_path / "0.side").read_bytes() == before


def test_a_side_file_of_a_range_with_a_buried_record_is_not_merged(tmp_path):
    log = ListedLog([(0, 5), (0, 6), (1, 5), (1, 6)])
    run(tmp_path, log, 0, 2)  # counted well, and yet record 1 was buried afterwards
    log.is_whole = lambda start, end: not start <= 1 < end
    log.ids = lambda start, end: iter([log.chunk(start, 1)])
    assert run(tmp_path, log, 2, 4) == [True, False]


def test_one_flipped_byte_in_a_side_file_is_found(tmp_path):
    side = tmp_path / "0.side"
    ids = Ids(np.array([5], np.uint64), np.array([6], np.uint32), np.array([START_MS], np.int64))
    side_file.write(side, "x", 0, 1, ids)
    whole = side.read_bytes()
    assert side_file.read(side, "x") is not None
    for place in range(len(whole)):
        side.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert side_file.read(side, "x") is None, f"byte {place}"


def test_drafts_of_killed_processes_are_removed_by_the_next_process(tmp_path, monkeypatch):
    log = ListedLog([(n, n) for n in range(2, 20)])
    run(tmp_path, log, 0, 5)
    monkeypatch.setattr(claims, "_swept", set())
    for orphan in ("0.claims.4711", "0.side.4712"):
        (tmp_path / orphan).write_bytes(b"half")
    (tmp_path / "10.claims.4711").write_bytes(b"of another partition")
    assert run(tmp_path, log, 5, 9) == [False] * 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.claims", "0.lock", "0.side", "10.claims.4711"]


def test_a_process_looks_for_drafts_once_in_each_partition(tmp_path, monkeypatch):
    """To list the folder of 1,024 partitions takes longer than to count a small stretch."""
    glob, asked = Path.glob, []
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: (asked.append(pattern), glob(folder, pattern))[1])
    log = ListedLog([(n, n) for n in range(2, 20)])
    for start in (0, 5, 10):
        run(tmp_path, log, start, start + 5)
    assert sorted(asked) == ["0.claims.*", "0.side.*"]


class Held:
    """A lock that another process has and keeps, as one that was stopped."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = os.open(folder / "0.lock", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        os.write(self.file, b"process 4711, which counts records 0 to 9")

    def release(self) -> None:
        os.close(self.file)


def waiting(folder: Path, clock: ManualClock, slept: list[float]) -> ClaimLock:
    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds)

    return ClaimLock(folder / "0.lock", clock=clock.now, sleep=sleep)


def test_behind_a_stopped_process_a_partition_goes_on_with_claims_of_its_own(tmp_path, caplog):
    log = ListedLog([(n // 4, n % 6) for n in range(60)])
    expected = law(log.records)
    answers = run(tmp_path, log, 0, 10)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "0.lock"}
    stopped = Held(tmp_path)
    clock, slept = ManualClock(), []
    with caplog.at_level(logging.WARNING):
        answers += run(tmp_path, log, 10, 20, lock=waiting(tmp_path, clock, slept))
    assert sum(slept) >= claim_lock.PATIENCE_S
    assert "locked by process 4711, which counts records 0 to 9" in caplog.text
    # For the same holder nobody waits again, and only what is new is read from the log.
    slept.clear()
    log.read.clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        answers += run(tmp_path, log, 20, 30, lock=waiting(tmp_path, clock, slept))
    assert (slept, log.read, caplog.text) == ([], [(10, 20)], "")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "0.lock"} == files
    stopped.release()
    answers += run(tmp_path, log, 30, 45) + run(tmp_path, log, 45, 60)
    assert answers == expected
    assert len(claims._private) == 0


def test_a_private_table_that_is_not_used_for_a_horizon_is_dropped(tmp_path):
    log = ListedLog([(n, n) for n in range(2, 20)])
    clock = ManualClock()

    def count(folder: Path, *, is_held: bool) -> int:
        held = Held(folder) if is_held else None
        with Claims(
            folder,
            0,
            start=0,
            end=5,
            horizon_ms=HORIZON_MS,
            history=log,
            lock=waiting(folder, ManualClock(), []),
            clock=clock.now,
        ):
            pass
        if held is not None:
            held.release()
        return len(claims._private)

    assert count(tmp_path / "a", is_held=True) == 1
    clock.advance(HORIZON_MS / 1000)
    assert count(tmp_path / "b", is_held=True) == 2
    clock.advance(1)
    assert count(tmp_path / "c", is_held=False) == 1
    clock.advance(HORIZON_MS / 1000)
    assert count(tmp_path / "c", is_held=False) == 0


def test_another_holder_is_waited_for_again(tmp_path):
    clock, slept = ManualClock(), []
    log = ListedLog([(n, n) for n in range(2, 20)])
    first = Held(tmp_path)
    run(tmp_path, log, 0, 5, lock=waiting(tmp_path, clock, []))
    first.release()
    second = Held(tmp_path)
    os.pwrite(second.file, b"process 4712", 0)
    lock = waiting(tmp_path, clock, slept)
    lock._sleep = lambda seconds: (slept.append(seconds), second.release())
    assert run(tmp_path, log, 5, 9, lock=lock) == [False] * 4
    assert len(slept) == 1
    assert str(os.getpid()) in (tmp_path / "0.lock").read_text()


def test_a_private_table_is_not_used_for_a_start_further_back(tmp_path):
    log = ListedLog([(n // 10, n) for n in range(2, 60)])
    stopped = Held(tmp_path)
    clock = ManualClock()
    for start, end in ((20, 30), (30, 40), (5, 25)):
        assert run(tmp_path, log, start, end, lock=waiting(tmp_path, clock, [])) == [False] * (end - start)
    stopped.release()


def test_a_table_from_before_the_window_is_not_caught_up_over_records_that_are_gone(tmp_path):
    log = ListedLog([(n, n % 7 + 2) for n in range(40)])
    run(tmp_path, log, 0, 5)
    log.first = 33
    log.read.clear()
    assert run(tmp_path, log, 36, 40) == [False, False, False, False]  # 33 to 35 hold other ids
    assert log.read == [(33, 36)]


def test_a_side_file_that_does_not_follow_the_table_is_not_merged(tmp_path, monkeypatch):
    """Two processes with tables in memory, since the disk is full: the other one has counted what lies between."""

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", no_space)
    log = ListedLog([(n // 10, n % 15) for n in range(30)])
    run(tmp_path, log, 0, 5)
    run(tmp_path, log, 5, 10)
    first = dict(claim_table._opened)
    claim_table._opened.clear()
    run(tmp_path, log, 10, 15)
    run(tmp_path, log, 15, 20)
    claim_table._opened.clear()
    claim_table._opened.update(first)
    assert run(tmp_path, log, 20, 30) == law(log.records)[20:]
