"""Messages of one partition in order, and never over a gap unasked, from a consumer that belongs to no group."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tallymark.log.kafka.client import PATIENCE_S, client, configuration, describe, is_away, translated
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
        # The end is told: a mark of a transaction there is no record, and would be waited for in vain.
        enable_partition_eof=True,
        check_crcs=True,
        fetch_queue_backoff_ms=2,
        fetch_error_backoff_ms=100,
        # A leader that is paused is given up, and the next one looked for, within `PATIENCE_S`.
        topic_metadata_refresh_interval_ms=3_000,
        socket_timeout_ms=6_000,
        **ours,
    )
    return client(Consumer, chosen, options)


class Fetcher:
    """Hands out the messages of a partition from any offset on; from where it stands, what was fetched ahead.

    Its questions raise OutOfRange if the leader has no such offset, and LogUnreachable if nothing comes within
    `PATIENCE_S`; what they ask for must be in the log.
    """

    def __init__(self, consumer: Any, *, brokers: Sequence[str], topic: str) -> None:
        self._consumer = consumer
        self._brokers, self._topic = brokers, topic
        self._standing: tuple[int, int] | None = None
        self._held: Any = None

    def fetch(self, partition: int, start: int, count: int) -> list[Any]:
        """Some of the `count` messages from `start` on, at least one; LogDamaged if `start` itself cannot be read."""
        if self._held is not None and self._standing == (partition, start):
            held, self._held = self._held, None
            self._standing = (partition, start + 1)
            return [held]
        messages, ended, in_order = self._consume(partition, start, count, over_damage=False)
        whole = [message for expected, message in enumerate(messages, start) if message.offset() == expected]
        if not whole:
            following = f"comes {messages[0].offset()}" if messages else f"the log ends at {ended}"
            raise LogDamaged(
                f"{self._topic} partition {partition}: after offset {start - 1} {following}; a topic of this log has "
                "no gaps: records were removed, or written in transactions by another program"
            )
        if in_order and len(whole) == len(messages):
            self._standing = (partition, start + len(whole))
        return whole

    def fetch_readable(self, partition: int, start: int, count: int) -> tuple[list[Any], int]:
        """Those of the `count` messages from `start` on that can be read, perhaps none, and the offset to go on from.

        Whatever is missing or damaged is passed over.
        """
        messages, ended, in_order = self._consume(partition, start, count, over_damage=True)
        wanted = [message for message in messages if message.offset() < start + count]
        if not messages:
            return [], min(ended, start + count)
        if len(wanted) < len(messages):
            return wanted, start + count
        onward = wanted[-1].offset() + 1
        if in_order:
            self._standing = (partition, onward)
        return wanted, onward

    def first_from(self, partition: int, start: int) -> Any:
        """The first message at `start` or later that can be read, and is handed out again; None if none can."""
        if self._held is None or self._standing != (partition, start):
            messages, _, _ = self._consume(partition, start, 1, over_damage=True)
            if not messages:
                return None
            self._held = messages[0]
            self._standing = (partition, messages[0].offset())
        return self._held

    def stands_at(self, partition: int, start: int) -> bool:
        return self._standing == (partition, start)

    def release(self) -> None:
        """Fetch nothing more ahead."""
        self._standing = self._held = None
        self._consumer.unassign()

    def close(self) -> None:
        self._standing = self._held = None
        self._consumer.close()

    def _consume(self, partition: int, start: int, count: int, *, over_damage: bool) -> tuple[list[Any], int, bool]:
        """Messages from `start` on, perhaps with gaps; if none, where to go on; and whether the next follow these."""
        if self._held is not None or self._standing != (partition, start):
            self._held = None
            self._consumer.assign([TopicPartition(self._topic, partition, start)])
        self._standing = None
        give_up = time.monotonic() + PATIENCE_S
        trouble: KafkaError | None = None
        damaged, stuck = None, False
        while time.monotonic() < give_up:
            good, ended, in_order = [], start, True
            for message in self._consumer.consume(count, timeout=_WAIT_S):
                if (error := message.error()) is None:
                    good.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended = max(ended, message.offset())
                else:
                    trouble, in_order = error, False
                    if error.code() == KafkaError._BAD_MSG:
                        stuck, damaged = message.offset() == damaged, message.offset()
                    if not good:
                        self._judge(error, partition, start, over_damage=over_damage)
                    elif not over_damage:
                        break
            if good or ended > start:
                # An end beyond the next offset is told only once: whoever goes on must assign again to hear of it.
                at_end = not good or ended <= good[-1].offset() + 1
                return good, ended, in_order and at_end
            if stuck:
                # It comes again and again: the damaged batch is all that the leader sends from here.
                return [], start + 1, False
        raise LogUnreachable(
            f"{self._topic} partition {partition}: Kafka at {', '.join(self._brokers)} did not give offset {start} "
            f"within {PATIENCE_S:g} s{f' ({describe(trouble)})' if trouble else ''}; nothing is lost, try again"
        )

    def _judge(self, error: KafkaError, partition: int, start: int, *, over_damage: bool) -> None:
        """Return if it is worth waiting on."""
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise OutOfRange(describe(error))
        if error.code() == KafkaError._BAD_MSG:
            if over_damage:
                return
            raise LogDamaged(f"{self._topic} partition {partition}: offset {start} is damaged: {describe(error)}")
        if not is_away(error):
            raise translated(error, f"reading {self._topic}", brokers=self._brokers)
