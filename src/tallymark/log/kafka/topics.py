"""The topic of a stream: made by its first writer, and checked by every later one."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tallymark.events.frame import MAX_FRAME_BYTES
from tallymark.log.kafka.client import PATIENCE_S, configuration, is_away, is_gone, lines, logger, translated
from tallymark.log.protocol import LayoutChanged, LogError, LogLost, LogUnreachable
from tallymark.settings import Settings

# Above the frame limit: what librdkafka and the letters' encoding put round a frame, and one event that is too large
# to be split further.
MAX_MESSAGE_BYTES = MAX_FRAME_BYTES + 200_000
# Kafka deletes whole segments, and none may be smaller than its largest message.
MIN_SEGMENT_BYTES = 4 * MAX_MESSAGE_BYTES
# Beyond the horizon: a pipeline that was down this long still finds the ids it must know.
MARGIN_S = 3_600
_MADE_WITHIN_S = 30.0
_POLL_S = 0.05
# One broker is asked at a time. One that is paused keeps its connection, until a question to it was in vain.
_TRY_S = 2.5


@dataclass(frozen=True, slots=True)
class Topic:
    """What a topic is now."""

    name: str
    identity: str
    """of the cluster and of the topic: one that was deleted and made again has another"""
    partitions: int
    replication: int
    """copies of the partition that has the fewest"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the settings ask of a stream's topic."""

    name: str
    partitions: int
    partition_by: str
    replication: int
    min_in_sync: int
    config: Mapping[str, str]


def wanted(settings: Settings, stream: str) -> Wanted:
    log = settings.log
    config = {
        # Brokers stamp a record when they append it: claims and retention go by that time, and no client can set it.
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "delete",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": str(log.min_in_sync),
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
    }
    if stream == "dead":
        segment_bytes = max(MIN_SEGMENT_BYTES, min(log.segment_bytes, log.dead_bytes // 8))
        config |= {"retention.ms": "-1", "retention.bytes": str(max(log.dead_bytes, segment_bytes))}
        partitions, partition_by = 1, "none"
    else:
        segment_bytes = max(MIN_SEGMENT_BYTES, log.segment_bytes)
        keep_s = max(log.keep_s, settings.pipeline.horizon_s + MARGIN_S)
        config |= {"retention.ms": str(keep_s * 1000), "retention.bytes": "-1"}
        partitions, partition_by = log.partitions, log.partition_by
    config["segment.bytes"] = str(min(segment_bytes, 2**31 - 1))
    return Wanted(f"{log.topic}.{stream}", partitions, partition_by, log.replication, log.min_in_sync, config)


class Topics:
    """Questions about topics, each answered within `PATIENCE_S` or LogUnreachable."""

    def __init__(self, brokers: Sequence[str], options: Sequence[str]) -> None:
        self._brokers = brokers
        self._admin = AdminClient(
            configuration(brokers, options, client_id="tallymark-admin", socket_timeout_ms=int(_TRY_S * 1000)),
            logger=lines,
        )
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
            logger.info("topic %s made with %d partitions, %d copies", want.name, want.partitions, want.replication)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.INVALID_REPLICATION_FACTOR:
                raise LogError(
                    f"topic {want.name} cannot be made: log.replication = {want.replication} copies were asked for:"
                    f" {error.args[0].str()}; start more brokers, or set log.replication and log.min_in_sync lower"
                ) from error
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translated(error, f"topic {want.name} cannot be made", brokers=self._brokers) from error

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
            _check(topic, topics.config(want.name), want)
            return topic
        except LogLost:
            if not made:
                topics.make(want)
                made = True
            elif time.monotonic() > end:
                raise
        # A fresh topic is known to the other brokers a moment later.
        time.sleep(_POLL_S)


def _check(topic: Topic, config: Mapping[str, str], want: Wanted) -> None:
    if topic.partitions != want.partitions:
        raise LayoutChanged(
            f"topic {topic.name} has {topic.partitions} partitions, but the settings ask for {want.partitions}; set "
            f"log.partitions = {topic.partitions}, or begin a new log under another log.topic"
        )
    for name in ("message.timestamp.type", "cleanup.policy", "unclean.leader.election.enable"):
        if config.get(name) != want.config[name]:
            raise LayoutChanged(
                f"topic {topic.name} has {name} = {config.get(name)}, but the log needs {want.config[name]}; "
                f"{_alter(topic.name, f'{name}={want.config[name]}')}"
            )
    if topic.replication < want.replication:
        raise LayoutChanged(
            f"topic {topic.name} has {topic.replication} copies of a partition, but log.replication = "
            f"{want.replication}; add copies with kafka-reassign-partitions, or set log.replication = "
            f"{topic.replication}"
        )
    if int(config["min.insync.replicas"]) < want.min_in_sync:
        raise LayoutChanged(
            f"topic {topic.name} acknowledges with {config['min.insync.replicas']} copies in sync, but "
            f"log.min_in_sync = {want.min_in_sync}; "
            f"{_alter(topic.name, f'min.insync.replicas={want.min_in_sync}')}, or set log.min_in_sync = "
            f"{config['min.insync.replicas']}"
        )
    if int(config["max.message.bytes"]) < MAX_MESSAGE_BYTES:
        raise LayoutChanged(
            f"topic {topic.name} takes messages of {int(config['max.message.bytes']):,} bytes, but frames need "
            f"{MAX_MESSAGE_BYTES:,}; {_alter(topic.name, f'max.message.bytes={MAX_MESSAGE_BYTES}')}"
        )


def _alter(topic: str, setting: str) -> str:
    return f"change it: kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {setting}"
