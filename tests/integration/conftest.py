"""Settings for logs on the run's brokers."""

import uuid
from collections.abc import Callable

import pytest

from lab.kafka import KafkaCluster
from tallymark.settings import Settings


@pytest.fixture
def kafka_settings(kafka_cluster: KafkaCluster) -> Callable[..., Settings]:
    """Settings of a log on these brokers, under a topic of its own; keywords are settings of the section `log`."""
    topic = f"test-{uuid.uuid4().hex[:12]}"

    def settings(**log: object) -> Settings:
        made = Settings()
        made.log.kind, made.log.brokers, made.log.topic = "kafka", kafka_cluster.bootstrap, topic
        for name, value in log.items():
            assert hasattr(made.log, name), name
            setattr(made.log, name, value)
        return made

    return settings
