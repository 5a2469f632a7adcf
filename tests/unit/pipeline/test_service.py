"""When the pipeline says that it is ready."""

import threading
from types import SimpleNamespace

import pytest

from tallymark.pipeline import service
from tallymark.pipeline.spark import context, job


@pytest.fixture
def said() -> list[str]:
    """What happened, in order."""
    return []


def begin(said: list[str], monkeypatch, failure: Exception | None = None) -> None:
    """The role begins to count, with a Spark and a job that only say what they are asked."""

    class Job:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def prepare(self, *, skip_lost: bool) -> None:
            said.append("tasks load their state")
            if failure:
                raise failure

        def run(self, ready) -> None:
            ready()

    monkeypatch.setattr(job, "Job", Job)
    monkeypatch.setattr(context, "start_spark", lambda _: SimpleNamespace(stop=lambda: said.append("Spark stops")))
    role = SimpleNamespace(take_signals=lambda: None, heartbeat_name="pipeline", announce=lambda: said.append("ready"))
    service._count(None, role, None, threading.Event(), skip_lost=False)


def test_ready_is_said_once_the_tasks_have_their_state(said, monkeypatch):
    begin(said, monkeypatch)
    assert said == ["tasks load their state", "ready", "Spark stops"]


def test_a_pipeline_whose_tasks_cannot_load_their_state_is_not_ready(said, monkeypatch):
    with pytest.raises(OSError, match="no room"):
        begin(said, monkeypatch, OSError("no room for the claims"))
    assert said == ["tasks load their state", "Spark stops"]
