"""The way into the store: a batch's results become one transaction."""

import time
from collections.abc import Callable, Sequence

import msgspec

from tallymark import telemetry
from tallymark.ledger import OUTCOMES
from tallymark.store.format import VERSION
from tallymark.store.model import StretchResult
from tallymark.store.protocol import Sink, StoreUnreachable

BATCHES = telemetry.counter("tallymark_pipeline_batches_total", "micro-batches applied")
EVENTS = telemetry.counter("tallymark_pipeline_events_total", "events by what became of them", ("outcome",))
APPLY_SECONDS = telemetry.histogram("tallymark_pipeline_apply_seconds", "time of the store's transaction")
MISSED = telemetry.counter(
    "tallymark_pipeline_missed_total", "events that a broken meter did not look at, once for each such meter"
)
_OUTCOMES = {term.name: EVENTS.labels(term.name) for term in OUTCOMES}


class BatchSink:
    """Takes the results of a batch; it raises when the store does, so that the batch is counted again."""

    def __init__(self, sink: Sink, *, clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._sink = sink
        self._clock_ms = clock_ms
        self.failure: Exception | None = None
        """the store's, not the tasks'"""

    def __call__(self, results: list[StretchResult]) -> None:
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
            applied = self._sink.apply(results, now_ms=self._clock_ms())
        BATCHES.inc()
        for result in applied:
            for name, events in _OUTCOMES.items():
                events.inc(getattr(result.ledger, name))
            MISSED.inc(sum(result.missed.values()))


def decode_results(rows: Sequence[bytes]) -> list[StretchResult]:
    """Raises StoreUnreachable for those of another version: they must be counted again, and no record is to blame."""
    results = [msgspec.msgpack.decode(row, type=StretchResult) for row in rows]
    if others := {result.format for result in results} - {VERSION}:
        raise StoreUnreachable(
            f"an executor runs another version of Tallymark: its results have format {min(others)}, not {VERSION};"
            " install the driver's version on every worker, then start its executors again"
        )
    return results
