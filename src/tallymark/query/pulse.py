"""The pulse: events accepted and applied in each of the last seconds, so that a chart is there when a page opens."""

import logging
import threading
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tallymark.query.account import intake
from tallymark.query.sources import Sources
from tallymark.store.model import Ledger

KEEP = 121
INTERVAL_S = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beat:
    """The running totals at one moment."""

    at_ms: int
    accepted: int
    applied: int


class Pulse:
    """Takes a reading a second: one small query, nothing that grows."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._beats: deque[Beat] = deque(maxlen=KEEP)
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="pulse", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def take(self) -> None:
        with self._sources.store.snapshot() as snapshot:
            ledger, applied = sum(snapshot.ledger().values(), Ledger()), snapshot.applied()
        accepted = intake(ledger, applied, self._sources.events).accepted
        if accepted is not None:  # else nobody can tell now, and the chart has a gap
            self._beats.append(Beat(self._sources.clock_ms(), accepted, ledger.accepted))

    def recent(self) -> list[dict[str, Any]]:
        """Rates between readings, oldest first."""
        beats = list(self._beats)
        rates = []
        for before, after in pairwise(beats):
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
            except Exception as error:  # the store may be away for a moment; the chart has a gap then
                logger.debug("no reading: %s", error)
