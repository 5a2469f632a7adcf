"""What the settings ask of a topic, and which topics are refused."""

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallymark.log import LayoutChanged, LogUnreachable
from tallymark.log.kafka.layout import MIN_SEGMENT_BYTES, Topic, check, wanted
from tallymark.log.kafka.topics import Topics
from tallymark.settings import Settings


def test_records_stay_as_long_as_the_pipeline_needs_them():
    settings = Settings()
    settings.log.keep_s, settings.pipeline.horizon_s = 60, 600
    assert wanted(settings, "events").config["retention.ms"] == "4230000", (
        "the horizon, 30 s of clocks, an hour to be down"
    )
    settings.log.keep_s = 86_400
    assert wanted(settings, "events").config["retention.ms"] == "86400000"


def test_a_segment_holds_its_largest_message():
    settings = Settings()
    settings.log.segment_bytes, settings.log.dead_bytes = 4096, 10_000
    for stream in ("events", "dead"):
        assert int(wanted(settings, stream).config["segment.bytes"]) == MIN_SEGMENT_BYTES
    settings.log.segment_bytes = 10**12
    assert int(wanted(settings, "events").config["segment.bytes"]) == 2**31 - 1, "the most that Kafka takes"


def test_streams_are_topics_of_their_own():
    settings = Settings()
    settings.log.topic, settings.log.partitions = "shop", 8
    events, dead = wanted(settings, "events"), wanted(settings, "dead")
    assert (events.name, events.partitions, events.partition_by) == ("shop.events", 8, "id")
    assert (dead.name, dead.partitions, dead.partition_by) == ("shop.dead", 1, "none")
    assert events.config["min.insync.replicas"] == dead.config["min.insync.replicas"] == "2"


def checked(*, partitions=2, keep_s=86_400, **config):
    settings = Settings()
    settings.log.keep_s = keep_s
    want = wanted(settings, "events")
    check(
        Topic("t", "c.t", partitions, 3),
        want.config | {name.replace("_", "."): each for name, each in config.items()},
        want,
    )


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"retention_ms": "4229999"}, r"keeps records for 4,230 s.*need 4,230 s.*--add-config retention.ms=86400000"),
        ({"retention_bytes": "1000000"}, r"retention.bytes = 1000000, but.*--add-config retention.bytes=-1"),
    ],
)
def test_a_topic_that_forgets_too_early_is_refused(config, why):
    with pytest.raises(LayoutChanged, match=why):
        checked(**config)


def test_a_topic_that_keeps_less_than_people_ask_for_is_warned_of(caplog):
    checked(retention_ms="4230000", keep_s=4230)
    checked(retention_ms="-1")
    assert not caplog.records
    checked(retention_ms="4230000", keep_s=5000)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "4230 s, less than log.keep_s = 5000" in record.getMessage()
    assert "kafka-configs --alter" in record.getMessage()
    assert "retention.ms=5000000" in record.getMessage()


def test_dead_letters_may_go_by_their_room():
    want = wanted(Settings(), "dead")
    check(Topic("t", "c.t", 1, 3), want.config, want)


def test_a_topic_with_more_partitions_is_not_said_to_be_the_new_number():
    with pytest.raises(
        LayoutChanged, match=r"has 3 partitions.*ask for 2; .*another log.topic, with an empty store"
    ) as told:
        checked(partitions=3)
    assert "log.partitions = 3" not in str(told.value)


def test_a_first_start_waits_for_its_brokers(monkeypatch):
    class Answer:
        def result(self, timeout):
            raise KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR))

    topics = Topics(["127.0.0.1:1"], [])
    monkeypatch.setattr(topics._admin, "create_topics", lambda new, **asked: {new[0].topic: Answer()}, raising=False)
    monkeypatch.setattr(topics, "_brokers_up", lambda: "1")
    with pytest.raises(LogUnreachable, match=r"1 of 3 brokers are up.*log.replication = 3"):
        topics.make(wanted(Settings(), "events"))
