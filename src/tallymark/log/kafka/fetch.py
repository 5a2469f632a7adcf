"""Messages of one partition in order and without a gap, from a consumer that belongs to no group."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tallymark.log.kafka.client import PATIENCE_S, configuration, is_away, lines, spoken, translated
from tallymark.log.protocol import LogDamaged, LogUnreachable

# Short, so that an error that came behind some messages is seen soon.
_WAIT_S = 0.5


class OutOfRange(Exception):
    """The leader does not have this offset, now."""


def reading_consumer(brokers: Sequence[str], options: Sequence[str]) -> Any:
    """One that fetches ahead, for reading a partition through; at most about 20 MB of frames wait in it."""
    return _consumer(
        brokers,
        options,
        fetch_message_max_bytes=4_000_000,
        fetch_max_bytes=8_000_000,
        queued_max_messages_kbytes=16_000,
        # How long the leader holds a fetch when there is nothing new; so long does going back in the log wait as well.
        fetch_wait_max_ms=100,
    )


def peeking_consumer(brokers: Sequence[str], options: Sequence[str]) -> Any:
    """One for looking at a few records here and there: fetches little ahead, and never waits at the end."""
    return _consumer(
        brokers,
        options,
        fetch_message_max_bytes=256_000,
        fetch_max_bytes=2_000_000,
        queued_max_messages_kbytes=256,
        fetch_wait_max_ms=0,
    )


def _consumer(brokers: Sequence[str], options: Sequence[str], **ours: Any) -> Any:
    chosen = configuration(
        brokers,
        options,
        client_id="tallymark-reader",
        # librdkafka asks for a name; no group is joined and nothing committed: the store alone knows what was applied.
        group_id="tallymark-reader",
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        # Never go on elsewhere by itself.
        auto_offset_reset="error",
        check_crcs=True,
        fetch_queue_backoff_ms=2,
        fetch_error_backoff_ms=100,
        # A leader that is paused is given up, and the next one looked for, within `PATIENCE_S`.
        topic_metadata_refresh_interval_ms=3_000,
        socket_timeout_ms=6_000,
        **ours,
    )
    return Consumer(chosen, logger=lines)


class Fetcher:
    """Hands out the messages of a partition from any offset on; from where it stands, what was fetched ahead."""

    def __init__(self, consumer: Any, *, brokers: Sequence[str], topic: str) -> None:
        self._consumer = consumer
        self._brokers, self._topic = brokers, topic
        self._standing: tuple[int, int] | None = None
        self._held: Any = None

    def fetch(self, partition: int, start: int, count: int) -> list[Any]:
        """Some of the `count` messages from `start` on, at least one; all of them must be in the log.

        OutOfRange if the leader has no such offset, LogUnreachable if nothing comes within `PATIENCE_S`.
        """
        if self._held is not None and self._standing == (partition, start):
            held, self._held = self._held, None
            self._standing = (partition, start + 1)
            return [held]
        if self._standing != (partition, start):
            self._held = None
            self._consumer.assign([TopicPartition(self._topic, partition, start)])
        self._standing = None
        messages = self._consume(partition, start, count)
        self._standing = (partition, start + len(messages))
        return messages

    def hold(self, message: Any) -> None:
        """Take back the message just fetched: the next fetch from there hands it out again."""
        self._held, self._standing = message, (message.partition(), message.offset())

    def stands_at(self, partition: int, start: int) -> bool:
        return self._standing == (partition, start)

    def release(self) -> None:
        """Fetch nothing more ahead."""
        self._standing = self._held = None
        self._consumer.unassign()

    def close(self) -> None:
        self._standing = self._held = None
        self._consumer.close()

    def _consume(self, partition: int, start: int, count: int) -> list[Any]:
        end = time.monotonic() + PATIENCE_S
        trouble: KafkaError | None = None
        while time.monotonic() < end:
            messages = self._consumer.consume(count, timeout=_WAIT_S)
            good = []
            for message in messages:
                if (error := message.error()) is None:
                    good.append(message)
                    continue
                trouble = error
                if not good:
                    self._judge(error)
                break
            if good:
                _check_gaps(good, self._topic, partition, start)
                return good
        raise LogUnreachable(
            f"{self._topic} partition {partition}: Kafka at {', '.join(self._brokers)} did not give offset {start} "
            f"within {PATIENCE_S:g} s{f' ({spoken(trouble)})' if trouble else ''}; nothing is lost, try again"
        )

    def _judge(self, error: KafkaError) -> None:
        """Return if it is worth waiting on."""
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise OutOfRange(spoken(error))
        if not is_away(error):
            raise translated(error, f"reading {self._topic}", brokers=self._brokers)


def _check_gaps(messages: list[Any], topic: str, partition: int, start: int) -> None:
    for expected, message in enumerate(messages, start):
        if message.offset() != expected:
            raise LogDamaged(
                f"{topic} partition {partition}: after offset {expected - 1} comes {message.offset()}; a topic of this "
                "log has no gaps: records were removed, or written in transactions by another program"
            )
