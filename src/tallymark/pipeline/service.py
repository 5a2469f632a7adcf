"""The role `pipeline`: one Spark driver that counts what is in the log."""

import logging
import time

from tallymark.role import Role
from tallymark.settings import Settings

logger = logging.getLogger("tallymark.pipeline")

MENDING_S = 15.0


def run(settings: Settings) -> int:
    """Count until asked to stop. 0 after a clean stop, 1 when a person is needed."""
    from tallymark.log.protocol import LogError
    from tallymark.pipeline.java import NoJava
    from tallymark.store import open_store
    from tallymark.store.protocol import StoreError

    with Role(settings, "pipeline") as role:
        logging.getLogger("py4j").setLevel(logging.WARNING)
        role.publish_metrics()
        store = open_store(settings)
        try:
            _wait_for_log(settings, role)
            if not role.stopping.is_set():
                _count(settings, role, store)
        except (LogError, StoreError, NoJava) as error:
            logger.error("%s", error)
            return 1
        except Exception as error:
            # Spark's errors carry pages of Java; the line that says what happened is enough, the rest is above it.
            logger.error("the pipeline stops: %s: %s", type(error).__name__, _brief(error))
            return 1
        finally:
            store.close()
    return 0


def _wait_for_log(settings: Settings, role: Role) -> None:
    """The collector makes the log at its first start, and mends its end after a crash at the others.

    Until it has, the log may end before what was applied. A pipeline alone, to work off what is there, waits in vain
    and goes on.
    """
    layout, collector = settings.log_folder / "events" / "layout.json", settings.run_folder / "collector.json"
    while not layout.exists() and not role.stopping.wait(0.1):
        pass
    patience = time.monotonic() + MENDING_S
    while not collector.exists() and time.monotonic() < patience and not role.stopping.wait(0.1):
        pass


def _brief(error: Exception) -> str:
    from tallymark.pipeline.job import first_line

    return first_line(error)


def _count(settings: Settings, role: Role, store: object) -> None:
    from tallymark.pipeline.job import Job
    from tallymark.pipeline.session import start_session

    session = start_session(settings)
    role.take_signals()  # Spark's own handler would cancel jobs and raise
    try:
        job = Job(settings, session, store, role.stopping)  # type: ignore[arg-type]
        job.prepare()
        job.run(ready=role.announce)
    finally:
        session.stop()
