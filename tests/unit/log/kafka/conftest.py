"""A topic in memory, behind as much of Kafka's clients as the log uses."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallymark.log.kafka import reader, writer
from tallymark.log.kafka.layout import Topic
from tallymark.log.kafka.record import HEADER, Header, encode

BASE_MS = 1_763_208_000_000


class Message:
    def __init__(self, partition=0, offset=0, *, error=None, events=1, size=1, partitions=1, partition_by="id"):
        self._partition, self._offset, self._error, self._size = partition, offset, error, size
        self._header = Header(events, 1, offset, partitions, partition_by)

    def error(self):
        return self._error

    def topic(self):
        return "t.events"

    def partition(self):
        return self._partition

    def offset(self):
        return self._offset

    def timestamp(self):
        return 2, BASE_MS + self._offset

    def value(self):
        return b"x"

    def headers(self):
        return [(HEADER, encode(self._header))]

    def __len__(self):
        return self._size


class FakeTopic:
    """Each partition a list of messages; None is an offset without one, and "bad" one that fails its checksum."""

    def __init__(self):
        self.partitions: list[list[Any]] = [[]]
        self.leaderless: set[int] = set()
        self.asked: list[set[int]] = []
        self.identity = "c.t"
        self.shown: int | None = None
        self.refusing: set[int] = set()
        self.fatal = False
        self.batches: list[list[int]] = []
        self.producers: list[FakeProducer] = []

    def fill(self, *contents, partition=0):
        self.partitions[partition] = [
            Message(partition, offset, **({"partitions": len(self.partitions)} | each))
            if isinstance(each, dict)
            else each
            for offset, each in enumerate(contents)
        ]

    def find(self, name):
        return Topic(name, self.identity, self.shown or len(self.partitions), 3)


class FakeConsumer:
    def __init__(self, topic):
        self._topic = topic
        self._partition = self._at = 0
        self._ended = False

    def assign(self, places):
        self._partition, self._at, self._ended = places[0].partition, places[0].offset, False

    def unassign(self):
        pass

    close = unassign

    def consume(self, count, timeout):
        content, found = self._topic.partitions[self._partition], []
        while len(found) < count and self._at < len(content):
            message = content[self._at]
            if message == "bad":
                found.append(Message(self._partition, self._at, error=KafkaError(KafkaError._BAD_MSG)))
                if self._at == len(content) - 1:
                    return found  # and again: librdkafka stays at a batch behind which nothing comes
            elif message is not None:
                found.append(message)
            self._at += 1
        if len(found) < count and not self._ended:
            self._ended = True
            found.append(Message(self._partition, self._at, error=KafkaError(KafkaError._PARTITION_EOF)))
        return found

    def offsets_for_times(self, places, timeout):
        self._topic.asked.append({place.partition for place in places})
        if self._topic.leaderless & {place.partition for place in places}:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        ends = {place.partition: len(self._topic.partitions[place.partition]) for place in places}
        return [
            SimpleNamespace(
                partition=place.partition, offset=ends[place.partition] if place.offset == -1 else 0, error=None
            )
            for place in places
        ]

    def list_topics(self, name, timeout):
        found = {
            number: SimpleNamespace(leader=-1 if number in self._topic.leaderless else 1)
            for number in range(len(self._topic.partitions))
        }
        return SimpleNamespace(topics={name: SimpleNamespace(partitions=found)})


class FakeProducer:
    """Acknowledges all but what goes to partitions that refuse; those are silent until they are purged."""

    def __init__(self, topic):
        self._topic, self._reports, self._silent = topic, [], []
        topic.producers.append(self)

    def produce(self, name, *, value, partition, headers, on_delivery):
        if self._topic.fatal:
            self._reports.append((on_delivery, KafkaError(KafkaError._FATAL, "fenced", True), None))
        elif partition in self._topic.refusing:
            self._silent.append(on_delivery)
        else:
            content = self._topic.partitions[partition]
            content.append(Message(partition, len(content)))
            self._reports.append((on_delivery, None, content[-1]))
        if not self._topic.batches or not self._topic.batches[-1]:
            self._topic.batches.append([])
        self._topic.batches[-1].append(partition)

    def poll(self, timeout):
        self._topic.batches.append([])
        reports, self._reports = self._reports, []
        for on_delivery, error, message in reports:
            on_delivery(error, message)

    def purge(self):
        self._reports += [(report, KafkaError(KafkaError._PURGE_QUEUE), None) for report in self._silent]
        self._silent = []

    def flush(self, timeout):
        return 0


@pytest.fixture
def topic(monkeypatch) -> FakeTopic:
    made = FakeTopic()
    for module in (reader, writer):
        monkeypatch.setattr(module, "Topics", lambda *asked: made)
        monkeypatch.setattr(module, "peeking_consumer", lambda *asked: FakeConsumer(made))
    monkeypatch.setattr(reader, "reading_consumer", lambda *asked: FakeConsumer(made))
    monkeypatch.setattr(writer, "ensure", lambda topics, want: topics.find(want.name))
    monkeypatch.setattr(writer, "client", lambda *asked: FakeProducer(made))
    for module in ("fetch", "offsets"):
        monkeypatch.setattr(f"tallymark.log.kafka.{module}.PATIENCE_S", 0.2)
    return made
