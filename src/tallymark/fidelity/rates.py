"""Rates: events accepted and applied in each of the last two minutes' seconds, so that a page opens with a chart."""

import logging
import threading
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tallymark.fidelity.account import intake
from tallymark.fidelity.evidence import Evidence
from tallymark.ledger import Ledger

KEPT_READINGS = 121
INTERVAL_S = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """The running totals at one moment."""

    at_ms: int
    accepted: int
    applied: int


class Rates:
    """Takes a reading a second: one small query, bounded memory."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._readings: deque[Reading] = deque(maxlen=KEPT_READINGS)
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="rates", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def take(self) -> None:
        with self._evidence.store.snapshots.take() as snapshot:
            ledger, applied = sum(snapshot.ledger().values(), Ledger()), snapshot.applied()
        accepted = intake(ledger, applied, self._evidence.events).accepted
        if accepted is not None:  # else it is unknown, and the chart has a gap
            self._readings.append(Reading(self._evidence.clock_ms(), accepted, ledger.accepted))

    def recent(self) -> list[dict[str, Any]]:
        """Events per second between readings, oldest first."""
        rates = []
        for before, after in pairwise(list(self._readings)):
            seconds = (after.at_ms - before.at_ms) / 1000
            if seconds > 0:
                accepted, applied = after.accepted - before.accepted, after.applied - before.applied
                rates.append(
                    {
                        "at_ms": after.at_ms,
                        "accepted": round(accepted / seconds, 1),
                        "applied": round(applied / seconds, 1),
                    }
                )
        return rates

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            try:
                self.take()
            except Exception as error:  # the store may be away for a moment; the chart has a gap then  # noqa: BLE001
                logger.debug("no reading: %s", error)
