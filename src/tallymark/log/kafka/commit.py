"""One group commit on its way: its frames, and what the brokers have said of each."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError

from tallymark.log.kafka.client import describe, is_gone
from tallymark.log.protocol import Appended, NotAppended, Outgoing


class Commit:
    """A frame counts as appended by the brokers' acknowledgement alone: not by being sent, nor by its silence."""

    def __init__(self, frames: Sequence[Outgoing]) -> None:
        self._frames = frames
        self._outcomes: list[Appended | NotAppended | None] = [None] * len(frames)
        self._refused: set[int] = set()
        self._troubles: dict[int, KafkaError] = {}
        self._stopped_by: KafkaError | None = None
        self.waiting = len(frames)
        self.fatal = False
        self.gone = False

    def reporter(self, place: int) -> Any:
        def report(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._settle(place, Appended(message.partition(), message.offset(), message.timestamp()[1]))
                return
            self.fatal |= bool(error.fatal())
            self.gone |= is_gone(error)
            if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
                self._settle(place, None)
            else:
                self._troubles[self._frames[place].partition] = error
                self.fail(place, f"Kafka: {describe(error)}")

        return report

    def fail(self, place: int, reason: str) -> None:
        self._settle(place, NotAppended(self._frames[place].partition, reason))

    def refuse(self, place: int, reason: str) -> None:
        """The frame's own fault, which says nothing of the brokers."""
        self._refused.add(place)
        self.fail(place, reason)

    def stop(self, error: KafkaError) -> None:
        """The producer itself failed, and with it all that was not answered for."""
        self._stopped_by = error

    def _settle(self, place: int, outcome: Appended | NotAppended | None) -> None:
        self.waiting -= 1
        self._outcomes[place] = outcome

    def wait(self, producer: Any, timeout_s: float) -> None:
        """Until all frames are answered for, or this long."""
        end = time.monotonic() + timeout_s
        while self.waiting and (left := end - time.monotonic()) > 0:
            producer.poll(left)

    def outcomes(self, late: str) -> list[Appended | NotAppended]:
        """What was purged or never answered for is not appended."""
        return [
            NotAppended(frame.partition, self._reason(frame.partition, late)) if outcome is None else outcome
            for frame, outcome in zip(self._frames, self._outcomes, strict=True)
        ]

    def failing(self, late: str) -> dict[int, str]:
        """The partitions that did not take all they should have, and why."""
        return {
            outcome.partition: outcome.reason
            for place, outcome in enumerate(self.outcomes(late))
            if isinstance(outcome, NotAppended) and place not in self._refused
        }

    def _reason(self, partition: int, late: str) -> str:
        error = self._troubles.get(partition, self._stopped_by)
        return f"Kafka: {late if error is None else describe(error)}"
