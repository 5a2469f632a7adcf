"""Rows that the store gave for a question, kept for as long as no batch has been applied since."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import polars as pl

from tallymark import telemetry

# About 30 MB at the widest; a dashboard asks some ten questions over and over.
MOST_ROWS = 400_000


class RowCache:
    """By position, not by time: a remembered answer is as fresh as a new one. Folding and rolling change no answer."""

    def __init__(self, *, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._lock = threading.Lock()
        self._applied = -1
        self._rows: OrderedDict[Hashable, pl.DataFrame] = OrderedDict()
        self._held = 0
        self._hits, self._misses = (telemetry.QUERY_CACHE.labels(outcome) for outcome in ("hit", "miss"))

    def read(self, question: Hashable, *, applied: int, read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """What `read` gives, or gave, for a snapshot that has the batches up to `applied`."""
        with self._lock:
            if applied > self._applied:
                self._applied, self._held = applied, 0
                self._rows.clear()
            known = self._rows.get(question) if applied == self._applied else None
            if known is not None:
                self._rows.move_to_end(question)
                self._hits.inc()
                return known
        self._misses.inc()
        rows = read()
        with self._lock:
            if applied == self._applied and question not in self._rows:
                self._rows[question] = rows
                self._held += max(1, rows.height)
                while self._held > self._most_rows:
                    self._held -= max(1, self._rows.popitem(last=False)[1].height)
        return rows
