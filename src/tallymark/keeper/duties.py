"""Duties: what the keeper does every so often. One that fails is tried again later and holds up none of the others."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tallymark import telemetry
from tallymark.role.lease_holder import LeaseHolder
from tallymark.store.protocol import LeaseLost

logger = logging.getLogger(__name__)

# Between two runs of a duty that has more to do, the sink gets the right to write.
PAUSE_S = 0.02
LONGEST_WAIT_S = 60.0
# Failures in a row after which a person is needed.
ALARMING = 5


@dataclass(frozen=True, slots=True)
class Duty:
    name: str
    every_s: float
    work: Callable[[], bool | None]
    """does a part that takes a moment; True if there is more to do at once"""
    share: float = 1.0
    """of the keeper's time at most; a round that took long is followed by a longer rest"""
    always: bool = False
    """done also while another keeper works"""
    longest_wait_s: float = LONGEST_WAIT_S
    """after failures"""


class Rota:
    """Runs each duty when its time has come, until it is told to stop."""

    def __init__(self, *, lease: LeaseHolder | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lease = lease
        self._duties: list[Duty] = []
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._spent: dict[str, float] = {}

    def add(self, duty: Duty) -> None:
        self._duties.append(duty)
        self._due[duty.name] = self._clock()
        self._failures[duty.name] = 0
        telemetry.KEEPER_DUTY_SECONDS.labels(duty.name)
        telemetry.KEEPER_DUTY_FAILURES.labels(duty.name)

    def run(self, stopping: threading.Event) -> None:
        while not stopping.wait(max(0.0, self.next_due() - self._clock())):
            self.run_due(stopping)

    def next_due(self) -> float:
        return min(self._due.values())

    def failing(self) -> list[str]:
        """The duties whose last run failed."""
        return [name for name, failures in self._failures.items() if failures]

    def run_due(self, stopping: threading.Event | None = None) -> None:
        for duty in self._duties:
            if stopping is not None and stopping.is_set():
                return
            if self._due[duty.name] <= self._clock():
                wait_s = self._run(duty) if self._may(duty) else duty.every_s
                self._due[duty.name] = self._clock() + wait_s

    def _may(self, duty: Duty) -> bool:
        return duty.always or self._lease is None or self._lease.is_ours

    def _run(self, duty: Duty) -> float:
        """How long until it is due again."""
        begun = self._clock()
        try:
            with telemetry.KEEPER_DUTY_SECONDS.labels(duty.name).time():
                more = duty.work()
        except LeaseLost:
            assert self._lease is not None
            self._lease.lose()
            return duty.every_s
        except Exception as error:
            failures = self._failures[duty.name] = self._failures[duty.name] + 1
            telemetry.KEEPER_DUTY_FAILURES.labels(duty.name).inc()
            wait_s = min(duty.longest_wait_s, max(duty.every_s, 0.5) * 2.0 ** min(failures, 10))
            level = logging.ERROR if failures >= ALARMING else logging.WARNING
            logger.log(
                level,
                "%s failed %d times in a row, next try in %.0f s: %s",
                duty.name,
                failures,
                wait_s,
                error,
                exc_info=failures == 1,
            )
            return wait_s
        if self._failures[duty.name]:
            logger.info("%s works again after %d failures", duty.name, self._failures[duty.name])
            self._failures[duty.name] = 0
        spent = self._spent.pop(duty.name, 0.0) + self._clock() - begun
        if more:
            self._spent[duty.name] = spent
            return PAUSE_S
        return max(duty.every_s, spent / duty.share - spent)
