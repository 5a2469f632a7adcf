"""Where the partitions of a topic begin and end: one request to each leader, for all partitions at once."""

import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from tallymark.log.kafka.client import PATIENCE_S, is_away, is_gone, translated
from tallymark.log.protocol import LogUnreachable

# Kafka's own marks in a question for the offset at a time.
_END, _FIRST = -1, -2
_POLL_S = 0.05
# A topic that was just made is known to the other brokers a moment later.
_SEEN_WITHIN_S = 3.0


class Offsets:
    """Asks through a consumer, which need not be assigned anything."""

    def __init__(self, consumer: Any, *, brokers: Sequence[str], topic: str, partitions: int) -> None:
        self._consumer = consumer
        self._brokers, self._topic = brokers, topic
        self._all = range(partitions)

    def ends(self) -> dict[int, int]:
        """One past the last record that all copies in sync have."""
        return self._ask((partition, _END) for partition in self._all)

    def firsts(self) -> dict[int, int]:
        return self._ask((partition, _FIRST) for partition in self._all)

    def at(self, partition: int, append_ms: int) -> int | None:
        """The first offset appended at or after this time; None if none was."""
        found = self._ask([(partition, max(0, append_ms))])[partition]
        return found if found >= 0 else None

    def _ask(self, questions: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Again and again while leaders change, but not for longer than `PATIENCE_S`."""
        asked = list(questions)
        end = time.monotonic() + PATIENCE_S
        trouble: Any = None
        what = f"offsets of {self._topic}"
        while (left := end - time.monotonic()) > 0:
            try:
                answers = self._consumer.offsets_for_times(
                    [TopicPartition(self._topic, partition, mark) for partition, mark in asked],
                    timeout=min(left, PATIENCE_S / 4),
                )
            except KafkaException as error:
                trouble = error
            else:
                trouble = next((answer.error for answer in answers if answer.error), None)
                if trouble is None:
                    return {answer.partition: answer.offset for answer in answers}
            is_new = is_gone(trouble) and end - time.monotonic() > PATIENCE_S - _SEEN_WITHIN_S
            if not is_away(trouble) and not is_new:
                raise translated(trouble, what, brokers=self._brokers)
            self._find_leaders()
        if trouble is not None:
            raise translated(trouble, what, brokers=self._brokers)
        raise LogUnreachable(f"{what}: Kafka at {', '.join(self._brokers)} did not answer within {PATIENCE_S:g} s")

    def _find_leaders(self) -> None:
        """Ask the brokers that do answer: a leader that is paused keeps its connection, and is asked for ever."""
        with contextlib.suppress(KafkaException):
            self._consumer.list_topics(self._topic, timeout=PATIENCE_S / 4)
        time.sleep(_POLL_S)
