"""Placement on a cluster: a partition is counted by the same executor, where its claim table lies, while that lives.

Spark gives a task to whichever executor is free; the claim tables would wander with the partitions and every machine
would have to hold them all. So on a cluster the stream only says how far each batch goes, and its stretches are counted
by tasks that name their executor. One that is lost is replaced by another, which catches up from the log.
"""

import pickle
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer

from tallymark.pipeline.counting.plan import Task
from tallymark.pipeline.spark.worker import count

LOOK_AGAIN_S = 1.0


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
    """Counts tasks on the executors that are theirs."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._spread = Spread()
        self._partitions: set[int] = set()
        self._executors: list[str] = []
        self._looked = float("-inf")

    def count(self, tasks: Sequence[Task]) -> list[bytes]:
        """One encoded result a task."""
        if not tasks:
            return []
        self._partitions.update(task.stretch.partition for task in tasks)
        places = self._places()
        counted: list[bytes] = (
            self._pinned([(pickle.dumps(task), places.get(task.stretch.partition)) for task in tasks])
            .map(count)
            .collect()
        )
        return counted

    def _places(self) -> dict[int, str]:
        if time.monotonic() - self._looked > LOOK_AGAIN_S:
            self._looked, self._executors = time.monotonic(), self.executors()
        # None yet: Spark waits for the first by itself.
        return self._spread.over(self._partitions, self._executors) if self._executors else {}

    def executors(self) -> list[str]:
        """Those there are now, as Spark names places of tasks."""
        jvm: Any = self._context._jvm
        executors = self._context._jsc.sc().statusStore().executorList(True)
        found = [
            (str(each.id()), str(each.hostPort()).rpartition(":")[0])
            for each in jvm.scala.jdk.javaapi.CollectionConverters.asJava(executors)
        ]
        return [f"executor_{host}_{number}" for number, host in sorted(found) if number != "driver"]

    def _pinned(self, parts: Sequence[tuple[bytes, str | None]]) -> Any:
        """An RDD with one pickled element a partition, each with the place it should be computed at."""
        jvm: Any = self._context._jvm
        sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        elements = [
            jvm.scala.Tuple2(bytearray(content), sequence([place] if place else [])) for content, place in parts
        ]
        of_bytes = jvm.scala.reflect.ClassTag.Byte().wrap()
        made = self._context._jsc.sc().makeRDD(sequence(elements), of_bytes)
        return RDD(made.toJavaRDD(), self._context, CPickleSerializer())
