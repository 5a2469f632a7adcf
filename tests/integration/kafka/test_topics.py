"""The topic is made as the settings ask, refused if it is another, and told apart from one made again."""

import threading

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from tallymark.log import Appended, LayoutChanged, LogDamaged, LogLost, LogUnreachable, NotAppended, Outgoing
from tallymark.testing import until

FRAME = Outgoing(0, b"a", 1)


def config_of(stage, topic):
    (answer,) = stage.admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in answer.result(10).items()}


def alter(stage, name, value):
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, stage.topic, incremental_configs=[entry])
    admin = stage.admin
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(10)
    until(lambda: config_of(stage, stage.topic)[name] == value, f"{name} is {value}")


def delete(stage):
    admin = stage.admin
    admin.delete_topics([stage.topic])[stage.topic].result(10)
    until(lambda: stage.topic not in admin.list_topics(timeout=10).topics, "the topic is gone")


def test_the_first_writer_makes_the_topic(stage):
    stage.writer(partitions=3, keep_s=86_400)
    topic = stage.admin.list_topics(stage.topic, timeout=10).topics[stage.topic]
    assert [len(each.replicas) for each in topic.partitions.values()] == [3, 3, 3]
    found = config_of(stage, stage.topic)
    expected = {
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "delete",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": "2",
        "max.message.bytes": "1200000",
        "retention.ms": "86400000",
        "retention.bytes": "-1",
    }
    assert {name: found[name] for name in expected} == expected


def test_dead_letters_have_one_partition_and_a_room(stage):
    assert stage.writer("dead", dead_bytes=50_000_000, partitions=4).partitions == 1
    found = config_of(stage, stage.topic.replace(".events", ".dead"))
    assert (found["retention.bytes"], found["retention.ms"]) == ("50000000", "-1")


def test_two_writers_may_make_it_at_once(stage):
    outcomes = []
    threads = [threading.Thread(target=lambda: outcomes.extend(stage.writer().append([FRAME]))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.offset for each in outcomes) == [0, 1, 2]


def test_another_number_of_partitions_is_refused_with_the_way_out(stage):
    stage.writer(partitions=2)
    with pytest.raises(LayoutChanged, match=r"has 2 partitions.*ask for 3; set log.partitions = 2"):
        stage.writer(partitions=3)
    stage.writer(partitions=2)


def test_another_strategy_is_refused_with_the_way_out(stage):
    stage.writer(partition_by="id").append([Outgoing(1, b"a", 1)])
    with pytest.raises(LayoutChanged, match=r"by 'id'.*ask for 'key:user'; set log.partition_by = \"id\""):
        stage.writer(partition_by="key:user")
    stage.writer(partition_by="id")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("message.timestamp.type", "CreateTime", r"needs LogAppendTime; change it: kafka-configs"),
        ("cleanup.policy", "compact", r"needs delete; change it: kafka-configs"),
        ("min.insync.replicas", "1", r"with 1 copies in sync, but log.min_in_sync = 2; change it: kafka-configs"),
        ("max.message.bytes", "500000", r"takes messages of 500,000 bytes, but frames need 1,200,000"),
        ("retention.ms", "60000", r"keeps records for 60 s, .* need 4,230 s"),
        ("retention.bytes", "1000000", r"retention.bytes = 1000000, but the log needs -1"),
    ],
)
def test_a_topic_on_which_the_promises_do_not_hold_is_refused(stage, name, value, why):
    stage.writer().close()
    alter(stage, name, value)
    with pytest.raises(LayoutChanged, match=why):
        stage.writer()


def test_fewer_copies_than_asked_for_are_refused(stage):
    stage.writer(replication=2, min_in_sync=2)
    with pytest.raises(LayoutChanged, match=r"has 2 copies .* log.replication = 3; add copies"):
        stage.writer()


def test_more_copies_than_brokers_are_waited_for(stage):
    with pytest.raises(LogUnreachable, match=r"3 of 5 brokers are up, and log.replication = 5 copies are needed"):
        stage.writer(replication=5)


def test_a_topic_made_again_is_another_log(stage, monkeypatch):
    monkeypatch.setattr("tallymark.log.kafka.reader._IDENTITY_FOR_S", 0.0)
    monkeypatch.setattr("tallymark.log.kafka.writer._IDENTITY_FOR_S", 0.0)
    log = stage.writer()
    log.append([FRAME])
    reader = stage.reader()
    delete(stage)
    with pytest.raises(LogLost):
        reader.positions()

    again = stage.writer()
    assert again.append([Outgoing(0, b"other", 1)])[0].offset == 0
    assert again.identity != log.identity
    with pytest.raises(LogLost, match="was recreated"):
        reader.read(0, 0, 1)
    (refused,) = log.append([FRAME])
    assert "was recreated" in refused.reason
    assert set(log.sealed()) == {0, 1}
    assert [each.payload for each in stage.reader().read(0, 0, 1)] == [b"other"]


