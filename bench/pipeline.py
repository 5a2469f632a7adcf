"""Pipeline: events counted per second of CPU of its whole process tree, beside stock Spark on the same events."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench import stock_spark
from bench.figure import Conditions, Figure, Reach, at_least, at_most
from bench.processes import Broken, Tree, tallymark, used_between, wait_until
from bench.traffic import FRAME_EVENTS, METERS_ONE, METERS_THREE, NAMES, Traffic, traffic
from tallymark import log as logs
from tallymark.events import columns
from tallymark.log.protocol import LogWriter, NotAppended
from tallymark.meters import from_mapping
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.store.model import Ledger
from tallymark.store.protocol import Store

REACH = at_least(300_000)
REACH_RATIO = at_least(5)
REACH_SKETCHES = at_least(0.6)
REACH_VISIBLE_MS = at_most(333)  # "counts visible in a third of a second", design decision 4
CHUNK = 250_000
USER, USERS = "user", 100_000
SMALL = 100
WARM_SMALL_BATCHES = 20
SMALL_BATCHES = 30
DEADLINE_S = 300.0


@dataclass(frozen=True)
class Work:
    """A log that holds everything before the pipeline starts."""

    log_folder: Path
    identity: str
    begin: dict[int, int]
    """where counting begins; what lies before only fills the claim tables"""
    claimed: int
    warm: int
    events: Traffic
    """what is counted: the first `warm` of them before the clock starts"""


def measure(conditions: Conditions) -> Iterator[Figure]:
    work = fill_embedded(conditions)
    one = count(conditions, work, METERS_ONE, "one meter")
    yield one
    yield count(conditions, work, METERS_THREE, "three meters")
    yield from _sketches(conditions, work)
    yield _small_batches(conditions)
    stock = stock_spark.measure(conditions, work.events)
    yield stock
    yield Figure(
        "pipeline",
        "one meter against stock Spark",
        one.value / stock.value,
        "times",
        # In a quick run stock Spark is not warm, and the ratio flatters us.
        None if conditions.quick else REACH_RATIO,
        f"{1e6 / one.value:.2f} us an event against {1e6 / stock.value:.2f}" + " (not warm)" * conditions.quick,
    )


def _sketches(conditions: Conditions, work: Work) -> Iterator[Figure]:
    """What percentiles and distinct counts cost: each meter beside the plain count of the same events and labels.

    One user in a hundred thousand is an event's at random: nearly every one is new to the series, the hardest case.
    """
    plain = {"name": "videos", "event": list(NAMES), "by": ["video"], "compute": ["count"]}
    kinds = {
        "p99": {"compute": ["count", "p99"]},
        "distinct users": {"distinct": USER},
        "p99 and distinct users": {"compute": ["count", "p99"], "distinct": USER},
    }
    beside = count(conditions, work, [plain], "plain count", reach=None)
    yield beside
    for what, more in kinds.items():
        found = count(conditions, work, [plain | more], what, reach=None)
        yield Figure(
            "pipeline",
            f"{what} against the plain count",
            found.value / beside.value,
            "times",
            REACH_SKETCHES,
            f"{found.value:,.0f} events/CPU-s against {beside.value:,.0f}; {found.remark}",
            found.details,
        )


class WithUsers(Traffic):
    """The same events, each with a user of 100,000; the meters of the other figures do not look at it."""

    def _batch(self, received_ms: int) -> tuple[pa.RecordBatch, npt.NDArray[np.uint64]]:
        batch, high = super()._batch(received_ms)
        users = pa.array([f"user-{number}" for number in range(USERS)]).take(pa.array(high % np.uint64(USERS)))
        return batch.add_column(batch.schema.get_field_index("rest"), columns.PROP + USER, users), high


def with_users(events: Traffic) -> Traffic:
    return WithUsers(**{name: getattr(events, name) for name in Traffic.__dataclass_fields__})


def fill_embedded(conditions: Conditions, *, claimed: int | None = None) -> Work:
    """The work of the other pipelines, in this machine's files."""
    return fill_log(conditions, Settings(data=str(conditions.folder / "pipeline-log")), claimed=claimed)


def fill_log(conditions: Conditions, settings: Settings, *, claimed: int | None = None) -> Work:
    """Ids to be claimed, 5 M unless said otherwise, then what is counted; in the log that the settings name."""
    if claimed is None:
        claimed = conditions.choose(full=5_000_000, quick=1_000_000)
    # A batch holds nearly 400,000. So that the last is not small: 3 and 5 of them; quick, 1 and 2.
    warm = conditions.choose(full=1_000_000, quick=300_000)
    counted = conditions.choose(full=2_150_000, quick=880_000)
    now_ms = time.time_ns() // 1_000_000
    writer = logs.open_writer(settings, "events")
    for start in range(0, claimed, CHUNK):
        append(writer, traffic(min(CHUNK, claimed - start), seed=start + 1, start_ms=now_ms), now_ms)
    begin = {partition: at.synced for partition, at in writer.positions().items()}
    events = with_users(traffic(warm + counted, seed=0, start_ms=now_ms))
    for start in range(0, len(events), CHUNK):
        append(writer, events.part(start, start + CHUNK), now_ms)
    writer.close()
    return Work(settings.log_folder, writer.identity, begin, claimed, warm, events)


