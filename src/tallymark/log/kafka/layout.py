"""What the settings ask of a topic, and when one that is there is refused."""

from collections.abc import Mapping
from dataclasses import dataclass

from tallymark.events.frame import MAX_FRAME_BYTES
from tallymark.log.kafka.client import SLACK_MS, logger
from tallymark.log.kafka.record import Header
from tallymark.log.protocol import LayoutChanged, LogLost
from tallymark.settings import Settings

# Above the frame limit: what librdkafka and the letters' encoding put round a frame, and one event that is too large
# to be split further.
MAX_MESSAGE_BYTES = MAX_FRAME_BYTES + 200_000
# Kafka deletes whole segments, and none may be smaller than its largest message.
MIN_SEGMENT_BYTES = 4 * MAX_MESSAGE_BYTES
# Beyond the horizon: a pipeline that was down this long still finds the ids it must know.
MARGIN_S = 3_600

_GREW = "ids would move to other partitions, and retries within the horizon count twice"
_NEW_LOG = "start a new log: another log.topic, with an empty store"


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
    needed_ms: int = 0
    """records must stay this long, or retries are counted twice; 0 where nothing is counted from the topic"""
    keep_ms: int = 0
    """and this long people want them"""


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
        needed_ms = keep_ms = 0
    else:
        segment_bytes = max(MIN_SEGMENT_BYTES, log.segment_bytes)
        # As far back as claims look, and for as long as the pipeline may be down.
        needed_ms, keep_ms = (settings.pipeline.horizon_s + MARGIN_S) * 1000 + SLACK_MS, log.keep_s * 1000
        config |= {"retention.ms": str(max(keep_ms, needed_ms)), "retention.bytes": "-1"}
        partitions, partition_by = log.partitions, log.partition_by
    config["segment.bytes"] = str(min(segment_bytes, 2**31 - 1))
    return Wanted(
        f"{log.topic}.{stream}",
        partitions,
        partition_by,
        log.replication,
        log.min_in_sync,
        config,
        needed_ms=needed_ms,
        keep_ms=keep_ms,
    )


def check(topic: Topic, config: Mapping[str, str], want: Wanted) -> None:
    """LayoutChanged, with the way out, if the promises of the log do not hold on a topic as it is."""
    if topic.partitions < want.partitions:
        raise LayoutChanged(
            f"topic {topic.name} has {topic.partitions} partitions, but the settings ask for {want.partitions}; set "
            f"log.partitions = {topic.partitions}, or {_NEW_LOG}"
        )
    if topic.partitions > want.partitions:
        # Never the topic's number as the way out: perhaps it was the topic that was changed.
        raise LayoutChanged(
            f"topic {topic.name} has {topic.partitions} partitions, but the settings ask for {want.partitions}; if "
            "log.partitions was changed, restore the number the log was created with; if it was the topic, "
            f"{_GREW}: put the topic back, or {_NEW_LOG}"
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
    if want.needed_ms:
        _check_retention(topic.name, config, want)


def _check_retention(name: str, config: Mapping[str, str], want: Wanted) -> None:
    keep = f"retention.ms={want.config['retention.ms']}"
    kept_ms = int(config["retention.ms"])
    if 0 <= kept_ms < want.needed_ms:
        raise LayoutChanged(
            f"topic {name} keeps records for {kept_ms / 1000:,.0f} s, but pipeline.horizon_s and {MARGIN_S:,} s for a "
            f"pipeline that is down need {want.needed_ms / 1000:,.0f} s, or retries count twice; {_alter(name, keep)}"
        )
    if config["retention.bytes"] != "-1":
        raise LayoutChanged(
            f"topic {name} has retention.bytes = {config['retention.bytes']}, but the log needs -1: Kafka would delete "
            f"records that were not counted yet; {_alter(name, 'retention.bytes=-1')}"
        )
    if 0 <= kept_ms < want.keep_ms:
        logger.warning(
            "topic %s keeps records for %d s, less than log.keep_s = %d, which was raised since; %s",
            name,
            kept_ms // 1000,
            want.keep_ms // 1000,
            _alter(name, keep),
        )


def check_same(found: Topic, opened: Topic) -> None:
    """LogLost if a topic is no longer the one that was opened, LayoutChanged if it has other partitions by now."""
    if found.identity != opened.identity:
        raise LogLost(
            f"topic {opened.name} was recreated: it is {found.identity}, not {opened.identity}, and has other "
            "records. Open the log again"
        )
    if found.partitions != opened.partitions:
        raise LayoutChanged(
            f"topic {opened.name} had {opened.partitions} partitions when it was opened and has {found.partitions} "
            f"now: {_GREW}; leave log.partitions as it is, and put the topic back, or {_NEW_LOG}"
        )


def check_spread(name: str, partitions: int, partition_by: str, *, found: Header) -> None:
    """LayoutChanged if a record was spread over the partitions in another way than those to come would be."""
    if found.partition_by != partition_by:
        raise LayoutChanged(
            f"topic {name} is partitioned by {found.partition_by!r}, but the settings ask for {partition_by!r}; set "
            f'log.partition_by = "{found.partition_by}", or {_NEW_LOG}'
        )
    if found.partitions != partitions:
        raise LayoutChanged(
            f"topic {name} has {partitions} partitions, but its newest records were spread over {found.partitions}: "
            f"{_GREW}; put the topic back, or {_NEW_LOG}"
        )


def _alter(topic: str, setting: str) -> str:
    return f"change it: kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {setting}"
