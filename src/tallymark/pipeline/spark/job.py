"""The running job: batch after batch from the log into the store, begun again when one fails, until asked to stop."""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from pyspark import SparkContext

from tallymark import log as logs
from tallymark import store as stores
from tallymark.pipeline import start_positions
from tallymark.pipeline.counting.plan import Plan, Task, batch_ends, next_offsets, reopen_log, tasks, tasks_until
from tallymark.pipeline.counting.salvage import Blocked, is_away, is_too_new, salvage, summary
from tallymark.pipeline.spark.context import is_cluster
from tallymark.pipeline.spark.placement import Placement
from tallymark.pipeline.spark.sink import BatchSink, decode_results
from tallymark.pipeline.spark.watch import Watch
from tallymark.role.heartbeat import Heartbeat
from tallymark.role.loop import Background
from tallymark.settings import Settings
from tallymark.store.model import Stretch, StretchResult
from tallymark.store.protocol import LeaseLost, PositionConflict, Store, StoreUnreachable, WrongLog

logger = logging.getLogger("tallymark.pipeline")

LEASES_WITHOUT_EXECUTORS = 6
LOOK_EVERY_S = 2.0
# The second plan has every tenant; the others are for a store that does not show at once what was written to it.
MOST_PLANS = 5


class Halted(BaseException):
    """A batch was cancelled because the driver stops. No `Exception`: nobody may take it for the fault of a record."""


class SparkDied(Exception):
    """Spark is gone, and with it all that could count: the role has to start again."""


