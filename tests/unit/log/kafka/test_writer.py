"""A writer whose partitions fail one by one, whose producer fails for good, and whose topic changes under it."""

import pytest

from tallymark.log import Appended, LayoutChanged, NotAppended, Outgoing
from tallymark.log.kafka import failing
from tallymark.log.kafka.failing import FailingPartitions
from tallymark.log.kafka.writer import open_kafka_writer
from tallymark.settings import Settings


def a_writer(partitions=2, **log):
    settings = Settings()
    settings.log.kind, settings.log.brokers, settings.log.topic = "kafka", ["b:1"], "t"
    settings.log.partitions, settings.log.delivery_timeout_s = partitions, 0.05
    for name, value in log.items():
        setattr(settings.log, name, value)
    return open_kafka_writer(settings, "events")


def taken(log, *partitions):
    return [isinstance(each, Appended) for each in log.append([Outgoing(number, b"x", 1) for number in partitions])]


def test_a_partition_that_fails_holds_up_no_other(topic, monkeypatch):
    monkeypatch.setattr(failing, "PROBE_S", 0.05)
    topic.partitions = [[], [], []]
    log = a_writer(3)
    topic.refusing = {1}
    assert taken(log, 0, 1, 2) == [True, False, True]
    assert taken(log, 1, 0, 1, 2) == [False, True, False, True], "the others at once, in their places"
    assert 1 not in topic.batches[-2], "and nothing was tried in the one that fails"
    (outcome,) = log.append([Outgoing(1, b"x", 1)])
    assert outcome == NotAppended(1, "Kafka: not acknowledged within 0.05 s")

    monkeypatch.setattr(failing, "PAUSE_S", 0.0)
    topic.batches.clear()
    assert taken(log, 1, 0) == [False, True]
    assert [each for each in topic.batches if each] == [[0], [1]], "what works is committed before what is tried"
    topic.refusing = set()
    assert taken(log, 1, 0) == [True, True]
    assert not log._failing


def test_a_producer_that_may_not_go_on_is_replaced(topic, monkeypatch):
    monkeypatch.setattr(failing, "PAUSE_S", 0.0)
    topic.partitions = [[], []]
    log = a_writer()
    assert taken(log, 0) == [True]
    topic.fatal = True
    assert taken(log, 0) == [False]
    topic.fatal = False
    assert taken(log, 0) == [True]
    assert len(topic.producers) == 2


def test_tries_get_longer_where_all_fail_and_rarer_where_others_work():
    now = 0.0
    found = FailingPartitions("t", 2, clock=lambda: now)
    pauses, probes = [], []
    for _ in range(6):
        found.learn([1], {0: "away"})
        probes.append(found.probe_s([0]))
        begun = now
        while found.rests(0):
            now += 0.5
        pauses.append(now - begun)
    assert (pauses, set(probes)) == ([1, 2, 4, 8, 8, 8], {1.0})
    found = FailingPartitions("t", 2, clock=lambda: now)
    for probe_s in (1, 2, 4, 4):
        found.learn([], {0: "away", 1: "away"})
        assert found.probe_s([0, 1]) == probe_s
        now += 0.5
        assert not found.rests(0)


def test_partitions_that_were_added_seal_the_writer(topic, monkeypatch):
    monkeypatch.setattr("tallymark.log.kafka.writer._IDENTITY_FOR_S", -1.0)
    topic.partitions = [[], []]
    log = a_writer()
    assert taken(log, 0) == [True]
    topic.shown = 4
    (outcome,) = log.append([Outgoing(0, b"x", 1)])
    assert "had 2 partitions when it was opened and has 4 now" in outcome.reason
    assert "leave log.partitions as it is" in outcome.reason
    assert set(log.sealed()) == {0, 1}


def test_records_that_were_spread_over_other_partitions_are_refused(topic):
    topic.partitions = [[], [], [], []]
    topic.fill({"partitions": 4}, {"partitions": 2}, partition=1)
    with pytest.raises(LayoutChanged, match=r"has 4 partitions, but its newest records were spread over 2") as told:
        a_writer(4)
    assert "set log.partitions" not in str(told.value)
    assert "another log.topic, with an empty store" in str(told.value)
    topic.fill({"partitions": 2}, {"partitions": 4}, partition=1)
    a_writer(4)


def test_a_newest_record_that_cannot_be_read_does_not_keep_a_writer_from_opening(topic):
    topic.partitions = [[], []]
    topic.fill({}, None)
    topic.fill({}, "bad", partition=1)
    assert taken(a_writer(), 0) == [True]
