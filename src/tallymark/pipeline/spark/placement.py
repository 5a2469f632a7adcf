"""Where a stretch is counted: by a task of Spark, on a cluster by the executor that has the partition's claim table.

Spark gives a task to whichever executor is free; the claim tables would wander with the partitions and every machine
would have to hold them all. So on a cluster the tasks name their executor. One that is lost is replaced by another,
which catches up from the log.

Building an RDD takes dozens of calls into the JVM, 16 ms of CPU there. So one that says only how many tasks there are,
and where, is kept, and what they count travels with the job.
"""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer

from tallymark.pipeline.counting.plan import Plan, Task
from tallymark.pipeline.spark.worker import TASKS, count_slot, encode_tasks

LOOK_AGAIN_S = 1.0
# As many as there are ways in which two partitions, or a few more, have something new.
KEPT = 32


class Spread:
    """Which executor has which partition: evenly, and a partition moves only when it must."""

    def __init__(self) -> None:
        self._of: dict[int, str] = {}

    def over(self, partitions: Collection[int], executors: Collection[str]) -> dict[int, str]:
        """An executor for each partition; at least one executor must be there."""
        kept = {each: self._of[each] for each in partitions if self._of.get(each) in executors}
        load = Counter(dict.fromkeys(sorted(executors), 0))
        load.update(kept.values())
        for partition in sorted(set(partitions) - set(kept)):
            kept[partition] = min(load, key=lambda each: load[each])
            load[kept[partition]] += 1
        while max(load.values()) - min(load.values()) > 1:
            fullest, emptiest = max(load, key=lambda each: load[each]), min(load, key=lambda each: load[each])
            moved = max(partition for partition, executor in kept.items() if executor == fullest)
            kept[moved] = emptiest
            load[fullest], load[emptiest] = load[fullest] - 1, load[emptiest] + 1
        self._of |= kept
        return kept


class Placement:
    """Counts tasks; `pinned`, on the executors that are theirs."""

    def __init__(self, context: SparkContext, *, pinned: bool) -> None:
        self._context = context
        self._pinned = pinned
        self._spread = Spread()
        self._partitions: set[int] = set()
        self._executors: list[str] = []
        self._looked = float("-inf")
        self._slots = lru_cache(maxsize=KEPT)(self._make_slots)

    def count(self, tasks: Sequence[Task]) -> list[bytes]:
        """One encoded result a task."""
        if not tasks:
            return []
        self._partitions.update(task.stretch.partition for task in tasks)
        places = self._places()
        slots = self._slots(tasks[0].plan, tuple(places.get(task.stretch.partition) for task in tasks))
        self._context.setLocalProperty(TASKS, encode_tasks(tasks))
        counted: list[bytes] = slots.collect()
        return counted

    def is_alive(self) -> bool:
        """Whether Spark can run tasks at all."""
        try:
            return not self._context._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001  # whatever Py4J makes of it: the JVM does not answer
            return False

    def _places(self) -> dict[int, str]:
        if not self._pinned:
            return {}
        if time.monotonic() - self._looked > LOOK_AGAIN_S:
            self._looked, self._executors = time.monotonic(), self.executors()
        # None yet: Spark waits for the first by itself.
        return self._spread.over(self._partitions, self._executors) if self._executors else {}

    def executors(self) -> list[str]:
        """Those there are now, as Spark names places of tasks."""
        if not self._pinned:
            return ["driver"]
        jvm: Any = self._context._jvm
        executors = self._context._jsc.sc().statusStore().executorList(True)
        found = [
            (str(each.id()), str(each.hostPort()).rpartition(":")[0])
            for each in jvm.scala.jdk.javaapi.CollectionConverters.asJava(executors)
        ]
        return [f"executor_{host}_{number}" for number, host in sorted(found) if number != "driver"]

    def _make_slots(self, plan: Plan, places: Sequence[str | None]) -> "RDD[bytes]":
        """An RDD with one slot for each place, which counts the task of that number by this plan."""
        jvm: Any = self._context._jvm
        serializer = CPickleSerializer()
        sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        elements = [
            jvm.scala.Tuple2(bytearray(serializer.dumps(number)), sequence([place] if place else []))
            for number, place in enumerate(places)
        ]
        of_bytes = jvm.scala.reflect.ClassTag.Byte().wrap()
        made = self._context._jsc.sc().makeRDD(sequence(elements), of_bytes)
        return RDD(made.toJavaRDD(), self._context, serializer).map(partial(count_slot, plan=plan))