class Job:
    """`prepare()` until the tasks have their state, then `run()` until `stopping` is set."""

    def __init__(
        self,
        settings: Settings,
        spark: SparkContext,
        store: Store,
        stopping: threading.Event,
        *,
        name: str = "pipeline",
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._store = store
        self._stopping = stopping
        self._name = name
        self._placement = Placement(spark, pinned=is_cluster(settings))
        self._sink = BatchSink(store.sink)
        self._shortages: Counter[tuple[int, int]] = Counter()
        self._next: dict[int, int] = {}
        self._blocked: dict[int, Blocked] = {}
        """partitions that wait for a newer version"""
        self._log = logs.open_reader(settings, "events")
        self.plan = Plan(
            log=logs.address(settings, "events"),
            store=stores.address(settings),
            claims_folder=str(settings.claims_folder.absolute()),
            horizon_ms=settings.pipeline.horizon_s * 1000,
            max_events=settings.pipeline.max_batch_events,
            max_bytes=settings.pipeline.max_batch_bytes,
        )

    def prepare(self, *, skip_lost: bool = False) -> None:
        """Check the positions against the log, then let every task load its claims."""
        start_positions.check(self._log, self._store.sink, skip_lost=skip_lost)
        with self._watched(), contextlib.suppress(Halted):
            loading = [Stretch(partition, at, at) for partition, at in next_offsets(self.plan).items()]
            try:
                self.process(loading)
            except Exception as error:
                if not is_too_new(error):
                    raise
                self._load_one_by_one(loading)

    def _load_one_by_one(self, loading: Sequence[Stretch]) -> None:
        """A partition whose claims lie in frames that are too new waits; the others count."""
        for stretch in loading:
            try:
                self.process([stretch])
            except Exception as error:
                if not is_too_new(error):
                    raise
                self._block(Blocked(stretch.partition, stretch.start, error))

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Count what comes; after a failure find what failed, or wait and try again.

        `ready` is called once the log was looked at.
        """
        failures = 0
        # Around all of it: a stop may also come while it is looked for what fails.
        with self._watched(), self._heartbeat(), contextlib.suppress(Halted):
            while not self._stopping.is_set():
                started = time.monotonic()
                try:
                    self._follow(ready)
                except Exception as error:
                    if not self._placement.is_alive():
                        raise SparkDied("Spark's JVM has died; starting again") from error
                    failures = 0 if time.monotonic() - started > 60 else failures + 1
                    logger.warning("a batch failed: %s", summary(error))
                    self._recover(failures, error)

    def _follow(self, ready: Callable[[], None]) -> None:
        """Batches from the store's positions on, each begun a trigger after the one before or when that is done."""
        every_s = self._settings.pipeline.trigger_ms / 1000
        self._sink.failure = None
        self._next = next_offsets(self.plan)
        said = False
        looked = time.monotonic()
        while not self._stopping.is_set():
            begun = time.monotonic()
            if begun - looked > LOOK_EVERY_S:
                looked = begun  # while nothing arrives, nobody else would notice
                if not self._placement.is_alive():
                    raise SparkDied("nothing answers where Spark's JVM was")
            ends = {
                partition: self._bounded(partition, end) for partition, end in batch_ends(self.plan, self._next).items()
            }
            if ends != self._next:
                self._sink(self._planned(partial(tasks_until, self.plan, ends)))
                self._next = ends
            if not said:
                said = True
                ready()
            self._stopping.wait(begun + every_s - time.monotonic())

    def _watched(self) -> Watch:
        """A stop cancels the batch under way; on a cluster, so does having nobody to count."""
        return Watch(
            self._placement.executors,
            self._spark.cancelAllJobs,
            stopping=self._stopping,
            patience_s=LEASES_WITHOUT_EXECUTORS * self._settings.pipeline.lease_s,
        )

    def process(self, stretches: Sequence[Stretch]) -> None:
        """Count and apply exactly these stretches, out of turn."""
        results = self._count(stretches)
        self._sink.apply([result for result in results if result.stretch.start < result.stretch.end])

    def count(self, stretch: Stretch, *, only: Collection[int] | None = None) -> StretchResult:
        """Count one stretch, perhaps with some of the meters only, and apply nothing."""
        (result,) = self._count([stretch], only=only)
        return result

    def apply(self, result: StretchResult) -> None:
        self._sink.apply([result])

    def live(self) -> list[int]:
        return [meter.meter_id for meter in self._store.registry.live_meters().meters]

    def _count(self, stretches: Sequence[Stretch], *, only: Collection[int] | None = None) -> list[StretchResult]:
        return self._planned(partial(tasks, self.plan, stretches, only=only))

    def _planned(self, plan: Callable[[], Sequence[Task]]) -> list[StretchResult]:
        """The results of these tasks, once every tenant in them has meters.

        New tenants are registered and the tasks planned again, so that a tenant's first events are in its built-in
        meters. The search for a meter to blame plans with `only` some meters, and so without those of new tenants; it
        first counts without any meter, and that registers the tenants.
        """
        for _ in range(MOST_PLANS):
            results = decode_results(self._counted(plan()))
            found = {tenant for result in results for tenant in result.new_tenants}
            if not found:
                return results
            self._add_tenants(sorted(found))
        raise StoreUnreachable(f"the store does not show the meters of {', '.join(sorted(found))}, which it was given")

    def _add_tenants(self, tenants: Sequence[str]) -> None:
        """Raises StoreUnreachable whatever goes wrong: a search must not bury a record because the store failed."""
        try:
            for tenant in tenants:
                self._store.registry.add_tenant(tenant)
                logger.info("tenant %s has sent its first events", tenant)
        except Exception as error:
            self._sink.failure = error
            raise StoreUnreachable(f"tenants {', '.join(tenants)} could not be added: {summary(error)}") from error

    def _counted(self, planned: Sequence[Task]) -> list[bytes]:
        try:
            return self._placement.count(planned)
        except Exception as error:
            if self._stopping.is_set():
                raise Halted from error
            raise

    def _recover(self, failures: int, stopped: Exception) -> None:
        failure = self._sink.failure
        if isinstance(failure, WrongLog | LeaseLost):
            raise failure
        try:
            start_positions.check(self._log, self._store.sink)
            reopen_log(self.plan.log)  # what it remembers of the log may be what fails
            if isinstance(failure, PositionConflict):
                logger.warning("another driver is writing, or wrote: %s; going on from the store's positions", failure)
            elif failure is None and failures > 0 and not is_away(stopped):
                self._salvage_all()
                return
        except (WrongLog, LeaseLost):
            raise
        except Exception as error:  # noqa: BLE001
            logger.warning("could not find what fails: %s; trying again", summary(error))
        self._stopping.wait(min(10.0, 0.2 * 2**failures))

    def _salvage_all(self) -> None:
        """The tasks fail, not the store: find the records that make them fail."""
        for partition, start in next_offsets(self.plan).items():
            end = self._log.bounded_end(
                partition, start, max_events=self.plan.max_events, max_bytes=self.plan.max_bytes
            )
            stretch = Stretch(partition, start, self._bounded(partition, end))
            try:
                buried = salvage(stretch, counting=self, log=self._log, shortages=self._shortages)
            except Blocked as blocked:
                self._block(blocked)
                continue
            if buried:
                logger.error("partition %d: %d records buried as dead letters: %s", partition, len(buried), buried)

    def _block(self, blocked: Blocked) -> None:
        self._blocked[blocked.partition] = blocked
        logger.error("%s", blocked)

    def _bounded(self, partition: int, end: int) -> int:
        """Not beyond a record that is too new."""
        blocked = self._blocked.get(partition)
        return end if blocked is None else min(end, blocked.offset)

    def _facts(self) -> dict[str, Any]:
        blocked = [str(each) for _, each in sorted(self._blocked.items())]
        return {"next": self._next, **({"blocked": blocked} if blocked else {})}

    def _heartbeat(self) -> Background:
        """Tells the store that this driver is alive, also while a batch takes long."""
        return Heartbeat(self._name, lambda: self._store.heartbeats).in_background(self._facts, says_goodbye=False)
