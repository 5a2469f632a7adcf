"""The role `pipeline`: one Spark driver that counts what is in the log."""

import logging
import threading
from typing import TYPE_CHECKING

from tallymark.role import Role, file_stem
from tallymark.role.heartbeat import Heartbeat
from tallymark.role.loop import retry, wait_for
from tallymark.role.outage import Outage
from tallymark.settings import Settings

if TYPE_CHECKING:
    from tallymark.role.lease_holder import LeaseHolder
    from tallymark.store.protocol import Store

logger = logging.getLogger("tallymark.pipeline")

MENDING_S = 15.0
POLL_S = 0.1


def run(settings: Settings, *, skip_lost: bool = False) -> int:
    """Count until asked to stop. 0 after a clean stop, 1 when a person is needed."""
    from tallymark.log.protocol import LogError
    from tallymark.pipeline.spark.java import NoJava
    from tallymark.store.protocol import LeaseLost, StoreError

    with Role(settings, "pipeline") as role:
        logging.getLogger("py4j").setLevel(logging.WARNING)
        role.publish_metrics()
        store = _open_store(settings, role)
        try:
            _wait_for_log(settings, role)
            while store is not None and not role.stopping.is_set():
                try:
                    _lead(settings, role, store, skip_lost=skip_lost)
                except LeaseLost as error:
                    logger.warning("%s; standing by", error)
                # What a store object writes is fenced by the lease it had: the next lease needs a new one.
                store.close()
                store = _open_store(settings, role)
        except (LogError, StoreError, NoJava) as error:
            logger.error("%s", error)
            return 1
        except Exception as error:  # noqa: BLE001
            if role.stopping.is_set():
                return 0  # a job was cancelled because it was waiting for executors
            # Spark's errors carry pages of Java; the line that says what happened is enough, the rest is above it.
            logger.error("the pipeline stops: %s: %s", type(error).__name__, _brief(error))
            return 1
        finally:
            if store is not None:
                store.close()
    return 0


def _wait_for_log(settings: Settings, role: Role) -> None:
    """The collector makes the log at its first start, and mends the end of a local one after a crash at the others.

    Until it has, a local log may end before what was applied. A pipeline alone, to work off what is there, waits in
    vain and goes on.
    """
    from tallymark import log

    if log.address(settings, "events").is_shared:
        _wait_until_readable(settings, role)
        return
    layout = settings.log_folder / "events" / "layout.json"
    collector = settings.run_folder / f"{file_stem('collector', settings.instance)}.json"
    wait_for(layout.exists, wait=role.stopping.wait, every_s=POLL_S)
    wait_for(collector.exists, wait=role.stopping.wait, every_s=POLL_S, within_s=MENDING_S)


def _wait_until_readable(settings: Settings, role: Role) -> None:
    from tallymark import log
    from tallymark.log.protocol import LogLost, LogUnreachable

    retry(
        lambda: log.open_reader(settings, "events").close(),
        on=(LogLost, LogUnreachable),
        wait=role.stopping.wait,
        outage=Outage(logger, "waiting for the log"),
    )


def _open_store(settings: Settings, role: Role) -> "Store | None":
    """The store, once it answers; None if the role is stopped first."""
    from tallymark.store import open_store
    from tallymark.store.protocol import StoreUnreachable

    return retry(
        lambda: open_store(settings),
        on=StoreUnreachable,
        wait=role.stopping.wait,
        outage=Outage(logger, "waiting for the store"),
    )


def _lead(settings: Settings, role: Role, store: "Store", *, skip_lost: bool) -> None:
    """Wait for the right to count, then count until it is lost or the role is stopped."""
    from tallymark.role.lease_holder import LeaseHolder

    heartbeat = Heartbeat(role.heartbeat_name, lambda: store.heartbeats)
    halt = threading.Event()
    lease = LeaseHolder(
        store,
        "pipeline",
        name=role.heartbeat_name,
        lease_s=settings.pipeline.lease_s,
        on_lost=halt.set,
        regains=False,
    )
    if _stand_by(lease, heartbeat, role):
        role.on_stop(halt.set)
        with lease.kept():
            _count(settings, role, store, halt, skip_lost=skip_lost)
    if role.stopping.is_set():
        heartbeat.say_goodbye()


def _stand_by(lease: "LeaseHolder", heartbeat: Heartbeat, role: Role) -> bool:
    """True once this driver is the one that counts; False if the role is stopped first."""
    from tallymark.role.lease_holder import STANDBY_S
    from tallymark.store.protocol import StoreUnreachable

    outage = Outage(logger, "standing by")
    announced = False

    def is_ours() -> bool:
        nonlocal announced
        try:
            if lease.take():
                return True
            if not announced:
                announced = True
                role.announce()
            heartbeat.beat({"standby": True})
            outage.over()
        except StoreUnreachable as error:
            outage.failed(error)
        return False

    return wait_for(is_ours, wait=role.stopping.wait, every_s=STANDBY_S)


def _brief(error: Exception) -> str:
    from tallymark.pipeline.counting.salvage import summary

    return summary(error)


def _count(settings: Settings, role: Role, store: "Store", halt: threading.Event, *, skip_lost: bool) -> None:
    from tallymark.pipeline.spark.context import start_spark
    from tallymark.pipeline.spark.job import Job

    spark = start_spark(settings)
    role.take_signals()  # Spark's own handler would cancel jobs and raise
    try:
        job = Job(settings, spark, store, halt, name=role.heartbeat_name)
        job.prepare(skip_lost=skip_lost)
        job.run(ready=role.announce)
    finally:
        spark.stop()
