"""The seam to Spark: a data source whose tasks read one stretch of one partition and hand on what it counts.

Offsets are compared as JSON text, so keys are sorted. The reader is built twice and pickled: it keeps only a `Plan`
and opens the log and the store where it runs. `partitions()` runs once a batch and puts the live meters into each
stretch, so that a retried task counts with the same ones.
"""

import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from tallymark.pipeline.counting.plan import Plan, Task, next_offsets, open_log, tasks, tasks_until
from tallymark.pipeline.spark.worker import count

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "tallymark"
SCHEMA = "partition int, first bigint, next bigint, result binary"
# Spark hides the values of options with such a name where it shows plans: ours may hold a password.
PLAN = "secret.plan"


def encode_plan(plan: Plan) -> str:
    """As an option of the source: options are text."""
    return b64encode(pickle.dumps(plan)).decode()


def decode_plan(text: str) -> Plan:
    plan = pickle.loads(b64decode(text))
    assert isinstance(plan, Plan)
    return plan


class TallymarkSource(DataSource):  # type: ignore[misc]
    """`spark.readStream.format("tallymark")`, and `spark.read` for given stretches."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StretchStream(self.options[PLAN])

    def reader(self, schema: Any) -> DataSourceReader:
        return GivenStretches(self.options[PLAN])


class StretchStream(DataSourceStreamReader):  # type: ignore[misc]
    """What is new in the log, bounded, from the store's positions on."""

    def __init__(self, plan: str) -> None:
        self._plan = decode_plan(plan)
        self._initial: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        # Every start uses an empty checkpoint folder, so the store's positions are the only memory. Asked more than
        # once before the first batch, the answer must stay the same.
        if self._initial is None:
            self._initial = _as_offset(next_offsets(self._plan))
        return self._initial

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        start = start or self.initialOffset()
        log = open_log(self._plan.log)
        share = max(1, len(start))
        return _as_offset(
            {
                int(partition): log.bounded_end(
                    int(partition),
                    offset,
                    max_events=max(1, self._plan.max_events // share),
                    max_bytes=max(1, self._plan.max_bytes // share),
                )
                for partition, offset in start.items()
            }
        )

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [] if self._plan.only_bounds else [InputPartition(task) for task in tasks_until(self._plan, end)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        yield _row(partition.value, count(partition.value))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the sink's transaction was the commit."""


class GivenStretches(DataSourceReader):  # type: ignore[misc]
    """The same counting over stretches that are named: to warm up, and to find a record that kills its task."""

    def __init__(self, plan: str) -> None:
        self._plan = decode_plan(plan)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in tasks(self._plan, self._plan.stretches)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        yield _row(partition.value, count(partition.value))


def planned_until(checkpoint: Path, batch_id: int) -> dict[str, int]:
    """How far a batch goes, as Spark wrote it into the query's log of offsets before the batch began.

    The log's format has to outlive Spark's versions, since a query goes on from it after an upgrade: a line with the
    version, one with the settings, one with the offsets of each source.
    """
    *_, offsets = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    return cast(dict[str, int], json.loads(offsets))


def _row(task: Task, result: bytes) -> "pa.RecordBatch":
    import pyarrow as pa

    fields: list[Any] = [
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("next", pa.int64()),
        ("result", pa.binary()),
    ]
    stretch = task.stretch
    return pa.record_batch([[stretch.partition], [stretch.start], [stretch.end], [result]], schema=pa.schema(fields))


def _as_offset(positions: dict[int, int]) -> dict[str, int]:
    return {str(partition): positions[partition] for partition in sorted(positions)}