def test_a_message_of_another_program_is_damage_not_a_gap(stage):
    log = stage.writer()
    log.append([FRAME])
    stage.produce(b"hello")
    stage.produce(b"hello", headers=[("tallymark", b"\x09" + b"\0" * 30)])
    log.append([Outgoing(0, b"b", 7)])
    reader = stage.reader()
    records = reader.read(0, 0, 4)
    assert next(records).payload == b"a"
    with pytest.raises(LogDamaged, match=r"partition 0: offset 1 is not a frame: it has no header"):
        next(records)
    with pytest.raises(LogDamaged, match=r"offset 2 is not a frame: .* version 9"):
        next(reader.read(0, 2, 4))
    assert [each.payload for each in reader.read(0, 3, 4)] == [b"b"]
    assert reader.events_in(0, 1, 4) == 7, "what is not ours holds no events that we know of"
    assert isinstance(stage.writer().append([FRAME])[0], Appended), "and does not keep a writer from opening"


def test_retention_that_passed_is_told_with_the_first_offset(stage):
    log = stage.writer()
    log.append([Outgoing(0, b"%d" % number, 1) for number in range(10)])
    reader, earlier = stage.reader(), stage.reader()
    assert earlier.positions()[0].first == 0
    admin = stage.admin
    (answer,) = admin.delete_records([TopicPartition(stage.topic, 0, 6)]).values()
    answer.result(10)

    assert (reader.positions()[0].first, reader.positions()[0].synced) == (6, 10)
    with pytest.raises(LogLost, match=r"offset 5 is gone, the oldest kept is 6; .*log.keep_s"):
        reader.read(0, 5, 10)
    assert [each.offset for each in reader.read(0, 6, 10)] == [6, 7, 8, 9]
    # One that thinks the log still begins at 0 finds out when it reads.
    with pytest.raises(LogLost, match=r"offset 2 is gone, the oldest kept is 6"):
        list(earlier.read(0, 2, 10))


def test_added_partitions_are_noticed_by_all(stage, monkeypatch):
    monkeypatch.setattr("tallymark.log.kafka.reader._IDENTITY_FOR_S", 0.0)
    monkeypatch.setattr("tallymark.log.kafka.writer._IDENTITY_FOR_S", 0.0)
    log = stage.writer()
    log.append([FRAME])
    reader = stage.reader()
    assert reader.positions()[0].end == 1
    stage.admin.create_partitions([NewPartitions(stage.topic, 4)])[stage.topic].result(10)
    until(lambda: len(stage.admin.list_topics(stage.topic, timeout=10).topics[stage.topic].partitions) == 4, "they are")
    with pytest.raises(LayoutChanged, match=r"had 2 partitions when it was opened and has 4 now"):
        reader.positions()
    # The broker that the writer asks may hear of it a moment later.
    refused = until(
        lambda: next((each for each in log.append([FRAME]) if isinstance(each, NotAppended)), None), "refused"
    )
    assert "has 4 now" in refused.reason
    assert set(log.sealed()) == {0, 1}
    with pytest.raises(LayoutChanged, match=r"has 4 partitions, but the settings ask for 2"):
        stage.writer()
    with pytest.raises(LayoutChanged, match=r"newest records were spread over 2"):
        stage.writer(partitions=4)


def test_a_gap_is_damage_also_as_the_last_of_the_log(stage):
    """Records of an aborted transaction are not handed out: offsets are missing that the log had promised."""
    log = stage.writer()
    times = [log.append([Outgoing(0, b"a", 5)])[0].append_ms]
    producer = Producer({"bootstrap.servers": ",".join(stage.settings().log.brokers), "transactional.id": stage.topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(stage.topic, value=b"never", partition=0)
    producer.flush(10)
    producer.abort_transaction(30)
    until(lambda: log.positions()[0].end == 3, "the abort is marked")
    reader = stage.reader()
    for start, end in [(0, 3), (1, 2), (2, 3)]:
        with pytest.raises(LogDamaged, match=r"after offset \d the log ends at 3"):
            list(reader.read(0, start, end))
    assert [reader.append_ms(0, offset) for offset in (1, 2)] == times * 2, "the end is as old as what came before"
    assert reader.events_in(0, 0, 3) == 5
    assert isinstance(stage.writer().append([FRAME])[0], Appended), "and does not keep a writer from opening"

    log.append([Outgoing(0, b"b", 7)])
    reader = stage.reader()
    with pytest.raises(LogDamaged, match=r"after offset 0 comes 3"):
        list(reader.read(0, 0, 5))
    assert [reader.append_ms(0, offset) for offset in (1, 2)] == [reader.append_ms(0, 3)] * 2
    assert reader.events_in(0, 0, 5) == 5 + 1 + 7
    assert reader.bounded_end(0, 0, max_events=10**6, max_bytes=10**6) == 5
    assert [each.payload for each in reader.read(0, 3, 5)] == [b"a", b"b"]


def test_an_existing_topic_with_the_wrong_clock_is_refused(stage):
    admin = stage.admin
    admin.create_topics([NewTopic(stage.topic, 2, 3, config={"min.insync.replicas": "2"})])[stage.topic].result(10)
    until(lambda: stage.topic in admin.list_topics(timeout=10).topics, "the topic is there")
    with pytest.raises(LayoutChanged, match=r"message.timestamp.type = CreateTime"):
        stage.writer()
