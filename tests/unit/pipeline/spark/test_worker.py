"""What Spark tells a worker, without a Spark."""

from base64 import b64decode
from dataclasses import replace

import pytest

import cassandras
from tallymark.pipeline.counting import task as counting
from tallymark.pipeline.counting.plan import Plan, Task
from tallymark.pipeline.spark import worker
from tallymark.store.model import LiveMeters, Stretch

PLAN = Plan(None, None, "claims", 600_000, 10**6, 10**9)


class Context:
    """The context of an attempt at one of three tasks."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        tasks = [Task(Stretch(partition, 0, 1), PLAN, LiveMeters(1, ())) for partition in range(3)]
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
    assert worker.count_slot(2, plan=PLAN) == b"result"
    ((task, told),) = counted
    assert (task.stretch.partition, task.plan, told) == (2, PLAN, attempt)


def test_no_password_is_in_what_spark_may_write_into_its_event_log():
    plan = replace(PLAN, store=cassandras.address(9042, name="hush-hush"), claims_folder="secret folder")
    told = b64decode(worker.encode_tasks([Task(Stretch(0, 0, 1), plan, LiveMeters(1, ()))]))
    assert b"Stretch" in told
    assert b"hush-hush" not in told
    assert b"secret folder" not in told
