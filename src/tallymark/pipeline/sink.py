"""The other seam to Spark: a micro-batch's results become one transaction of the store."""

import pickle
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tallymark import telemetry
from tallymark.store.model import StretchResult
from tallymark.store.protocol import Sink

if TYPE_CHECKING:
    from tallymark.pipeline.source import Task

BATCHES = telemetry.counter("tallymark_pipeline_batches_total", "micro-batches applied")
EVENTS = telemetry.counter("tallymark_pipeline_events_total", "events by what became of them", ("outcome",))
APPLY_SECONDS = telemetry.histogram("tallymark_pipeline_apply_seconds", "time of the store's transaction")
OUTCOMES = ("counted", "duplicate", "dead", "aside", "unmatched")
for _outcome in OUTCOMES:
    EVENTS.labels(_outcome)


class BatchSink:
    """`foreachBatch`: it raises when the store does, since a batch function that returns is committed."""

    def __init__(
        self,
        store: Sink,
        *,
        count: "Callable[[Sequence[Task]], list[bytes]] | None" = None,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """With `count` the batch holds tasks that are still to be counted; else their results."""
        self._store = store
        self._count = count
        self._clock_ms = clock_ms
        self.failure: Exception | None = None

    def __call__(self, batch: Any, batch_id: int) -> None:
        """One action a batch: a second one would count every stretch again."""
        rows: list[bytes] = batch.toArrow()["result"].to_pylist()
        if self._count is not None:
            rows = self._count([pickle.loads(row) for row in rows]) if rows else []
        results = decode_results(rows)
        try:
            self.apply(results)
        except Exception as error:
            self.failure = error
            raise

    def apply(self, results: list[StretchResult]) -> None:
        """Apply what is new, and state it."""
        if not results:
            return
        with APPLY_SECONDS.time():
            applied = self._store.apply(results, now_ms=self._clock_ms())
        BATCHES.inc()
        for result in applied:
            for outcome in OUTCOMES:
                EVENTS.labels(outcome).inc(getattr(result.ledger, outcome))


def decode_results(rows: Sequence[bytes]) -> list[StretchResult]:
    return [msgspec.msgpack.decode(row, type=StretchResult) for row in rows]
