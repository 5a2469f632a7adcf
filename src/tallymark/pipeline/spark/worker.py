"""What runs in a Python worker of Spark: one task is counted, and Spark says which one and which attempt it is."""

import pickle
from base64 import b64decode, b64encode
from collections.abc import Sequence

from pyspark import TaskContext

from tallymark.pipeline.counting.plan import Plan, Task

# A local property of the job, which Spark hands to each of its tasks. Spark also writes it into its event log, where
# there is one: so the plan, whose addresses hold passwords, is not in it.
TASKS = "tallymark.tasks"


def encode_tasks(tasks: Sequence[Task]) -> str:
    """As a property: those are text. Pickled together, the tasks share their meters."""
    return b64encode(pickle.dumps([(task.stretch, task.live, task.skip) for task in tasks])).decode()


def count_slot(number: int, *, plan: Plan) -> bytes:
    """The encoded result of the job's task of this number."""
    # Here, not above: the driver imports this module too, and Polars is 60 MB.
    from tallymark.pipeline.counting.task import count_task

    context = TaskContext.get()
    assert context is not None, "only Spark runs this"
    stretch, live, skip = pickle.loads(b64decode(context.getLocalProperty(TASKS)))[number]
    return count_task(Task(stretch, plan, live, skip), attempt=context.attemptNumber())
