"""Where the partitions of a topic begin and end: one request to each leader, for all partitions at once."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from tallymark.log.kafka.client import PATIENCE_S, is_away, is_gone, logger, translated
from tallymark.log.protocol import LogUnreachable

# Kafka's own marks in a question for the offset at a time.
_END, _FIRST = -1, -2
_POLL_S = 0.05
# A topic that was just made is known to the other brokers a moment later.
_SEEN_WITHIN_S = 3.0
# How often it is looked whether partitions without a leader have one again.
_LOOK_S = 2.0


class Offsets:
    """Asks through a consumer, which need not be assigned anything.

    A partition without a leader holds up the others only until it is known to have none. From then on its last known
    offsets are answered, which are still true: the log only grows, and without a leader it does not even do that.
    """

    def __init__(self, consumer: Any, *, brokers: Sequence[str], topic: str, partitions: int) -> None:
        self._consumer = consumer
        self._brokers, self._topic = brokers, topic
        self._all = range(partitions)
        self._known: dict[tuple[int, int], int] = {}
        self._looked = 0.0
        self.leaderless: frozenset[int] = frozenset()
        """partitions of which nothing new is known now"""

    def ends(self) -> dict[int, int]:
        """One past the last record that all copies in sync have."""
        return self._ask_all(_END)

    def firsts(self) -> dict[int, int]:
        return self._ask_all(_FIRST)

    def at(self, partition: int, append_ms: int) -> int | None:
        """The first offset appended at or after this time; None if none was."""
        found = self._ask({partition: max(0, append_ms)})[partition]
        return found if found >= 0 else None

    def _ask_all(self, mark: int) -> dict[int, int]:
        if self.leaderless and time.monotonic() - self._looked > _LOOK_S:
            self._note(self.leaderless & self._without_leader())
        silent = {partition for partition in self.leaderless if (partition, mark) in self._known}
        answers = self._ask({partition: mark for partition in self._all if partition not in silent})
        self._known |= {(partition, mark): offset for partition, offset in answers.items()}
        return {partition: self._known[partition, mark] for partition in self._all}

    def _ask(self, questions: dict[int, int]) -> dict[int, int]:
        """Again and again while leaders change, but not for longer than `PATIENCE_S`; without the leaderless."""
        end = time.monotonic() + PATIENCE_S
        trouble: Any = None
        what = f"offsets of {self._topic}"
        while (left := end - time.monotonic()) > 0:
            try:
                answers = self._consumer.offsets_for_times(
                    [TopicPartition(self._topic, partition, mark) for partition, mark in questions.items()],
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
            questions = self._with_leader(questions)
            time.sleep(_POLL_S)
        if trouble is not None:
            raise translated(trouble, what, brokers=self._brokers)
        raise LogUnreachable(f"{what}: Kafka at {', '.join(self._brokers)} did not answer within {PATIENCE_S:g} s")

    def _with_leader(self, questions: dict[int, int]) -> dict[int, int]:
        """The questions but for those to nobody whose answer is known; all of them if that would leave none."""
        known = {partition for partition, mark in questions.items() if (partition, mark) in self._known}
        silent = known & self._without_leader()
        if not silent or len(silent) == len(questions):
            return questions
        self._note(self.leaderless | silent)
        return {partition: mark for partition, mark in questions.items() if partition not in silent}

    def _without_leader(self) -> frozenset[int]:
        """Ask the brokers that do answer: a leader that is paused keeps its connection, and is asked for ever."""
        self._looked = time.monotonic()
        try:
            found = self._consumer.list_topics(self._topic, timeout=PATIENCE_S / 4).topics[self._topic].partitions
        except (KafkaException, KeyError):
            return self.leaderless
        return frozenset(partition for partition, metadata in found.items() if metadata.leader < 0)

    def _note(self, leaderless: frozenset[int]) -> None:
        if leaderless - self.leaderless:
            logger.warning("topic %s: partitions %s have no leader", self._topic, sorted(leaderless))
        if self.leaderless - leaderless:
            back = sorted(self.leaderless - leaderless)
            logger.warning("topic %s: partitions %s have a leader again", self._topic, back)
        self.leaderless = leaderless
