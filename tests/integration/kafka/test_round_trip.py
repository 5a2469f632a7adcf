"""What is acknowledged is read back, in order, with its header; positions, times and stretches are what they say."""

import threading

import pytest

from tallymark.log import Appended, LogLost, NotAppended, Outgoing


def frame(text: str, partition: int = 0, events: int = 1) -> Outgoing:
    return Outgoing(partition, text.encode(), events)


def places(outcomes):
    return [(each.partition, each.offset) for each in outcomes]


def test_what_is_appended_is_read_back_in_order(stage):
    log = stage.writer()
    outcomes = log.append([frame("a", 0, 3), frame("x", 1, 5), frame("b", 0, 4)])
    assert places(outcomes) == [(0, 0), (1, 0), (0, 1)]

    reader = stage.reader()
    records = list(reader.read(0, 0, 2))
    assert [(each.offset, each.payload, each.events, each.sequence) for each in records] == [
        (0, b"a", 3, 0),
        (1, b"b", 4, 1),
    ]
    assert [each.append_ms for each in records] == [outcomes[0].append_ms, outcomes[2].append_ms]
    assert records[0].instance == records[1].instance
    assert [each.payload for each in reader.read(1, 0, 1)] == [b"x"]
    assert (log.identity, log.partitions) == (reader.identity, reader.partitions)
    assert len(log.identity.encode("ascii")) <= 64


def test_empty_and_large_frames_round_trip(stage):
    payloads = [b"", b"\0" * 1_000_000, b"", bytes(range(256)) * 4_000]
    stage.writer().append([Outgoing(0, payload, 1) for payload in payloads])
    assert [each.payload for each in stage.reader().read(0, 0, 4)] == payloads


def test_a_frame_that_kafka_would_refuse_does_not_take_the_others_with_it(stage):
    good, large, also_good = stage.writer().append([frame("a"), Outgoing(0, b"x" * 1_300_000, 1), frame("b")])
    assert [type(good), type(also_good)] == [Appended, Appended]
    assert large == NotAppended(0, "a frame of 1,300,000 bytes exceeds 1,200,000")
    assert [each.payload for each in stage.reader().read(0, 0, 2)] == [b"a", b"b"]


def test_no_frames_is_nothing_to_do(stage):
    assert stage.writer().append([]) == []


@pytest.mark.parametrize("bad", [frame("a", partition=2), frame("a", partition=-1), frame("a", events=-1)])
def test_a_frame_that_no_log_can_hold_is_a_mistake_of_the_caller(stage, bad):
    with pytest.raises(ValueError, match=r"partition|events"):
        stage.writer().append([bad])


def test_a_closed_writer_takes_nothing(stage):
    log = stage.writer()
    log.close()
    assert log.append([frame("a")]) == [NotAppended(0, "the log is closed")]


def test_positions_and_reads_end_where_the_log_does(stage):
    log = stage.writer()
    log.append([frame("a")])
    reader = stage.reader()
    at = reader.positions()[0]
    assert (at.first, at.synced, at.end, at.events) == (0, 1, 1, None)
    assert log.positions() == reader.positions()
    assert list(reader.read(0, 1, 1)) == []
    for start, end in [(0, 2), (1, 2), (2, 2), (7, 9)]:
        with pytest.raises(LogLost, match="ends before"):
            reader.read(0, start, end)
    with pytest.raises(LogLost):
        reader.append_ms(0, 1)
    log.append([frame("b")])
    assert [each.payload for each in reader.read(0, 0, 2)] == [b"a", b"b"]


def test_a_reader_before_the_first_writer_says_who_makes_the_log(stage):
    with pytest.raises(LogLost, match="collector"):
        stage.reader()


def test_stretches_in_any_order_and_interleaved(stage):
    log = stage.writer()
    for start in range(0, 200, 20):
        log.append([Outgoing(0, f"{number}".encode(), 1) for number in range(start, start + 20)])
    reader = stage.reader()

    def read(start: int, end: int) -> list[int]:
        return [int(each.payload) for each in reader.read(0, start, end)]

    assert read(0, 70) + read(70, 200) == list(range(200))
    assert read(30, 35) == list(range(30, 35))
    slow = reader.read(0, 0, 200)
    seen = [int(next(slow).payload)]
    assert read(150, 200) == list(range(150, 200))
    assert seen + [int(each.payload) for each in slow] == list(range(200))


