"""Kafka's writer: a group commit is produced at once, and the brokers, or the clock, answer for every frame."""

import contextlib
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tallymark import telemetry
from tallymark.log.address import KafkaAddress
from tallymark.log.kafka.client import client, configuration, logger
from tallymark.log.kafka.commit import Commit
from tallymark.log.kafka.failing import FailingPartitions
from tallymark.log.kafka.fetch import Fetcher, peeking_consumer
from tallymark.log.kafka.layout import MAX_MESSAGE_BYTES, Topic, Wanted, check_same, check_spread, wanted
from tallymark.log.kafka.offsets import Offsets
from tallymark.log.kafka.record import HEADER, Header, NotOurs, encode, header_of
from tallymark.log.kafka.topics import Topics, ensure
from tallymark.log.protocol import Appended, LayoutChanged, LogError, LogLost, NotAppended, Outgoing, Positions
from tallymark.settings import Settings

# What may wait in the producer. One commit is under way at a time, so this is a bound and not a buffer.
QUEUE_KBYTES = 64_000
QUEUE_MESSAGES = 20_000
# Enough partitions to see how the newest records were spread.
_LOOKED_AT = 8
_IDENTITY_FOR_S = 30.0
_PURGED_WITHIN_S = 2.0
_LATER_MS = 5_000


def open_kafka_writer(settings: Settings, stream: str) -> "KafkaLogWriter":
    """A writer of a stream, whose topic is made if there is none; LogUnreachable if no broker answers."""
    log = settings.log
    address = KafkaAddress(tuple(log.brokers), f"{log.topic}.{stream}", tuple(log.kafka_options))
    return KafkaLogWriter(
        address,
        wanted(settings, stream),
        stream=stream,
        acks=log.acks,
        delivery_timeout_s=log.delivery_timeout_s,
    )


