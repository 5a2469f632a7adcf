"""Counting snapshots of many named numbers, without Spark: frames of the built-in meter `metrics`, one task's work.

CPU of this process for decoding, finding duplicates and aggregating. What Spark adds is a price of each batch, which
the benchmark *pipeline* tells.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.figure import Conditions, Figure
from tallymark.events import columns, frame
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.validation import validate
from tallymark.log.protocol import Record
from tallymark.meters.model import EVENTS, METRICS, QUERIED
from tallymark.pipeline.counting.claims import Claims, Ids
from tallymark.pipeline.counting.count import count
from tallymark.store.model import RegisteredMeter
from tallymark.store.selections import Kept

SERVERS = 20
METRICS_EACH = 2_000
KEPT = 2
NOW_MS = 1_794_744_000_000


class NoHistory:
    """The log before the stretch: nothing."""

    identity, first, slack_ms, has_wall_times = "values", 0, 0, False

    def append_ms(self, offset: int) -> int | None:
        return NOW_MS

    def offset_at(self, append_ms: int) -> int:
        return 0

    def ids(self, start: int, end: int) -> Iterator[Ids]:
        return iter(())


def measure(conditions: Conditions) -> Iterator[Figure]:
    seconds, runs = conditions.choose(full=60, quick=5), conditions.choose(full=5, quick=1)
    records = list(_records(seconds))
    values = SERVERS * METRICS_EACH * seconds
    events, everything = RegisteredMeter(1, 1, EVENTS, 0), RegisteredMeter(2, 1, METRICS, 0)
    kept = Kept({f"metric.number.{metric}": 0 for metric in range(KEPT)})
    queried = replace(everything, meter=replace(METRICS, keep=QUERIED), kept=kept)
    best, best_queried = float("inf"), float("inf")
    for _ in range(runs):  # in turns, so that both meet the same machine
        best = min(best, _count(conditions, records, [events, everything], stored=values))
        stored = values // METRICS_EACH * KEPT
        best_queried = min(best_queried, _count(conditions, records, [events, queried], stored=stored))
    size = sum(len(record.payload) for record in records)
    yield Figure("values", f"{METRICS_EACH:,} values an event, values per CPU-second", values / best, "")
    yield Figure("values", f"the same with keep: queried, {KEPT} of them stored", values / best_queried, "")
    yield Figure("values", "bytes of a value in the log", size / values, "bytes")


def _count(
    conditions: Conditions, records: Sequence[Record], meters: Sequence[RegisteredMeter], *, stored: int
) -> float:
    """CPU seconds."""
    folder = Path(tempfile.mkdtemp(prefix="claims-", dir=conditions.folder))
    begun = time.process_time()
    with Claims(folder, 0, start=0, end=len(records), horizon_ms=600_000, history=NoHistory()) as claims:
        counted = count(records, claims=claims, meters=meters)
    spent = time.process_time() - begun
    found = int(counted.deltas.filter(counted.deltas["meter"] == 2)["n"].sum())
    assert found == stored, f"{found:,} of {stored:,} values counted"
    return spent


def _records(seconds: int) -> Iterator[Record]:
    offset = 0
    clocks = Clocks(accept_past_ms=10**9, accept_future_ms=10**9, tolerance_ms=5_000)
    for second in range(seconds):
        time_ms = NOW_MS + second * 1000
        events = [
            {
                "event": "metrics",
                "id": f"server-{server}/{time_ms}",
                "time": time_ms,
                "props": {"server": f"server-{server}"},
                "values": {
                    f"metric.number.{metric}": (metric * 7919 + second * 104_729 + server) % 10_007 / 7
                    for metric in range(METRICS_EACH)
                },
            }
            for server in range(SERVERS)
        ]
        accepted = validate(Delivery(json.dumps(events).encode(), time_ms), clocks, max_events=SERVERS)
        for held, payload in frame.frames(columns.batch([accepted])):
            yield Record(0, offset, time_ms, held, 1, offset, payload)
            offset += 1
