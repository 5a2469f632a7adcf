"""The seam to Spark: a data source whose tasks read one stretch of one partition and hand on what it counts.

Offsets are compared as JSON text, so keys are sorted. The reader is built twice and pickled: it keeps only a `Plan`
and opens the log and the store where it runs. `partitions()` runs once a batch and puts the live meters into each
stretch, so that a retried task counts with the same ones.
"""

import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from tallymark.log.address import LogAddress
from tallymark.log.protocol import LogReader
from tallymark.store.address import StoreAddress
from tallymark.store.model import LiveMeters, Stretch
from tallymark.store.protocol import Deposits, Registry, Sink

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "tallymark"
SCHEMA = "partition int, first bigint, next bigint, result binary"
# Spark hides the values of options with such a name where it shows plans: ours may hold a password.
PLAN = "secret.plan"


@dataclass(frozen=True)
class Plan:
    """Where the log, the store and the claims are, and how much a batch may hold."""

    log: LogAddress
    store: StoreAddress
    claims_folder: str
    horizon_ms: int
    max_events: int
    max_bytes: int
    stretches: tuple[Stretch, ...] = ()
    """only for a batch read: exactly these"""
    only_meters: frozenset[int] | None = None
    """only for a batch read: of the live meters just these"""
    only_bounds: bool = False
    """the stream only says how far a batch goes; `placement` counts it"""


def encode_plan(plan: Plan) -> str:
    """As an option of the source: options are text."""
    return b64encode(pickle.dumps(plan)).decode()


def decode_plan(text: str) -> Plan:
    plan = pickle.loads(b64decode(text))
    assert isinstance(plan, Plan)
    return plan


@dataclass
class Task(InputPartition):  # type: ignore[misc]
    """One stretch on its way to a task, with all it needs to be counted."""

    stretch: Stretch
    plan: Plan
    live: LiveMeters
    skip: frozenset[int] = field(default_factory=frozenset)
    """offsets before the stretch that were buried because they killed their task"""


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

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Task]:
        return [] if self._plan.only_bounds else tasks_until(self._plan, end)

    def read(self, task: Task) -> "Iterator[pa.RecordBatch]":
        yield _row(task, count(task))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the sink's transaction was the commit."""


class GivenStretches(DataSourceReader):  # type: ignore[misc]
    """The same counting over stretches that are named: to warm up, and to find a record that kills its task."""

    def __init__(self, plan: str) -> None:
        self._plan = decode_plan(plan)

    def partitions(self) -> Sequence[Task]:
        return tasks(self._plan, self._plan.stretches)

    def read(self, task: Task) -> "Iterator[pa.RecordBatch]":
        yield _row(task, count(task))


def next_offsets(plan: Plan) -> dict[int, int]:
    """The first offset of each partition that the store has not applied."""
    log = open_log(plan.log)
    applied = _sink(plan.store).applied(log.identity)
    return {partition: applied.get(partition, at.first) for partition, at in log.positions().items()}


def tasks_until(plan: Plan, end: dict[str, int]) -> list[Task]:
    """From the store's positions, so that what another driver applied meanwhile is not counted again."""
    applied = next_offsets(plan)
    return tasks(
        plan,
        [
            Stretch(int(partition), applied[int(partition)], end[partition])
            for partition in sorted(end, key=int)
            if applied[int(partition)] < end[partition]
        ],
    )


def planned_until(checkpoint: Path, batch_id: int) -> dict[str, int]:
    """How far a batch goes, as Spark wrote it into the query's log of offsets before the batch began.

    The log's format has to outlive Spark's versions, since a query goes on from it after an upgrade: a line with the
    version, one with the settings, one with the offsets of each source.
    """
    *_, offsets = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    return cast(dict[str, int], json.loads(offsets))


def tasks(plan: Plan, stretches: Sequence[Stretch]) -> list[Task]:
    sink, live = _sink(plan.store), _registry(plan.store).live_meters()
    if plan.only_meters is not None:
        chosen = tuple(each for each in live.meters if each.meter_id in plan.only_meters)
        # Those left out miss the stretch, if its result is applied.
        left_out = tuple(each for each in live.meters if each.meter_id not in plan.only_meters)
        live = replace(live, meters=chosen, broken=(*live.broken, *left_out))
    bare = replace(plan, stretches=())
    return [Task(stretch, bare, live, frozenset(sink.buried(stretch.partition))) for stretch in stretches]


def count(task: Task) -> bytes:
    """In a Python worker of Spark: the encoded result of the stretch."""
    # Here, not above: Spark imports this module in several processes that only plan, and Polars is 60 MB in each.
    from tallymark.pipeline.task import count_task

    context = TaskContext.get()
    return count_task(task, attempt=0 if context is None else context.attemptNumber())


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


# One of each per process: Spark's Python workers are reused from batch to batch.
@lru_cache(maxsize=4)
def open_log(address: LogAddress) -> LogReader:
    return address.open_reader()


@lru_cache(maxsize=4)
def open_deposits(address: StoreAddress) -> Deposits:
    return address.open_deposits()


@lru_cache(maxsize=4)
def _sink(address: StoreAddress) -> Sink:
    return address.open_sink()


@lru_cache(maxsize=4)
def _registry(address: StoreAddress) -> Registry:
    return address.open_registry()
