"""What Spark tells a worker, without a Spark."""

import pytest

from tallymark.pipeline.counting import task as counting
from tallymark.pipeline.counting.plan import Plan, Task
from tallymark.pipeline.spark import worker
from tallymark.store.model import LiveMeters, Stretch


class Context:
    """The context of an attempt at one of three tasks."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        plan = Plan(None, None, "claims", 600_000, 10**6, 10**9)
        tasks = [Task(Stretch(partition, 0, 1), plan, LiveMeters(1, ())) for partition in range(3)]
        self._properties = {worker.TASKS: worker.encode_tasks(tasks)}

    def get(self) -> "Context":
        return self

    def attemptNumber(self) -> int:
        return self._attempt

    def getLocalProperty(self, key: str) -> str:
        return self._properties[key]


@pytest.mark.parametrize("attempt", [0, 1])
def test_spark_says_which_task_and_which_attempt_it_is(monkeypatch, attempt):
    counted = []
    monkeypatch.setattr(counting, "count_task", lambda task, *, attempt: counted.append((task, attempt)) or b"result")
    monkeypatch.setattr(worker, "TaskContext", Context(attempt))
    assert worker.count_slot(2) == b"result"
    ((task, told),) = counted
    assert (task.stretch.partition, told) == (2, attempt)
