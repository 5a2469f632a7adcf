"""What the agent could not take: counted by reason, each reason logged once with an example."""

import logging
import threading
from collections import Counter

logger = logging.getLogger(__name__)

REASONS = {
    "malformed": "not a line of StatsD or Prometheus",
    "name_too_long": "a name over 128 characters",
    "bad_name": "a name that is not UTF-8 or contains U+0000",
    "name_taken": "a name that another source, or the agent itself, has in the same event",
    "not_finite": "a number that is infinite or not a number",
    "too_many": "more metrics at once than agent.max_metrics",
}
_SHOWN_CHARS = 160


class Refusals:
    """Counts from any thread; `take` gives what was refused since the last time."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    def count(self, reason: str, example: object) -> None:
        with self._lock:
            self.totals[reason] += 1
            is_first = self.totals[reason] == 1
        if is_first:
            logger.warning("refused: %s, for example %s (logged once)", REASONS[reason], repr(example)[:_SHOWN_CHARS])

    def take(self) -> dict[str, int]:
        with self._lock:
            since = self.totals - self._taken
            self._taken = self.totals.copy()
        return dict(since)
