"""Evaluation of saved queries, in a thread of its own: it neither waits for a long fold nor delays one."""

import logging
import time
from collections.abc import Callable, Mapping

from tallymark import telemetry
from tallymark.evaluation.evaluator import Evaluator
from tallymark.role.loop import Wait
from tallymark.role.outage import Outage
from tallymark.store.protocol import LeaseLost, SnapshotOutdated, StoreError

# Between two rounds: while nothing is due, once a window is over and only waits to be counted, and with more to do.
IDLE_S, DUE_S, MORE_S = 1.0, 0.2, 0.02
# After failures in a row.
LONGEST_WAIT_S = 30.0

logger = logging.getLogger(__name__)


class Evaluation:
    """Runs rounds of the evaluator over the shares that are held."""

    def __init__(
        self,
        evaluator: Evaluator,
        held: Callable[[], Mapping[int, int]],
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._evaluator, self._held, self._clock_ms = evaluator, held, clock_ms
        self._outage = Outage(
            logger,
            "saved queries could not be evaluated",
            recovered="saved queries are evaluated again",
            expected=(StoreError, OSError),
        )
        self._failures = 0

    @property
    def is_failing(self) -> bool:
        return self._outage.is_on

    def run(self, wait: Wait) -> None:
        pause_s = 0.0
        while not wait(pause_s):
            pause_s = self.round()

    def round(self) -> float:
        """How long to wait for the next one."""
        more, is_lost = False, False
        with self._outage.tolerated(), telemetry.KEEPER_EVALUATION_SECONDS.time():
            try:
                more = self._evaluator.round(self._held())
            except SnapshotOutdated:
                more = True  # the store has moved on meanwhile: from a new moment
            except LeaseLost:
                # Another keeper has one of the shares: the others go on, from what the store says of them.
                is_lost = True
        if self._outage.is_on:
            telemetry.KEEPER_EVALUATION_FAILURES.inc()
            self._failures += 1
            return min(LONGEST_WAIT_S, 0.5 * 2.0 ** min(self._failures, 10))
        self._failures = 0
        if is_lost:
            return DUE_S
        if more:
            return MORE_S
        due_ms = self._evaluator.next_due_ms()
        if due_ms is None:
            return IDLE_S
        return min(IDLE_S, max(DUE_S, (due_ms - self._clock_ms()) / 1000))