def test_more_partitions_than_a_reader_keeps_open(stage):
    log = stage.writer(partitions=6)
    log.append([Outgoing(partition, b"x%d" % partition, 1) for partition in range(6)])
    reader = stage.reader()
    reads = [reader.read(partition, 0, 1) for partition in range(6)]
    assert [each.payload for read in reads for each in read] == [b"x%d" % partition for partition in range(6)]


def test_append_times_and_the_offset_at_a_time(stage):
    log = stage.writer()
    times = [log.append([frame("x")])[0].append_ms for _ in range(5)]
    reader = stage.reader()
    assert [reader.append_ms(0, offset) for offset in range(5)] == times
    reader = stage.reader()
    assert [each.offset for each in reader.read(0, 0, 2)] == [0, 1]
    assert reader.append_ms(0, 2) == times[2], "from what the read fetched ahead"
    assert reader._fetchers[0].stands_at(0, 2), "without going back in the log"
    assert [each.offset for each in reader.read(0, 2, 5)] == [2, 3, 4], "and the read goes on with that very record"
    for ms in [times[0] - 1000, *times]:
        expected = next(offset for offset, time in enumerate(times) if time >= ms)
        assert reader.offset_at(0, ms) == expected
    assert reader.offset_at(0, times[-1] + 60_000) == 5
    assert reader.offset_at(1, 0) == 0
    assert reader.slack_ms == 30_000
    assert reader.has_wall_times


def test_a_stretch_is_bounded_by_events_and_bytes(stage):
    log = stage.writer()
    log.append([Outgoing(0, b"x" * 1000, 10) for _ in range(100)])
    reader = stage.reader()

    def end(start: int = 0, *, events: int = 10**9, size: int = 10**9) -> int:
        return reader.bounded_end(0, start, max_events=events, max_bytes=size)

    assert end() == 100, "all of it where nothing limits"
    assert end(events=50) == 5, "exact within what was looked at"
    assert end(events=500) == 50, "and by its mean beyond"
    assert end(size=30_000) == 30
    assert end(10, events=0) == 11, "at least one record"
    assert end(95, events=1) == 100, "so few that they are taken whole"
    assert end(100) == 100
    assert reader.bounded_end(1, 0, max_events=1, max_bytes=1) == 0


def test_events_are_counted_from_headers_and_remembered(stage, monkeypatch):
    log = stage.writer()
    log.append([Outgoing(0, b"x", number) for number in range(50)])
    reader = stage.reader()
    assert reader.events_in(0, 0, 50) == sum(range(50))
    assert reader.events_in(0, 10, 20) == sum(range(10, 20))
    log.append([Outgoing(0, b"x", 1000)])

    fetched = []
    peek = reader._peeks.fetch_readable
    monkeypatch.setattr(reader._peeks, "fetch_readable", lambda *asked: fetched.append(asked) or peek(*asked))
    assert reader.events_in(0, 20, 51) == sum(range(20, 50)) + 1000
    assert fetched == [(0, 50, 1)], "only the new one was read"
    assert reader.events_in(0, 51, 51) == 0


def test_threads_and_writers_append_without_a_gap_in_their_sequences(stage):
    outcomes: list[Appended | NotAppended] = []

    def append_many(log, name: str) -> None:
        for number in range(20):
            outcomes.extend(log.append([frame(f"{name}{number}", number % 2), frame(f"{name}-{number}", 0)]))

    one, other = stage.writer(), stage.writer()
    threads = [
        threading.Thread(target=append_many, args=(log, name)) for log, name in [(one, "a"), (one, "b"), (other, "c")]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(places(outcomes))) == 120
    reader = stage.reader()
    instances: dict[tuple[int, int], list[int]] = {}
    for partition, at in reader.positions().items():
        for record in reader.read(partition, 0, at.synced):
            instances.setdefault((partition, record.instance), []).append(record.sequence)
    assert len(instances) == 4, "two writers in two partitions"
    assert all(sequence == list(range(len(sequence))) for sequence in instances.values())
