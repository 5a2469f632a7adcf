"""The role `pipeline`: one Spark driver that counts what is in the log."""

import logging

from tallymark.role import Role
from tallymark.settings import Settings

logger = logging.getLogger("tallymark.pipeline")


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
        finally:
            store.close()
    return 0


def _wait_for_log(settings: Settings, role: Role) -> None:
    """The collector makes the log at its first start."""
    layout = settings.log_folder / "events" / "layout.json"
    while not layout.exists() and not role.stopping.wait(0.1):
        pass


def _count(settings: Settings, role: Role, store: object) -> None:
    from tallymark.pipeline.job import Job
    from tallymark.pipeline.session import start_session

    session = start_session(settings)
    role.take_signals()  # Spark's own handler would cancel jobs and raise
    try:
        job = Job(settings, session, store, role.stopping)  # type: ignore[arg-type]
        job.prepare()
        role.announce()
        job.run()
    finally:
        session.stop()
