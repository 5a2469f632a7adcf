"""Writers and readers of one fresh topic, closed after the test."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tallymark import log
from tallymark.log import LogReader
from tallymark.log.kafka.writer import KafkaLogWriter, open_kafka_writer
from tallymark.settings import Settings


@dataclass
class Stage:
    """A topic and hands to write, read and hurt it."""

    settings: Callable[..., Settings]
    _opened: list[Any]

    @property
    def topic(self) -> str:
        return f"{self.settings().log.topic}.events"

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": ",".join(self.settings().log.brokers), "log_level": 0})

    def writer(self, stream: str = "events", **settings: object) -> KafkaLogWriter:
        writer = open_kafka_writer(self.settings(**settings), stream)
        self._opened.append(writer)
        return writer

    def reader(self, stream: str = "events") -> LogReader:
        reader = log.open_reader(self.settings(), stream)
        self._opened.append(reader)
        return reader

    def leader(self, partition: int = 0) -> int:
        """The broker that leads it, as the lab numbers them."""
        metadata = self.admin.list_topics(self.topic, timeout=10)
        return int(metadata.topics[self.topic].partitions[partition].leader) - 1

    def produce(self, value: bytes, *, partition: int = 0, headers: Any = None) -> None:
        """As another program would."""
        producer = Producer({"bootstrap.servers": ",".join(self.settings().log.brokers)})
        producer.produce(self.topic, value=value, partition=partition, headers=headers)
        assert producer.flush(20) == 0


@pytest.fixture
def stage(kafka_settings: Callable[..., Settings]) -> Iterator[Stage]:
    opened: list[Any] = []
    yield Stage(kafka_settings, opened)
    for each in opened:
        each.close()
