"""Partitions that take no records now: when each is tried again, and for how long, so that the others go on."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tallymark.log.kafka.client import logger

# After a commit that failed in a partition: nothing is tried there for a moment, then each try gets this long, then
# twice, then four times.
PAUSE_S = 0.5
PROBE_S = 1.0
# While other partitions work, a try keeps their next commit waiting: it gets no more than the first time, and is made
# after 1, 2, 4, then every 8 s.
LONGEST_PAUSE_S = 8.0


@dataclass(frozen=True, slots=True)
class _Failure:
    times: int
    at: float
    why: str


class FailingPartitions:
    def __init__(self, topic: str, partitions: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._topic, self._partitions, self._clock = topic, partitions, clock
        self._failures: dict[int, _Failure] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def why(self, partition: int) -> str:
        """Empty if it works."""
        failure = self._failures.get(partition)
        return failure.why if failure else ""

    def rests(self, partition: int) -> bool:
        """Whether it is too early for another try."""
        failure = self._failures[partition]
        pause_s = PAUSE_S
        if self._others_work():
            pause_s = min(LONGEST_PAUSE_S, PAUSE_S * 2.0 ** min(failure.times, 10))
        return self._clock() - failure.at < pause_s

    def probe_s(self, partitions: Iterable[int]) -> float:
        """How long a try of these may take."""
        if self._others_work():
            return PROBE_S
        fewest = min((self._failures[partition].times for partition in partitions), default=1)
        return PROBE_S * 2.0 ** min(fewest - 1, 2)

    def learn(self, taken: Iterable[int], failing: Mapping[int, str]) -> None:
        """From a commit: partitions that took all they should have, and those that did not, with the reason."""
        if back := sorted(self._failures.keys() & set(taken) - failing.keys()):
            logger.warning("topic %s takes records again in partitions %s", self._topic, back)
        if new := sorted(failing.keys() - self._failures.keys()):
            logger.warning("topic %s takes no records now in partitions %s: %s", self._topic, new, failing[new[0]])
        for partition in back:
            del self._failures[partition]
        for partition, why in failing.items():
            before = self._failures.get(partition)
            self._failures[partition] = _Failure(before.times + 1 if before else 1, self._clock(), why)

    def _others_work(self) -> bool:
        return len(self._failures) < self._partitions
