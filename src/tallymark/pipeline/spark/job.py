"""The running job: a streaming query from the log into the store, restarted when it fails, until asked to stop."""

import contextlib
import dataclasses
import logging
import re
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tallymark import log as logs
from tallymark import store as stores
from tallymark.log.protocol import LogError
from tallymark.pipeline import beginning
from tallymark.pipeline.counting.plan import Plan, next_offsets, tasks, tasks_until
from tallymark.pipeline.counting.salvage import is_away, salvage
from tallymark.pipeline.spark.placement import Placement
from tallymark.pipeline.spark.session import is_cluster
from tallymark.pipeline.spark.sink import BatchSink, decode_results
from tallymark.pipeline.spark.source import NAME, PLAN, encode_plan, planned_until
from tallymark.pipeline.spark.watch import Watch
from tallymark.settings import Settings
from tallymark.store.model import Stretch, StretchResult
from tallymark.store.protocol import LeaseLost, PositionConflict, Store, StoreError, WrongLog

logger = logging.getLogger("tallymark.pipeline")

BEAT_S = 2.0
LEASES_WITHOUT_EXECUTORS = 6
CAUSE = re.compile(r"(Caused by: )?[\w.]*(Error|Exception|Damaged|Lost|Conflict)\b:? ")


class Job:
    """`prepare()` until the tasks have their state, then `run()` until `stopping` is set."""

    def __init__(
        self,
        settings: Settings,
        session: SparkSession,
        store: Store,
        stopping: threading.Event,
        *,
        name: str = "pipeline",
    ) -> None:
        self._settings = settings
        self._session = session
        self._store = store
        self._stopping = stopping
        self._name = name
        self._placement = Placement(session.sparkContext) if is_cluster(settings) else None
        self._sink = BatchSink(store)
        self._shortages: Counter[tuple[int, int]] = Counter()
        self._log = logs.open_reader(settings, "events")
        self.plan = Plan(
            log=logs.address(settings, "events"),
            store=stores.address(settings),
            claims_folder=str(settings.claims_folder.absolute()),
            horizon_ms=settings.pipeline.horizon_s * 1000,
            max_events=settings.pipeline.max_batch_events,
            max_bytes=settings.pipeline.max_batch_bytes,
            only_bounds=self._placement is not None,
        )

    def prepare(self, *, skip_lost: bool = False) -> None:
        """Check the positions against the log, then let every task load its claims."""
        beginning.check(self._log, self._store, skip_lost=skip_lost)
        with self._watched():
            self.process([Stretch(partition, at, at) for partition, at in next_offsets(self.plan).items()])

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Keep the query running; after a failure find what failed, or wait and try again.

        `ready` is called once the first query has looked for data.
        """
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        failures = 0
        with self._watched():
            while not self._stopping.is_set():
                started = time.monotonic()
                try:
                    self._stream(ready)
                except StreamingQueryException as error:
                    failures = 0 if time.monotonic() - started > 60 else failures + 1
                    logger.warning("the query stopped: %s", first_line(error))
                    self._recover(failures, error)

    def _watched(self) -> contextlib.AbstractContextManager[object]:
        """On a cluster: ended with an error when there is nobody to count."""
        if self._placement is None:
            return contextlib.nullcontext()
        return Watch(
            self._placement.executors,
            self._session.sparkContext.cancelAllJobs,
            stopping=self._stopping,
            patience_s=LEASES_WITHOUT_EXECUTORS * self._settings.pipeline.lease_s,
        )

    def process(self, stretches: Sequence[Stretch]) -> None:
        """Count and apply exactly these stretches, outside the stream."""
        results = self._count(stretches)
        self._sink.apply([result for result in results if result.stretch.start < result.stretch.end])

    def count(self, stretch: Stretch, *, only: Collection[int] | None = None) -> StretchResult:
        """Count one stretch, perhaps with some of the meters only, and apply nothing."""
        (result,) = self._count([stretch], only=only)
        return result

    def apply(self, result: StretchResult) -> None:
        self._sink.apply([result])

    def live(self) -> list[int]:
        return [meter.meter_id for meter in self._store.live_meters().meters]

    def _count(self, stretches: Sequence[Stretch], *, only: Collection[int] | None = None) -> list[StretchResult]:
        plan = dataclasses.replace(
            self.plan, stretches=tuple(stretches), only_meters=None if only is None else frozenset(only)
        )
        if self._placement is not None:
            return decode_results(self._placement.count(tasks(plan, stretches)))
        batch = self._session.read.format(NAME).option(PLAN, encode_plan(plan)).load()
        return decode_results(batch.toArrow()["result"].to_pylist())

    @property
    def _checkpoints(self) -> Path:
        return self._settings.scratch_folder / "checkpoints"

    def _counted(self, batch: Any, batch_id: int, checkpoint: Path) -> list[bytes]:
        """The rows of a batch of the stream. One action a batch: a second one would count every stretch again."""
        if self._placement is None:
            rows: list[bytes] = batch.toArrow()["result"].to_pylist()
            return rows
        return self._placement.count(tasks_until(self.plan, planned_until(checkpoint, batch_id)))

    def _stream(self, ready: Callable[[], None]) -> None:
        # A new, empty folder every time: with an old one Spark replays its own planned range and never asks the store.
        checkpoint = self._checkpoints / uuid.uuid4().hex
        self._sink.failure = None
        said = False
        query = (
            self._session.readStream.format(NAME)
            .option(PLAN, encode_plan(self.plan))
            .load()
            .writeStream.foreachBatch(lambda batch, batch_id: self._sink(self._counted(batch, batch_id, checkpoint)))
            .option("checkpointLocation", str(checkpoint.absolute()))
            .trigger(processingTime=f"{self._settings.pipeline.trigger_ms} milliseconds")
            .start()
        )
        try:
            while not self._stopping.is_set():
                if query.awaitTermination(0.2):
                    return
                if not said and (query.status["message"].startswith("Waiting") or query.lastProgress):
                    said = True
                    ready()
                self._beat()
        finally:
            with contextlib.suppress(Exception):
                query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _recover(self, failures: int, stopped: Exception) -> None:
        failure = self._sink.failure
        if isinstance(failure, WrongLog | LeaseLost):
            raise failure
        try:
            beginning.check(self._log, self._store)
            if isinstance(failure, PositionConflict):
                logger.warning("another driver is writing, or wrote: %s; going on from the store's positions", failure)
            elif failure is None and failures > 0 and not is_away(stopped):
                self._salvage_all()
                return
        except (WrongLog, LeaseLost):
            raise
        except Exception as error:
            logger.warning("could not find what fails: %s; trying again", first_line(error))
        self._stopping.wait(min(10.0, 0.2 * 2**failures))

    def _salvage_all(self) -> None:
        """The tasks fail, not the store: find the records that make them fail."""
        for partition, start in next_offsets(self.plan).items():
            end = self._log.bounded_end(
                partition, start, max_events=self.plan.max_events, max_bytes=self.plan.max_bytes
            )
            buried = salvage(Stretch(partition, start, end), counting=self, log=self._log, shortages=self._shortages)
            if buried:
                logger.error("partition %d: %d records buried as dead letters: %s", partition, len(buried), buried)

    def _beat(self) -> None:
        now = time.time()
        if now - getattr(self, "_last_beat", 0.0) >= BEAT_S:
            self._last_beat = now
            try:
                self._store.beat(self._name, {"next": next_offsets(self.plan)}, now_ms=int(now * 1000))
            except (LogError, StoreError) as error:
                # What is wrong with them is the stream's to find; a beat that is left out harms nobody.
                logger.warning("cannot say that the pipeline is alive: %s", error)


def first_line(error: Exception) -> str:
    """The line of a long Spark error that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if CAUSE.match(line) and "terminated with exception" not in line]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:500]
