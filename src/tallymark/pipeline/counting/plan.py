"""What is to be counted: a plan of where everything lies, and tasks that each carry one stretch of one partition.

The driver plans, Spark's Python workers count. Polars is not imported here: the driver does not need its 60 MB.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tallymark.log.address import LogAddress
from tallymark.log.protocol import LogReader
from tallymark.store.address import StoreAddress
from tallymark.store.model import LiveMeters, Stretch
from tallymark.store.protocol import Deposits, Registry, Sink


@dataclass(frozen=True)
class Plan:
    """Where the log, the store and the claims are, and how much a batch may hold."""

    log: LogAddress
    store: StoreAddress
    claims_folder: str
    horizon_ms: int
    max_events: int
    max_bytes: int


@dataclass(frozen=True)
class Task:
    """One stretch on its way to a worker, with all it needs to be counted."""

    stretch: Stretch
    plan: Plan
    live: LiveMeters
    skip: frozenset[int] = field(default_factory=frozenset)
    """offsets before the stretch that were buried because they killed their task"""


def next_offsets(plan: Plan) -> dict[int, int]:
    """The first offset of each partition that the store has not applied."""
    log = open_log(plan.log)
    applied = _sink(plan.store).applied(log.identity)
    return {partition: applied.get(partition, at.first) for partition, at in log.positions().items()}


def batch_ends(plan: Plan, starts: Mapping[int, int]) -> dict[int, int]:
    """How far the next batch goes in each partition; where it starts if nothing is new."""
    log = open_log(plan.log)
    share = max(1, len(starts))
    max_events, max_bytes = max(1, plan.max_events // share), max(1, plan.max_bytes // share)
    return {
        partition: log.bounded_end(partition, start, max_events=max_events, max_bytes=max_bytes)
        for partition, start in starts.items()
    }


def tasks_until(plan: Plan, ends: Mapping[int, int]) -> list[Task]:
    """From the store's positions, so that what another driver applied meanwhile is not counted again."""
    applied = next_offsets(plan)
    return tasks(
        plan,
        [
            Stretch(partition, applied[partition], ends[partition])
            for partition in sorted(ends)
            if applied[partition] < ends[partition]
        ],
    )


def tasks(plan: Plan, stretches: Sequence[Stretch], *, only: Collection[int] | None = None) -> list[Task]:
    """With the meters that are live now, or `only` some of them: a task that is retried counts with the same ones."""
    sink, live = _sink(plan.store), _registry(plan.store).live_meters()
    if only is not None:
        chosen = tuple(each for each in live.meters if each.meter_id in only)
        # Those left out miss the stretch, if its result is applied.
        left_out = tuple(each for each in live.meters if each.meter_id not in only)
        live = replace(live, meters=chosen, broken=(*live.broken, *left_out))
    return [Task(stretch, plan, live, frozenset(sink.buried(stretch.partition))) for stretch in stretches]


# One of each per process: Spark's Python workers are reused from batch to batch.
@lru_cache(maxsize=4)
def open_log(address: LogAddress) -> LogReader:
    return address.open_reader()


def reopen_log(address: LogAddress) -> None:
    """The next one who reads it gets a reader that remembers nothing."""
    open_log(address).close()
    open_log.cache_clear()


@lru_cache(maxsize=4)
def open_deposits(address: StoreAddress) -> Deposits:
    return address.open_deposits()


@lru_cache(maxsize=4)
def _sink(address: StoreAddress) -> Sink:
    return address.open_sink()


@lru_cache(maxsize=4)
def _registry(address: StoreAddress) -> Registry:
    return address.open_registry()