class KafkaLogWriter:
    """Appends to a topic, as any number of writers may.

    `instance` and `sequence` in a record say which writer made it and in what order, without a gap; after a frame
    whose fate is unknown a new instance begins.
    """

    def __init__(
        self, address: KafkaAddress, want: Wanted, *, stream: str, acks: str, delivery_timeout_s: float
    ) -> None:
        # Taken here so that they are shown as zero before the first append.
        self._appended_records = telemetry.LOG_APPENDED_RECORDS.labels(stream)
        self._appended_bytes = telemetry.LOG_APPENDED_BYTES.labels(stream)
        self._refused_records = telemetry.LOG_REFUSED_RECORDS.labels(stream)
        self._commit_seconds = telemetry.LOG_SYNC_SECONDS.labels(stream)
        self._address, self._want = address, want
        self._acks, self._timeout_s = acks, delivery_timeout_s
        self._topics = Topics(address.brokers, address.options)
        self._topic: Topic = ensure(self._topics, want)
        self._identity_checked = time.monotonic()
        self._consumer = peeking_consumer(address.brokers, address.options)
        self._offsets = Offsets(
            self._consumer, brokers=address.brokers, topic=address.topic, partitions=self._topic.partitions
        )
        self._asking = threading.Lock()
        self._appending = threading.Lock()
        self._producer: Any = None
        self._closed = False
        self._sealed = ""
        self._failing = FailingPartitions(address.topic, self._topic.partitions)
        self._begin_instance()
        try:
            self._check_strategy()
            # Connects and gets its number from the brokers meanwhile, which the first commit would wait for: 0.3-0.9 s.
            self._opened_producer()
        except BaseException:
            self._consumer.close()
            raise

    @property
    def identity(self) -> str:
        return self._topic.identity

    @property
    def partitions(self) -> int:
        return self._topic.partitions

    def append(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
        """One outcome a frame, in order; `Appended` only by the brokers' acknowledgement, as `log.acks` asks for it.

        A frame that was not acknowledged in time is withdrawn, so that it is not sent later; what had left already may
        be in the log all the same. While a partition is known to take nothing the answer comes at once, and the others
        go on.
        """
        for frame in frames:
            self._check(frame)
        with self._appending:
            if not frames:
                return []
            if refusal := self._refusal():
                outcomes: list[Appended | NotAppended] = [NotAppended(frame.partition, refusal) for frame in frames]
            elif self._failing:
                outcomes = self._commit_apart(frames)
            else:
                outcomes = self._commit(frames, self._timeout_s)
            self._measure(frames, outcomes)
            return outcomes

    def positions(self) -> Mapping[int, Positions]:
        with self._asking:
            firsts, ends = self._offsets.firsts(), self._offsets.ends()
        return {number: Positions(min(firsts[number], end), end, end, None) for number, end in ends.items()}

    def sealed(self) -> Mapping[int, str]:
        """All partitions once the topic is gone or another; brokers that are away seal nothing."""
        return dict.fromkeys(range(self.partitions), self._sealed) if self._sealed else {}

    def close(self) -> None:
        with self._appending, self._asking:
            if self._closed:
                return
            self._closed = True
            if self._producer is not None:
                self._producer.flush(1)
                self._drop_producer()
            self._consumer.close()

    def _refusal(self) -> str:
        """Why nothing is tried now; empty if it is."""
        if self._closed:
            return "the log is closed"
        if not self._sealed and time.monotonic() - self._identity_checked > _IDENTITY_FOR_S:
            self._check_identity()
        return self._sealed

    def _commit_apart(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
        """Partitions that work first, so that nothing keeps them waiting; then a short try of those that did not."""
        outcomes: list[Appended | NotAppended] = []
        working, tried = [], []
        for place, frame in enumerate(frames):
            why = self._failing.why(frame.partition)
            outcomes.append(NotAppended(frame.partition, why))
            if not why:
                working.append(place)
            elif not self._failing.rests(frame.partition):
                tried.append(place)
        probe_s = min(self._timeout_s, self._failing.probe_s(frames[place].partition for place in tried))
        for places, timeout_s in ((working, self._timeout_s), (tried, probe_s)):
            if places:
                answers = self._commit([frames[place] for place in places], timeout_s)
                for place, outcome in zip(places, answers, strict=True):
                    outcomes[place] = outcome
        return outcomes

    def _commit(self, frames: Sequence[Outgoing], timeout_s: float) -> list[Appended | NotAppended]:
        begun = time.monotonic()
        commit = Commit(frames)
        try:
            producer = self._opened_producer()
            for place, frame in enumerate(frames):
                self._produce(producer, commit, place, frame)
            commit.wait(producer, timeout_s)
            if commit.waiting:
                # Also those in flight: their acknowledgement would come when nobody listens any more.
                producer.purge()
                commit.wait(producer, _PURGED_WITHIN_S)
        except KafkaException as error:
            commit.stop(error.args[0])
            self._drop_producer()
        if commit.waiting:
            self._drop_producer()
        late = f"not acknowledged within {timeout_s:g} s"
        outcomes = commit.outcomes(late)
        self._learn(commit, outcomes, commit.failing(late))
        self._commit_seconds.observe(time.monotonic() - begun)
        return outcomes

    def _produce(self, producer: Any, commit: Commit, place: int, frame: Outgoing) -> None:
        sequence = self._sequences.get(frame.partition, 0)
        header = Header(frame.events, self._instance, sequence, self.partitions, self._want.partition_by)
        try:
            producer.produce(
                self._address.topic,
                value=frame.payload,
                partition=frame.partition,
                headers=[(HEADER, encode(header))],
                on_delivery=commit.reporter(place),
            )
        except BufferError:
            commit.fail(place, f"the producer's queue of {QUEUE_KBYTES:,} kB is full")
        except KafkaException as error:
            if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            commit.refuse(place, f"a frame of {len(frame.payload):,} bytes exceeds {MAX_MESSAGE_BYTES:,}")
        else:
            self._sequences[frame.partition] = sequence + 1

    def _learn(self, commit: Commit, outcomes: Sequence[Appended | NotAppended], failing: Mapping[int, str]) -> None:
        """From how the commit went: which partitions take records, and whether this producer can go on."""
        self._failing.learn({each.partition for each in outcomes if isinstance(each, Appended)}, failing)
        if not failing:
            return
        self._begin_instance()
        if commit.fatal:
            self._drop_producer()
        if commit.gone:
            self._check_identity()

    def _opened_producer(self) -> Any:
        if self._producer is None:
            timeout_ms = int(self._timeout_s * 1000)
            self._producer = client(
                Producer,
                configuration(
                    self._address.brokers,
                    self._address.options,
                    client_id="tallymark-writer",
                    acks="all" if self._acks == "all" else 1,
                    # Kafka knows a producer's repeats only where all copies in sync have what it sent.
                    enable_idempotence=self._acks == "all",
                    # The collector has gathered its commit already, and its frames are compressed.
                    linger_ms=0,
                    compression_type="none",
                    message_max_bytes=MAX_MESSAGE_BYTES,
                    queue_buffering_max_kbytes=QUEUE_KBYTES,
                    queue_buffering_max_messages=QUEUE_MESSAGES,
                    # Later than ours, which then always decides and purges.
                    delivery_timeout_ms=timeout_ms + _LATER_MS,
                    request_timeout_ms=timeout_ms,
                    topic_metadata_refresh_interval_ms=10_000,
                    retry_backoff_ms=50,
                    retry_backoff_max_ms=500,
                ),
                self._address.options,
            )
        return self._producer

    def _drop_producer(self) -> None:
        if self._producer is not None:
            # Nothing may be sent by the one that goes.
            self._producer.purge()
            self._producer = None
            self._begin_instance()

    def _begin_instance(self) -> None:
        # 63 bits: fits every engine's signed integers.
        self._instance = secrets.randbits(63)
        self._sequences: dict[int, int] = {}

    def _check_identity(self) -> None:
        """Seal if the topic is another, or has grown, by now. Brokers that do not answer say nothing about it."""
        self._identity_checked = time.monotonic()
        try:
            check_same(self._topics.find(self._address.topic), self._topic)
        except LogLost as error:
            self._sealed = f"{error}; restart the writer"
        except LayoutChanged as error:
            self._sealed = str(error)
        except LogError:
            return
        if self._sealed:
            logger.error("%s", self._sealed)

    def _check_strategy(self) -> None:
        """LayoutChanged if the newest records were spread by another strategy, or over other partitions."""
        peeks = Fetcher(self._consumer, brokers=self._address.brokers, topic=self._address.topic)
        for partition, at in list(self.positions().items())[:_LOOKED_AT]:
            if at.first == at.end:
                continue
            messages, _ = peeks.fetch_readable(partition, at.end - 1, 1)
            for message in messages:
                # What is not ours, or cannot be read, the pipeline buries, and says so.
                with contextlib.suppress(NotOurs):
                    found = header_of(message)
                    check_spread(self._address.topic, self.partitions, self._want.partition_by, found=found)
        peeks.release()

    def _check(self, frame: Outgoing) -> None:
        if not 0 <= frame.partition < self.partitions:
            raise ValueError(f"partition {frame.partition} does not exist; the stream has 0 to {self.partitions - 1}")
        if not 0 <= frame.events < 1 << 32:
            raise ValueError(f"a frame cannot hold {frame.events} events")

    def _measure(self, frames: Sequence[Outgoing], outcomes: Sequence[Appended | NotAppended]) -> None:
        taken = [frame for frame, outcome in zip(frames, outcomes, strict=True) if isinstance(outcome, Appended)]
        self._appended_records.inc(len(taken))
        self._appended_bytes.inc(sum(len(frame.payload) for frame in taken))
        self._refused_records.inc(len(frames) - len(taken))
