"""A reader of a topic with gaps, damage and partitions without a leader: what can be told is told, the rest raises."""

import pytest

from tallymark.log import LayoutChanged, LogDamaged, LogLost, LogUnreachable
from tallymark.log.address import KafkaAddress
from tallymark.log.kafka.reader import KafkaLogReader

BASE_MS = 1_763_208_000_000
GOOD = {"events": 2}


def a_reader():
    return KafkaLogReader(KafkaAddress(("b:1",), "t.events", ()))


def offsets(records):
    return [each.offset for each in records]


@pytest.mark.parametrize("broken", [None, "bad"], ids=["gap", "checksum"])
def test_what_cannot_be_read_is_damage_at_its_own_offset(topic, broken):
    topic.fill(GOOD, GOOD, broken, GOOD, GOOD)
    reader = a_reader()
    records = reader.read(0, 0, 5)
    assert offsets([next(records), next(records)]) == [0, 1], "what comes before it is handed out"
    with pytest.raises(LogDamaged, match=r"offset 2 is damaged|after offset 1 comes 3"):
        next(records)
    with pytest.raises(LogDamaged):
        next(reader.read(0, 2, 3))
    assert offsets(reader.read(0, 3, 5)) == [3, 4], "and what comes after it is read"


@pytest.mark.parametrize("broken", [None, "bad"], ids=["gap", "checksum"])
def test_times_and_events_are_told_over_what_cannot_be_read(topic, broken):
    topic.fill(GOOD, GOOD, broken, broken, GOOD, GOOD)
    reader = a_reader()
    assert [reader.append_ms(0, offset) - BASE_MS for offset in range(6)] == [0, 1, 4, 4, 4, 5]
    assert reader.events_in(0, 0, 6) == 8
    assert reader.events_in(0, 2, 3) == 0
    assert reader.events_in(0, 3, 5) == 2
    assert reader.bounded_end(0, 0, max_events=100, max_bytes=100) == 6


@pytest.mark.parametrize("broken", [None, "bad"], ids=["gap", "checksum"])
def test_at_the_end_of_the_log_it_is_damage_too_and_not_waited_for(topic, broken):
    topic.fill(GOOD, GOOD, GOOD, broken)
    reader = a_reader()
    with pytest.raises(LogDamaged, match=r"offset 3 is damaged|after offset 2 the log ends at 4"):
        list(reader.read(0, 0, 4))
    assert reader.append_ms(0, 3) == BASE_MS + 2, "of the record before it"
    assert reader.events_in(0, 0, 4) == 6
    topic.fill(GOOD, *[GOOD] * 9, *[None] * 6, broken)
    assert a_reader().append_ms(0, 16) <= BASE_MS + 9, "of one before it, over all that cannot be read"
    topic.fill(None, broken)
    reader = a_reader()
    assert reader.append_ms(0, 1) > BASE_MS
    assert reader.events_in(0, 0, 2) == 0


def test_the_time_of_a_gap_does_not_disturb_who_reads_on(topic):
    topic.fill(GOOD, GOOD, None, GOOD, GOOD)
    reader = a_reader()
    assert offsets(reader.read(0, 0, 2)) == [0, 1]
    assert reader.append_ms(0, 2) == BASE_MS + 3
    with pytest.raises(LogDamaged):
        list(reader.read(0, 2, 5))
    assert reader.append_ms(0, 3) == BASE_MS + 3
    assert offsets(reader.read(0, 3, 5)) == [3, 4]


def test_a_gap_among_the_records_looked_at_does_not_stop_planning(topic):
    topic.fill(*[GOOD] * 5, None, *[GOOD] * 60)
    assert a_reader().bounded_end(0, 0, max_events=80, max_bytes=1_000) == 42
    topic.fill(*[GOOD] * 2, *[None] * 20, *[GOOD] * 60)
    assert a_reader().bounded_end(0, 2, max_events=80, max_bytes=1_000) == 42


def test_partitions_that_were_added_are_noticed_and_stay_so(topic, monkeypatch):
    monkeypatch.setattr("tallymark.log.kafka.reader._IDENTITY_FOR_S", 0.0)
    topic.fill(GOOD)
    reader = a_reader()
    reader.positions()
    topic.shown = 3
    monkeypatch.setattr("tallymark.log.kafka.reader._IDENTITY_FOR_S", 60.0)
    reader._identity_checked -= 60
    for _ in range(2):
        with pytest.raises(LayoutChanged, match=r"had 1 partitions .* has 3 now.*another log.topic") as told:
            reader.positions()
    assert "set log.partitions" not in str(told.value)
    topic.shown = None
    assert reader.positions()[0].end == 1, "put back, it goes on"
    topic.identity = "c.other"
    reader._identity_checked -= 60
    for _ in range(2):
        with pytest.raises(LogLost, match="was recreated"):
            reader.positions()


def test_a_partition_without_a_leader_does_not_stop_the_others(topic):
    topic.partitions = [[], []]
    for partition in (0, 1):
        topic.fill(GOOD, GOOD, partition=partition)
    reader = a_reader()
    reader.positions()
    topic.leaderless = {0}
    topic.fill(GOOD, GOOD, GOOD, partition=1)
    assert {number: at.end for number, at in reader.positions().items()} == {0: 2, 1: 3}
    assert reader.bounded_end(0, 0, max_events=99, max_bytes=99) == 0, "nothing is planned where nothing can be read"
    assert reader.bounded_end(1, 0, max_events=99, max_bytes=99) == 3
    topic.asked.clear()
    reader.positions()
    assert topic.asked == [{1}], "and it is not asked again at once, which would take its time"
    topic.leaderless = set()
    topic.fill(GOOD, GOOD, GOOD, GOOD, partition=0)
    reader._offsets._looked -= 60
    assert reader.positions()[0].end == 4
    assert reader.bounded_end(0, 0, max_events=99, max_bytes=99) == 4


def test_partitions_that_were_never_seen_or_are_all_away_are_unreachable(topic):
    topic.partitions = [[], []]
    topic.leaderless = {0}
    reader = a_reader()
    with pytest.raises(LogUnreachable):
        reader.positions()
    topic.leaderless = set()
    reader.positions()
    topic.leaderless = {0, 1}
    with pytest.raises(LogUnreachable):
        reader.positions()
