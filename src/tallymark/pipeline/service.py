"""The role `pipeline`: one Spark driver that counts what is in the log."""

import logging
import threading
import time
from typing import TYPE_CHECKING

from tallymark.role import Role, file_stem
from tallymark.settings import Settings

if TYPE_CHECKING:
    from tallymark.store.protocol import Lease, Store

logger = logging.getLogger("tallymark.pipeline")

MENDING_S = 15.0
STANDBY_S = 1.0


def run(settings: Settings, *, skip_lost: bool = False) -> int:
    """Count until asked to stop. 0 after a clean stop, 1 when a person is needed."""
    from tallymark.log.protocol import LogError
    from tallymark.pipeline.java import NoJava
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
        except Exception as error:
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
    if settings.log.kind != "local":
        _wait_until_readable(settings, role)
        return
    layout = settings.log_folder / "events" / "layout.json"
    collector = settings.run_folder / f"{file_stem('collector', settings.instance)}.json"
    while not layout.exists() and not role.stopping.wait(0.1):
        pass
    patience = time.monotonic() + MENDING_S
    while not collector.exists() and time.monotonic() < patience and not role.stopping.wait(0.1):
        pass


def _wait_until_readable(settings: Settings, role: Role) -> None:
    from tallymark import log
    from tallymark.log.protocol import LogLost, LogUnreachable

    said = ""
    while not role.stopping.is_set():
        try:
            log.open_reader(settings, "events").close()
            return
        except (LogLost, LogUnreachable) as error:
            if str(error) != said:
                said = str(error)
                logger.warning("waiting for the log: %s", error)
        role.stopping.wait(1.0)


def _lead(settings: Settings, role: Role, store: "Store", *, skip_lost: bool) -> None:
    """Wait for the right to count, then count until it is lost or the role is stopped."""
    from tallymark.pipeline.leading import Leading, holder

    lease = store.lease("pipeline", holder(), lease_s=settings.pipeline.lease_s)
    if _stand_by(lease, store, role):
        halt = threading.Event()
        role.on_stop(halt.set)
        with Leading(lease, lease_s=settings.pipeline.lease_s, on_lost=halt.set):
            _count(settings, role, store, halt, skip_lost=skip_lost)
    if role.stopping.is_set():
        _say_goodbye(store, role)


def _say_goodbye(store: "Store", role: Role) -> None:
    from tallymark.store.protocol import StoreError

    try:
        store.beat(role.beat_name, {"stopped": True}, now_ms=int(time.time() * 1000))
    except StoreError as error:
        logger.warning("cannot say that the pipeline has stopped: %s", error)


def _open_store(settings: Settings, role: Role) -> "Store | None":
    """The store, once it answers; None if the role is stopped before."""
    from tallymark.store import open_store
    from tallymark.store.protocol import StoreUnreachable

    said = ""
    while not role.stopping.is_set():
        try:
            return open_store(settings)
        except StoreUnreachable as error:
            if str(error) != said:
                said = str(error)
                logger.warning("waiting for the store: %s", error)
        role.stopping.wait(1.0)
    return None


def _stand_by(lease: "Lease", store: "Store", role: Role) -> bool:
    """True once this driver is the one that counts; False if the role is stopped before."""
    from tallymark.store.protocol import StoreUnreachable

    said = False
    while not role.stopping.is_set():
        try:
            if lease.take():
                return True
            if not said:
                said = True
                logger.info("another driver counts; standing by")
                role.announce()
            store.beat(role.beat_name, {"standby": True}, now_ms=int(time.time() * 1000))
        except StoreUnreachable as error:
            logger.warning("standing by: %s", error)
        role.stopping.wait(STANDBY_S)
    return False


def _brief(error: Exception) -> str:
    from tallymark.pipeline.job import first_line

    return first_line(error)


def _count(settings: Settings, role: Role, store: "Store", halt: threading.Event, *, skip_lost: bool) -> None:
    from tallymark.pipeline.job import Job
    from tallymark.pipeline.session import start_session

    session = start_session(settings)
    role.take_signals()  # Spark's own handler would cancel jobs and raise
    try:
        job = Job(settings, session, store, halt, name=role.beat_name)
        job.prepare(skip_lost=skip_lost)
        job.run(ready=role.announce)
    finally:
        session.stop()
