"""What is to be counted: a plan of where everything lies, and tasks that each carry one stretch of one partition.

Nothing here counts, and Polars is not imported: Spark loads this in several processes that only plan.
"""

from collections.abc import Sequence
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
    stretches: tuple[Stretch, ...] = ()
    """only for a batch read: exactly these"""
    only_meters: frozenset[int] | None = None
    """only for a batch read: of the live meters just these"""
    only_bounds: bool = False
    """the stream only says how far a batch goes; `placement` counts it"""


@dataclass(frozen=True)
class Task:
    """One stretch on its way to a task, with all it needs to be counted."""

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


def tasks(plan: Plan, stretches: Sequence[Stretch]) -> list[Task]:
    sink, live = _sink(plan.store), _registry(plan.store).live_meters()
    if plan.only_meters is not None:
        chosen = tuple(each for each in live.meters if each.meter_id in plan.only_meters)
        # Those left out miss the stretch, if its result is applied.
        left_out = tuple(each for each in live.meters if each.meter_id not in plan.only_meters)
        live = replace(live, meters=chosen, broken=(*live.broken, *left_out))
    bare = replace(plan, stretches=())
    return [Task(stretch, bare, live, frozenset(sink.buried(stretch.partition))) for stretch in stretches]


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
