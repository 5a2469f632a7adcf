"""The topic of a stream: made by its first writer, and checked by every later one."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tallymark.log.kafka.client import (
    PATIENCE_S,
    client,
    configuration,
    is_away,
    is_gone,
    logger,
    translated,
)
from tallymark.log.kafka.layout import Topic, Wanted, check
from tallymark.log.protocol import LogLost, LogUnreachable

_MADE_WITHIN_S = 30.0
_POLL_S = 0.05
# One broker is asked at a time. One that is paused keeps its connection, until a question to it was in vain.
_TRY_S = 2.5


class Topics:
    """Questions about topics, each answered within `PATIENCE_S` or LogUnreachable."""

    def __init__(self, brokers: Sequence[str], options: Sequence[str]) -> None:
        self._brokers = brokers
        chosen = configuration(brokers, options, client_id="tallymark-admin", socket_timeout_ms=int(_TRY_S * 1000))
        self._admin = client(AdminClient, chosen, options)
        self._cluster: str | None = None

    def find(self, name: str) -> Topic:
        """LogLost if there is no such topic."""
        description = self._described(name)
        if self._cluster is None:
            self._cluster = self._ask(
                lambda: self._admin.describe_cluster(request_timeout=_TRY_S).result(PATIENCE_S).cluster_id,
                f"the cluster of topic {name}",
            )
        return Topic(
            name,
            f"{self._cluster}.{_name(str(description.topic_id))}",
            len(description.partitions),
            min((len(partition.replicas) for partition in description.partitions), default=0),
        )

    def make(self, want: Wanted) -> None:
        """Nothing happens if there is one already: another writer may have been faster."""
        topic = NewTopic(want.name, want.partitions, want.replication, config=dict(want.config))
        try:
            self._admin.create_topics([topic], operation_timeout=5, request_timeout=PATIENCE_S)[want.name].result(
                PATIENCE_S + 1
            )
            logger.info("created topic %s with %d partitions, %d copies", want.name, want.partitions, want.replication)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.INVALID_REPLICATION_FACTOR:
                raise LogUnreachable(
                    f"topic {want.name} cannot be created yet: {self._brokers_up()} of {want.replication} brokers "
                    f"are up, and log.replication = {want.replication} copies are needed; start more brokers, or set "
                    "log.replication and log.min_in_sync lower"
                ) from error
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translated(error, f"topic {want.name} cannot be created", brokers=self._brokers) from error

    def _brokers_up(self) -> str:
        try:
            return str(len(self._admin.list_topics(timeout=_TRY_S).brokers))
        except KafkaException:
            return "too few"

    def config(self, name: str) -> dict[str, str]:
        def ask() -> dict[str, str]:
            resource = ConfigResource(ConfigResource.Type.TOPIC, name)
            (answer,) = self._admin.describe_configs([resource], request_timeout=_TRY_S).values()
            return {key: entry.value for key, entry in answer.result(PATIENCE_S).items()}

        found: dict[str, str] = self._ask(ask, f"settings of topic {name}")
        return found

    def _described(self, name: str) -> Any:
        def ask() -> Any:
            answers = self._admin.describe_topics(TopicCollection([name]), request_timeout=_TRY_S)
            description = answers[name].result(PATIENCE_S)
            if not description.partitions or any(not partition.replicas for partition in description.partitions):
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return description

        return self._ask(ask, f"topic {name}")

    def _ask(self, question: Any, what: str) -> Any:
        """Again and again while brokers change over, but not for longer than `PATIENCE_S`."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return question()
            except KafkaException as error:
                if not is_away(error) or is_gone(error) or time.monotonic() > end:
                    raise translated(error, what, brokers=self._brokers) from error
            except TimeoutError as error:
                raise LogUnreachable(f"{what}: Kafka at {', '.join(self._brokers)} does not answer") from error
            finally:
                self._admin.poll(0)  # its log lines
            # Some questions go to the broker that was last named as controller: ask those that answer for another.
            with contextlib.suppress(KafkaException):
                self._admin.list_topics(timeout=_TRY_S)
            time.sleep(_POLL_S)


def _name(topic_id: str) -> str:
    """Base64 as Kafka's own tools write it, which may also be part of a file's name."""
    return topic_id.replace("+", "-").replace("/", "_")


def ensure(topics: Topics, want: Wanted) -> Topic:
    """The topic, made if there is none; LayoutChanged if it is not what the settings ask for."""
    end = time.monotonic() + _MADE_WITHIN_S
    made = False
    while True:
        try:
            topic = topics.find(want.name)
            check(topic, topics.config(want.name), want)
            return topic
        except LogLost:
            if not made:
                topics.make(want)
                made = True
            elif time.monotonic() > end:
                raise
        # A fresh topic is known to the other brokers a moment later.
        time.sleep(_POLL_S)
