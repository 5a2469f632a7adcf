"""What runs in a Python worker of Spark: one task is counted, and Spark says which one and which attempt it is."""

import pickle
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import cast

from pyspark import TaskContext

from tallymark.pipeline.counting.plan import Task

# A local property of the job, which Spark hands to each of its tasks. Where Spark shows properties it hides the values
# of those with such a name: ours may hold a password.
TASKS = "tallymark.secret.tasks"


def encode_tasks(tasks: Sequence[Task]) -> str:
    """As a property: those are text. Pickled together, the tasks share their plan and meters."""
    return b64encode(pickle.dumps(list(tasks))).decode()


def count_slot(number: int) -> bytes:
    """The encoded result of the job's task of this number."""
    # Here, not above: the driver imports this module too, and Polars is 60 MB.
    from tallymark.pipeline.counting.task import count_task

    context = TaskContext.get()
    assert context is not None, "only Spark runs this"
    tasks = cast(list[Task], pickle.loads(b64decode(context.getLocalProperty(TASKS))))
    return count_task(tasks[number], attempt=context.attemptNumber())