def append(writer: LogWriter, events: Traffic, now_ms: int) -> None:
    outcomes = writer.append(list(events.frames(writer.partitions, received_ms=now_ms)))
    refused = [outcome for outcome in outcomes if isinstance(outcome, NotAppended)]
    if refused:
        raise Broken(f"the log took {len(refused)} frames less: {refused[0].reason}")


def count(
    conditions: Conditions, work: Work, meters: Sequence[dict[str, Any]], what: str, *, reach: Reach | None = REACH
) -> Figure:
    settings = Settings(data=str(conditions.folder / f"pipeline-{what.replace(' ', '-')}"))
    settings.folder.mkdir()
    # The same log for each run; store, claims and scratch files are new.
    settings.log_folder.symlink_to(work.log_folder)
    store = store_with(settings, meters)
    for partition, offset in work.begin.items():
        store.sink.begin(work.identity, partition, offset)
    with tallymark(settings.folder, "pipeline") as tree:
        await_counted(store, tree, work.warm)
        warm, batches = ledger(store), store.snapshots.journal_end()
        cpu, begun = tree.cpu_s_by_kind(), time.monotonic()
        await_counted(store, tree, len(work.events))
        used, wall = used_between(cpu, tree.cpu_s_by_kind()), time.monotonic() - begun
    after, batches = ledger(store), store.snapshots.journal_end() - batches
    store.close()
    counted = after.accepted - warm.accepted
    exact = after.counted == work.events.distinct and after.missing == 0
    return Figure(
        "pipeline",
        what,
        counted / sum(used.values()),
        "events/CPU-s",
        reach,
        f"{'exact' if exact else 'WRONG'}, {counted / wall:,.0f} events/s, {work.claimed:,} ids claimed before",
        {
            "events": counted,
            "batches": batches,
            "cpu_s": used,
            "wall_s": wall,
            "frame_events": FRAME_EVENTS,
            "exact": exact,
        },
    )


def _small_batches(conditions: Conditions) -> Figure:
    """The other end: a batch of few events, as it is when little comes in. Its cost is that of a batch as such."""
    settings = Settings(data=str(conditions.folder / "pipeline-small"))
    writer = logs.open_writer(settings, "events")
    store = store_with(settings, METERS_ONE)
    batches = WARM_SMALL_BATCHES + SMALL_BATCHES
    events = traffic(batches * SMALL, seed=7, start_ms=time.time_ns() // 1_000_000)
    waits_ms: list[float] = []
    with tallymark(settings.folder, "pipeline") as tree:
        before: dict[str, float] = {}
        for number in range(batches):
            if number == WARM_SMALL_BATCHES:
                before = tree.cpu_s_by_kind()
            begun = time.monotonic()
            append(writer, events.part(number * SMALL, (number + 1) * SMALL), time.time_ns() // 1_000_000)
            await_counted(store, tree, (number + 1) * SMALL, poll_s=0.005)
            waits_ms.append((time.monotonic() - begun) * 1000)
        used = used_between(before, tree.cpu_s_by_kind())
    writer.close()
    store.close()
    waited = sorted(waits_ms[WARM_SMALL_BATCHES:])
    cpu_ms = {kind: cpu * 1000 / SMALL_BATCHES for kind, cpu in used.items()}
    return Figure(
        "pipeline",
        f"{SMALL} events, from append to applied",
        median(waited),
        "ms",
        REACH_VISIBLE_MS,
        f"{sum(cpu_ms.values()):.0f} ms of CPU a batch, slowest {waited[-1]:.0f} ms",
        {"cpu_ms_a_batch": cpu_ms, "waited_ms": waited},
    )


def store_with(settings: Settings, meters: Sequence[dict[str, Any]]) -> Store:
    store = open_store(settings)
    for meter in meters:
        store.registry.put_meter("main", from_mapping(meter), now_ms=1)
    return store


def ledger(store: Store) -> Ledger:
    with store.snapshots.take() as snapshot:
        return sum(snapshot.ledger().values(), Ledger())


def await_counted(store: Store, tree: Tree, events: int, *, poll_s: float = 0.02) -> None:
    def is_counted() -> bool:
        if not tree.alive:
            raise Broken("the pipeline ended; its log file says why")
        return ledger(store).accepted >= events

    wait_until(is_counted, f"{events:,} events counted", deadline_s=DEADLINE_S, poll_s=poll_s)
