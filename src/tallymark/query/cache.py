"""Rows that the store gave for a question, kept for as long as no batch has been applied since."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence

import polars as pl

from tallymark import telemetry
from tallymark.store.model import Lag, Ledger, RegisteredMeter
from tallymark.store.protocol import Snapshot

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


class Remembering:
    """A snapshot whose reads go through the cache."""

    def __init__(self, snapshot: Snapshot, cache: RowCache) -> None:
        self._snapshot = snapshot
        self._cache = cache

    @property
    def journal_end(self) -> int:
        return self._snapshot.journal_end

    def read(
        self,
        meter: RegisteredMeter,
        *,
        where: Mapping[str, Sequence[str]],
        by: Sequence[str],
        start_s: int | None,
        end_s: int | None,
        step_s: int | None,
        most_rows: int | None = None,
    ) -> pl.DataFrame:
        filters = tuple((label, tuple(wanted)) for label, wanted in where.items())
        return self._cache.read(
            (meter.meter_id, filters, tuple(by), start_s, end_s, step_s, most_rows),
            applied=self.journal_end,
            read=lambda: self._snapshot.read(
                meter, where=where, by=by, start_s=start_s, end_s=end_s, step_s=step_s, most_rows=most_rows
            ),
        )

    def ledger(self) -> dict[int, Ledger]:
        return self._snapshot.ledger()

    def applied(self) -> dict[int, int]:
        return self._snapshot.applied()

    def lag(self, *, since_ms: int) -> Lag | None:
        return self._snapshot.lag(since_ms=since_ms)
