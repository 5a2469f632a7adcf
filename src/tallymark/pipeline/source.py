"""The seam to Spark: a data source whose tasks read one stretch of one partition and hand on what it counts.

Offsets are compared as JSON text, so keys are sorted. The reader is built twice and pickled: it keeps only a `Plan`
and opens the log and the store where it runs. `partitions()` runs once a batch and puts the live meters into each
stretch, so that a retried task counts with the same ones.
"""

import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from tallymark.log.address import LogAddress
from tallymark.log.protocol import LogReader
from tallymark.pipeline.history import LogHistory
from tallymark.store.model import LiveMeters, Stretch, StretchResult

NAME = "tallymark"
SCHEMA = "partition int, first bigint, next bigint, result binary"
_FIELDS: list[Any] = [("partition", pa.int32()), ("first", pa.int64()), ("next", pa.int64()), ("result", pa.binary())]
ARROW_SCHEMA = pa.schema(_FIELDS)


@dataclass(frozen=True)
class Plan:
    """Where the log, the store and the claims are, and how much a batch may hold."""

    log: LogAddress
    store_file: str
    claims_folder: str
    horizon_ms: int
    max_events: int
    max_bytes: int
    stretches: tuple[Stretch, ...] = ()
    """only for a batch read: exactly these"""


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
        return StretchStream(self.options["plan"])

    def reader(self, schema: Any) -> DataSourceReader:
        return GivenStretches(self.options["plan"])


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
        log = _reader(self._plan.log)
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
        applied = next_offsets(self._plan)
        stretches = []
        for partition in sorted(end, key=int):
            # Clipped: what another driver applied meanwhile need not be counted again.
            first = max(start[partition], applied[int(partition)])
            if first < end[partition]:
                stretches.append(Stretch(int(partition), first, end[partition]))
        return tasks(self._plan, stretches)

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        yield count_task(task)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the sink's transaction was the commit."""


class GivenStretches(DataSourceReader):  # type: ignore[misc]
    """The same counting over stretches that are named: to warm up, and to find a record that kills its task."""

    def __init__(self, plan: str) -> None:
        self._plan = decode_plan(plan)

    def partitions(self) -> Sequence[Task]:
        return tasks(self._plan, self._plan.stretches)

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        yield count_task(task)


def next_offsets(plan: Plan) -> dict[int, int]:
    """The first offset of each partition that the store has not applied."""
    log, store = _reader(plan.log), _store(plan.store_file)
    applied = store.applied(log.identity)
    return {partition: applied.get(partition, at.first) for partition, at in log.positions().items()}


def tasks(plan: Plan, stretches: Sequence[Stretch]) -> list[Task]:
    store = _store(plan.store_file)
    live = store.live_meters()
    bare = replace(plan, stretches=())
    return [Task(stretch, bare, live, frozenset(store.buried(stretch.partition))) for stretch in stretches]


def count_task(task: Task) -> pa.RecordBatch:
    """Runs in a Python worker of Spark: one row with the stretch's result."""
    from tallymark.pipeline.claims import Claims
    from tallymark.pipeline.count import count
    from tallymark.store import deltas

    stretch, plan = task.stretch, task.plan
    log = _reader(plan.log)
    history = LogHistory(log, stretch.partition, skip=task.skip)
    claims = Claims(
        Path(plan.claims_folder),
        stretch.partition,
        start=stretch.start,
        end=stretch.end,
        horizon_ms=plan.horizon_ms,
        history=history,
    )
    with claims:
        counted = count(log.read(stretch.partition, stretch.start, stretch.end), claims=claims, meters=task.live.meters)
    result = StretchResult(
        stretch=stretch,
        log_identity=log.identity,
        meters_revision=task.live.revision,
        meter_ids=tuple(meter.meter_id for meter in task.live.meters),
        deltas=deltas.encode(counted.deltas) if counted.deltas.height else b"",
        ledger=counted.ledger,
        received=counted.received,
        dead=counted.dead,
        broken=counted.broken,
    )
    return pa.record_batch(
        [[stretch.partition], [stretch.start], [stretch.end], [msgspec.msgpack.encode(result)]], schema=ARROW_SCHEMA
    )


def _as_offset(positions: dict[int, int]) -> dict[str, int]:
    return {str(partition): positions[partition] for partition in sorted(positions)}


# One open log and store per process: Spark's Python workers are reused from batch to batch.
@lru_cache(maxsize=4)
def _reader(address: LogAddress) -> LogReader:
    return address.open_reader()


@lru_cache(maxsize=4)
def _store(path: str) -> Any:
    from tallymark.store import open_file

    return open_file(Path(path))
