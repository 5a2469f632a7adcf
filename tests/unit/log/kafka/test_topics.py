"""What the settings ask of a topic."""

from tallymark.log.kafka.topics import MIN_SEGMENT_BYTES, wanted
from tallymark.settings import Settings


def test_records_stay_as_long_as_the_pipeline_needs_them():
    settings = Settings()
    settings.log.keep_s, settings.pipeline.horizon_s = 60, 600
    assert wanted(settings, "events").config["retention.ms"] == "4200000", "the horizon, and an hour to be down"
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
