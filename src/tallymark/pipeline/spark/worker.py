"""What runs in a Python worker of Spark: one task is counted, and Spark says which attempt it is."""

from pyspark import TaskContext

from tallymark.pipeline.counting.plan import Task


def count(task: Task) -> bytes:
    """The encoded result of the task's stretch."""
    # Here, not above: Spark imports this module in several processes that only plan, and Polars is 60 MB in each.
    from tallymark.pipeline.counting.task import count_task

    context = TaskContext.get()
    return count_task(task, attempt=0 if context is None else context.attemptNumber())
