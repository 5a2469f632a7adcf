"""A log, a store and the job between them, for tests that look inside."""

import threading

from tallymark import log as logs
from tallymark.events.tenants import MAIN
from tallymark.log.protocol import Outgoing
from tallymark.meters import from_mapping
from tallymark.pipeline.counting.task import count_task
from tallymark.pipeline.spark.job import Job
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.store.model import Ledger
from tallymark.store.read_plan import Question


class CountingPath:
    """A log, a store and the job between them."""

    def __init__(self, build, spark, settings: Settings) -> None:
        self.build, self.spark = build, spark
        self.settings = settings
        self.writer = logs.open_writer(self.settings, "events")
        self.store = open_store(self.settings)
        self._running: tuple[threading.Thread, threading.Event] | None = None
        self.errors: list[BaseException] = []

    def append(self, events: list[dict], *, partition: int = 0) -> int:
        """One frame; returns its offset."""
        count, content = self.build.payload(events)
        (outcome,) = self.writer.append([Outgoing(partition, content, count)])
        return outcome.offset

    def append_raw(self, content: bytes, events: int, *, partition: int = 0) -> int:
        (outcome,) = self.writer.append([Outgoing(partition, content, events)])
        return outcome.offset

    def put_meter(self, *, tenant: str = MAIN, **definition) -> None:
        self.store.registry.put_meter(tenant, from_mapping(definition), now_ms=1)

    def job(self, store=None) -> Job:
        return Job(self.settings, self.spark, store or self.store, threading.Event())

    def start(self, job: Job | None = None) -> Job:
        job = job or self.job()

        def run() -> None:
            try:
                job.run()
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        self._running = (thread, job._stopping)
        return job

    def stop(self) -> None:
        if self._running:
            thread, stopping = self._running
            stopping.set()
            thread.join(60)
            assert not thread.is_alive()
            self._running = None

    def ledger(self) -> Ledger:
        with self.store.snapshots.take() as snapshot:
            return sum(snapshot.ledger().values(), Ledger())

    def wait_for(self, accepted: int) -> None:
        self.build.wait_until(
            lambda: self.ledger().accepted >= accepted or self.errors, seconds=180, what=f"{accepted} events applied"
        )
        assert not self.errors, self.errors

    def ledgers(self) -> dict[str, Ledger]:
        """By tenant."""
        with self.store.snapshots.take() as snapshot:
            return snapshot.tenant_ledgers()

    def total(self, meter: str = "events", *, tenant: str = MAIN, **where: str) -> int:
        with self.store.snapshots.take() as snapshot:
            found = snapshot.read(
                Question(
                    self.store.registry.meter(tenant, meter),
                    where={key: [value] for key, value in where.items()},
                )
            )
        return int(found["n"].sum()) if found.height else 0

    def close(self) -> None:
        self.stop()
        self.writer.close()
        self.store.close()


class CountsHere:
    """In place of a job's `Placement`: counts in this process."""

    def __init__(self) -> None:
        self.is_there = True

    def count(self, tasks) -> list[bytes]:
        return [count_task(task) for task in tasks]

    def is_alive(self) -> bool:
        return self.is_there

    def executors(self) -> list[str]:
        return ["driver"]


class NoSpark:
    """All that a job asks of Spark when something else counts."""

    def cancelAllJobs(self) -> None:
        pass
