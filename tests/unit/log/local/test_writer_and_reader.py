"""What is appended is read back, in order, with its header; positions, times and stretches are what they say."""

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallymark.log import Appended, LayoutChanged, LocalLogWriter, LogBusy, LogDamaged, LogLost, NotAppended, Outgoing
from tallymark.log.local.disk import Disk
from tallymark.log.local.reader import LocalLogReader

OpenLog = Callable[..., LocalLogWriter]
ReaderOf = Callable[[], LocalLogReader]


def frame(text: str, partition: int = 0, events: int = 1) -> Outgoing:
    return Outgoing(partition, text.encode(), events)


def test_what_is_appended_is_read_back_in_order(open_log: OpenLog, reader_of: ReaderOf, clock):
    log = open_log(instance=7)
    outcomes = log.append([frame("a", 0, 3), frame("x", 1, 5), frame("b", 0, 4)])
    assert outcomes == [Appended(0, 0, clock.ms), Appended(1, 0, clock.ms), Appended(0, 1, clock.ms)]

    records = list(reader_of().read(0, 0, 2))
    assert [(r.offset, r.payload, r.events, r.instance, r.sequence) for r in records] == [
        (0, b"a", 3, 7, 0),
        (1, b"b", 4, 7, 1),
    ]
    assert [r.payload for r in reader_of().read(1, 0, 1)] == [b"x"]


def test_empty_and_large_frames_round_trip(open_log: OpenLog, reader_of: ReaderOf):
    payloads = [b"", b"\0" * 3_000_000, b"TMr1" * 999, b"", bytes(range(256)) * 5000]
    open_log(segment_bytes=1 << 30).append([Outgoing(0, payload, 1) for payload in payloads])
    assert [record.payload for record in reader_of().read(0, 0, 5)] == payloads


def test_no_frames_is_nothing_to_do(open_log: OpenLog):
    assert open_log().append([]) == []


def test_offsets_sequence_and_events_go_on_after_a_restart(open_log: OpenLog, reader_of: ReaderOf):
    first = open_log(instance=7)
    first.append([frame("a", events=10), frame("b", events=20)])
    first.close()
    second = open_log(instance=7)
    assert second.append([frame("c", events=5)]) == [Appended(0, 2, 1_000_000)]
    assert [record.sequence for record in reader_of().read(0, 0, 3)] == [0, 1, 2]
    assert reader_of().positions()[0].events == 35


def test_a_fresh_instance_is_made_for_each_writer(open_log: OpenLog, reader_of: ReaderOf):
    for text in "ab":
        log = open_log()
        log.append([frame(text)])
        log.close()
    one, other = reader_of().read(0, 0, 2)
    assert one.instance != other.instance
    assert [one.sequence, other.sequence] == [0, 0]


def test_segments_roll_and_reads_cross_them(open_log: OpenLog, reader_of: ReaderOf, tmp_path: Path):
    log = open_log(segment_bytes=4096)
    reader = reader_of()
    for number in range(40):
        log.append([Outgoing(0, f"{number}".encode() * 200, 1)])
        assert [record.offset for record in reader.read(0, 0, number + 1)] == list(range(number + 1))
    segments = list((tmp_path / "events" / "0000").glob("*.seg"))
    assert len(segments) > 3
    assert all(path.stat().st_size <= 4096 for path in segments)


def test_a_suspended_read_outlives_other_reads(open_log: OpenLog, reader_of: ReaderOf):
    log = open_log(segment_bytes=4096)
    for number in range(60):
        log.append([Outgoing(0, bytes([number]) * 2000, 1)])
    reader = reader_of()
    slow = reader.read(0, 0, 60)
    seen = [next(slow).payload[0]]
    for offset in range(60):  # opens more segments than a reader keeps
        assert next(reader.read(0, offset, offset + 1)).payload[0] == offset
    seen += [record.payload[0] for record in slow]
    assert seen == list(range(60))


def test_beyond_the_end_is_lost_not_empty(open_log: OpenLog, reader_of: ReaderOf):
    open_log().append([frame("a")])
    reader = reader_of()
    assert list(reader.read(0, 1, 1)) == []
    for start, end in [(0, 2), (1, 2), (2, 2), (7, 9)]:
        with pytest.raises(LogLost, match="ends before"):
            reader.read(0, start, end)
    with pytest.raises(LogLost):
        reader.append_ms(0, 1)


def test_a_reader_before_the_first_writer_says_who_makes_the_log(tmp_path: Path):
    with pytest.raises(LogLost, match="collector"):
        LocalLogReader(tmp_path, "events")


def test_nothing_is_seen_before_it_is_synced(open_log: OpenLog, reader_of: ReaderOf):
    class SlowDisk(Disk):
        syncing, go_on = threading.Event(), threading.Event()

        def sync(self, file: int) -> None:
            self.syncing.set()
            assert self.go_on.wait(10)

    disk = SlowDisk()
    log = open_log(disk=disk)
    reader = reader_of()
    appending = threading.Thread(target=log.append, args=([frame("a", events=9)],))
    appending.start()
    assert disk.syncing.wait(10)
    assert (reader.positions()[0].synced, reader.positions()[0].end, reader.positions()[0].events) == (0, 1, 0)
    assert reader.bounded_end(0, 0, max_events=10, max_bytes=10) == 0
    with pytest.raises(LogLost):
        reader.read(0, 0, 1)
    disk.go_on.set()
    appending.join()
    assert (reader.positions()[0].synced, reader.positions()[0].events) == (1, 9)
    assert [record.payload for record in reader.read(0, 0, 1)] == [b"a"]


