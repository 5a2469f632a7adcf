"""One task of Spark: a stretch is counted, and its result becomes one row."""

import gc
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tallymark.events.tenants import MAIN
from tallymark.pipeline.counting.claims import Claims
from tallymark.pipeline.counting.count import Counted, count, count_without_those_that_fail
from tallymark.pipeline.counting.history import LogHistory
from tallymark.pipeline.counting.plan import Task, open_deposits, open_log
from tallymark.store import deltas
from tallymark.store.format import VERSION
from tallymark.store.model import RegisteredMeter, StretchResult

CLAIMS = "TALLYMARK_PIPELINE_CLAIMS"
SETTLED_AFTER = 3
_begun = itertools.count(1)


def _settle() -> None:
    """Once a worker has all its modules: take them out of garbage collection.

    PySpark collects after every task. Over everything that Polars, pyarrow and numpy brought that was two thirds of the
    workers' time under small batches: 85-121 ms a batch before, 29-31 ms after.
    """
    if next(_begun) == SETTLED_AFTER:
        gc.collect()
        gc.freeze()


def count_task(task: Task, *, attempt: int = 0) -> bytes:
    """Runs in a Python worker of Spark: the stretch's result, encoded.

    A meter is blamed only when a second attempt, by another process, fails too.
    """
    _settle()
    stretch, plan = task.stretch, task.plan
    log = open_log(plan.log)
    history = LogHistory(log, stretch.partition, skip=task.skip)

    def count_with(meters: Sequence[RegisteredMeter], broken: Sequence[RegisteredMeter]) -> Counted:
        claims = Claims(
            # Each machine may have its own place for them.
            Path(os.environ.get(CLAIMS) or plan.claims_folder),
            stretch.partition,
            start=stretch.start,
            end=stretch.end,
            horizon_ms=plan.horizon_ms,
            history=history,
        )
        with claims:
            records = log.read(stretch.partition, stretch.start, stretch.end)
            return count(records, claims=claims, meters=meters, broken=broken)

    if attempt == 0:
        counted = count_with(task.live.meters, task.live.broken)
    else:
        counted = count_without_those_that_fail(count_with, meters=task.live.meters, broken=task.live.broken)
    result = StretchResult(
        stretch=stretch,
        log_identity=log.identity,
        meters_revision=task.live.revision,
        meter_ids=tuple(meter.meter_id for meter in task.live.meters),
        deltas=deltas.encode(counted.deltas) if counted.deltas.height else b"",
        ledger=counted.ledger,
        received=counted.received,
        dead=counted.dead,
        broken=counted.broken,
        missed=counted.missed,
        tenants={} if counted.ledgers.keys() <= {MAIN} else counted.ledgers,
        new_tenants=counted.new_tenants,
        format=VERSION,
    )
    # With new tenants it is counted again: nobody will name a deposit.
    kept = result if result.new_tenants else open_deposits(plan.store).deposit(result)
    return msgspec.msgpack.encode(kept)