def test_append_times_never_decrease(open_log: OpenLog, reader_of: ReaderOf, clock):
    #  clock     5000   5000   4000 (set back)   restart   3000 (set back)   3200
    #  append    5000   5000   5000                        5000              5199: slower, until both agree
    clock.ms = 0
    log = open_log()
    for clock.ms in (5000, 5000, 4000):
        log.append([frame("x")])
    log.close()
    clock.ms = 3000
    log = open_log()
    log.append([frame("x")])
    clock.ms = 3200
    log.append([frame("x")])
    assert [record.append_ms for record in reader_of().read(0, 0, 5)] == [5000, 5000, 5000, 5000, 5199]
    assert log.positions()[0].clock_ahead_ms == 1999


def test_append_times_never_decrease_over_a_roll_and_restart(open_log: OpenLog, clock):
    clock.ms = 9000
    log = open_log(segment_bytes=4096)
    log.append([Outgoing(0, b"x" * 4000, 1)])
    log.close()
    clock.ms = 1
    log = open_log(segment_bytes=4096)
    assert log.append([Outgoing(0, b"x" * 4000, 1)]) == [Appended(0, 1, 9000)]


def test_the_first_offset_at_or_after_a_time(open_log: OpenLog, reader_of: ReaderOf, clock):
    times = [10, 10, 20, 30, 30, 30, 50]
    clock.ms = 0
    log = open_log(segment_bytes=4096)
    for clock.ms in times:
        log.append([Outgoing(0, b"x" * 1500, 1)])  # two records a segment
    reader = reader_of()
    for ms in range(60):
        expected = next((offset for offset, time in enumerate(times) if time >= ms), len(times))
        assert reader.offset_at(0, ms) == expected
    assert reader.offset_at(1, 10) == 0
    assert [reader.append_ms(0, offset) for offset in range(7)] == times


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 50)), min_size=1, max_size=30),
    max_events=st.integers(0, 300),
    max_bytes=st.integers(0, 6000),
    data=st.data(),
)
def test_a_bounded_stretch_is_the_longest_that_fits(tmp_path_factory, sizes, max_events, max_bytes, data):
    folder = tmp_path_factory.mktemp("bounded")
    log = LocalLogWriter(folder, stream="s", partitions=1, partition_by="id", segment_bytes=4096, disk=_NoSync())
    for size, events in sizes:
        log.append([Outgoing(0, b"x" * size, events)])
    start = data.draw(st.integers(0, len(sizes)))
    fits = [
        end
        for end in range(start, len(sizes) + 1)
        if sum(size for size, _ in sizes[start:end]) <= max_bytes and sum(n for _, n in sizes[start:end]) <= max_events
    ]
    end = max(fits[-1], min(start + 1, len(sizes)))
    reader = LocalLogReader(folder, "s")
    assert reader.bounded_end(0, start, max_events=max_events, max_bytes=max_bytes) == end
    reader.close()
    log.close()


class _NoSync(Disk):
    def sync(self, file: int) -> None:
        pass


def test_threads_append_without_a_gap(open_log: OpenLog, reader_of: ReaderOf):
    log = open_log()
    outcomes: list[Appended | NotAppended] = []

    def append_many(name: str) -> None:
        for number in range(50):
            outcomes.extend(log.append([frame(f"{name}{number}", number % 2), frame(f"{name}-{number}", 0)]))

    threads = [threading.Thread(target=append_many, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    places = [(outcome.partition, outcome.offset) for outcome in outcomes if isinstance(outcome, Appended)]
    assert len(places) == len(set(places)) == 400
    assert [position.synced for position in reader_of().positions().values()] == [300, 100]
    for partition, position in reader_of().positions().items():
        records = list(reader_of().read(partition, 0, position.synced))
        assert [record.sequence for record in records] == list(range(position.synced))
        assert all(one.append_ms <= other.append_ms for one, other in pairwise(records))


def test_a_second_writer_is_refused(open_log: OpenLog):
    open_log()
    with pytest.raises(LogBusy, match=r"being written by process \d+"):
        open_log()


def test_another_layout_is_refused_with_the_way_out(open_log: OpenLog):
    open_log(partitions=2).close()
    with pytest.raises(LayoutChanged, match=r"has 2 partitions by 'id'.*ask for 3 by 'id'.*set log.partitions = 2"):
        open_log(partitions=3)
    with pytest.raises(LayoutChanged, match=r"ask for 2 by 'key:user'"):
        open_log(partition_by="key:user")
    open_log(partitions=2)


def test_records_without_their_layout_are_not_taken_for_a_new_log(open_log: OpenLog, tmp_path: Path):
    log = open_log()
    log.append([frame("a")])
    log.close()
    (tmp_path / "events" / "layout.json").unlink()
    with pytest.raises(LogDamaged, match=r"layout\.json is missing"):
        open_log()


@pytest.mark.parametrize("bad", [frame("a", partition=2), frame("a", partition=-1), frame("a", events=-1)])
def test_a_frame_that_no_log_can_hold_is_a_mistake_of_the_caller(open_log: OpenLog, bad):
    with pytest.raises(ValueError, match=r"partition|events"):
        open_log().append([bad])


def test_a_closed_writer_takes_nothing(open_log: OpenLog):
    log = open_log()
    log.close()
    assert log.append([frame("a")]) == [NotAppended(0, "the log is closed")]
    assert log.append([frame("a", 0), frame("b", 1)]) == [NotAppended(n, "the log is closed") for n in (0, 1)]
