"""The cluster: from Kafka through Spark's executors into Cassandra, beside the same pipeline on one machine's files."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench import pipeline
from bench.figure import Conditions, Figure, at_least
from bench.processes import Broken, used_between, wait_until
from bench.traffic import METERS_ONE, traffic
from lab.cassandra import Cassandra
from lab.kafka import KafkaCluster
from lab.spark import SparkCluster
from tallymark import log as logs
from tallymark.log.protocol import LogReader
from tallymark.pipeline.counting.claims import Claims, Ids
from tallymark.pipeline.counting.history import LogHistory
from tallymark.settings import Settings
from tallymark.store.protocol import Store

REACH_RATIO = at_least(0.75)
DEADLINE_S = 400.0
# Fewer than the embedded benchmark claims: three brokers write each of them three times.
CLAIMED = 1_000_000


@dataclass(frozen=True)
class Servers:
    """What Tallymark runs on, and whose CPU is told apart from its own."""

    folder: Path
    kafka: KafkaCluster
    cassandra: Cassandra
    spark: SparkCluster

    def settings(self, *, partitions: int) -> Settings:
        """A new topic and a new store."""
        name = f"b{uuid.uuid4().hex[:8]}"
        settings = Settings(data=str(self.folder / name))
        settings.log.kind, settings.log.brokers, settings.log.topic = "kafka", self.kafka.bootstrap, name
        settings.log.partitions = partitions
        settings.store.kind, settings.store.port, settings.store.name = "cassandra", self.cassandra.port, name
        settings.pipeline.master, settings.pipeline.executor_memory = self.spark.url, "700m"
        settings.pipeline.max_executors = 2
        return settings

    def cpu_s(self) -> dict[str, float]:
        return {
            "brokers": sum(map(_cpu_s, self.kafka.pids.values())),
            "cassandra": _cpu_s(self.cassandra.pid),
            "executors": sum(_cpu_s(worker.pid, children=True) for worker in self.spark.workers.values()),
        }


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(
            folder,
            stack.enter_context(KafkaCluster(folder / "cluster-kafka", 3)),
            stack.enter_context(Cassandra(folder / "cluster-cassandra")),
            stack.enter_context(SparkCluster(folder / "spark", workers=2)),
        )


def measure(conditions: Conditions) -> Iterator[Figure]:
    work = pipeline.fill_embedded(conditions, claimed=CLAIMED)
    embedded = pipeline.count(conditions, work, METERS_ONE, "embedded, one meter")
    yield embedded
    with servers(conditions.folder) as running:
        figures = _count(conditions, running, 2)
        yield from figures
        cluster = figures[0]
        yield Figure(
            "cluster",
            "Kafka to Cassandra against one machine's files",
            cluster.value / embedded.value,
            "times",
            REACH_RATIO,
            f"{1e6 / cluster.value:.2f} us an event against {1e6 / embedded.value:.2f}",
        )
        yield from _catching_up(conditions, running)
        for partitions in (1, 4):
            yield from _count(conditions, running, partitions)


def _count(conditions: Conditions, running: Servers, partitions: int) -> list[Figure]:
    settings = running.settings(partitions=partitions)
    work = pipeline.fill_log(conditions, settings, claimed=CLAIMED)
    store = pipeline.store_with(settings, METERS_ONE)
    for partition, offset in work.begin.items():
        store.sink.begin(work.identity, partition, offset)
    with _driver(running, settings) as driver:
        _await(store, driver, work.warm)
        warm = pipeline.ledger(store)
        before, begun = _used(running, driver), time.monotonic()
        _await(store, driver, len(work.events))
        used, wall = used_between(before, _used(running, driver)), time.monotonic() - begun
    after = pipeline.ledger(store)
    store.close()
    counted = after.accepted - warm.accepted
    exact = after.counted == work.events.distinct and after.missing == 0
    ours = used["driver"] + used["executors"]
    what = f"{partitions} partition{'s' * (partitions > 1)}"
    remark = f"{'exact' if exact else 'WRONG'}, {counted / wall:,.0f} events/s on the shared cores"
    details: dict[str, Any] = {"events": counted, "cpu_s": used, "wall_s": wall, "exact": exact}
    return [
        Figure("cluster", f"pipeline, {what}", counted / ours, "events/CPU-s", None, remark, details),
        Figure("cluster", f"brokers, three copies, {what}", used["brokers"] / counted * 1e6, "us/event"),
        Figure("cluster", f"Cassandra, {what}", used["cassandra"] / counted * 1e6, "us/event"),
    ]


def _catching_up(conditions: Conditions, running: Servers) -> Iterator[Figure]:
    """What an executor pays for a partition that it did not have before: from Kafka, from files, from a side file."""
    events = conditions.choose(full=1_000_000, quick=300_000)
    for kind in ("kafka", "local"):
        settings = running.settings(partitions=1)
        settings.log.kind = kind
        writer = logs.open_writer(settings, "events")
        now_ms = time.time_ns() // 1_000_000
        pipeline.append(writer, traffic(events, seed=3, start_ms=now_ms), now_ms)
        writer.close()
        reader = logs.open_reader(settings, "events")
        yield Figure(
            "cluster",
            f"claims catch up, {'from Kafka' if kind == 'kafka' else 'from a local log'}",
            _caught_up_s(reader, conditions.folder / f"claims-{kind}") / events * 1e6,
            "us/event",
            remark=f"{events:,} ids",
        )
        reader.close()
    yield from _merging(conditions, events)


def _caught_up_s(reader: LogReader, folder: Path) -> float:
    end = reader.positions()[0].synced
    begun = time.process_time()
    history = LogHistory(reader, 0)
    with Claims(folder, 0, start=end, end=end, horizon_ms=600_000, history=history):
        return time.process_time() - begun


def _merging(conditions: Conditions, events: int) -> Iterator[Figure]:
    """The part that no source of ids can save: the ids themselves must go into the table."""
    import numpy as np

    from tallymark.pipeline.counting.claim_table import ClaimTable

    random = np.random.default_rng(5)
    ids = Ids(
        random.integers(1, 2**63, events, dtype=np.uint64),
        random.integers(0, 2**32, events, dtype=np.uint32),
        np.full(events, 1_700_000_000_000, np.int64),
    )
    begun = time.process_time()
    table = ClaimTable.create(conditions.folder / "merge.claims", identity="bench", horizon_ms=600_000, through=0)
    table = table.with_room(events, oldest_ms=1_700_000_000_000 - 600_000)
    table.merge(*ids)
    table.finish(1)
    yield Figure(
        "cluster",
        "claims catch up, from ids at hand (a side file at its best)",
        (time.process_time() - begun) / events * 1e6,
        "us/event",
    )


@contextmanager
def _driver(running: Servers, settings: Settings) -> "Iterator[subprocess.Popen[bytes]]":
    """`tallymark pipeline --profile …`, as a user would start it."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    profile = settings.folder / "cluster.toml"
    profile.write_text(_profile(settings))
    command = [sys.executable, "-m", "tallymark", "pipeline", "--profile", str(profile), "--data", str(settings.folder)]
    with (settings.folder / "pipeline.log").open("wb") as log:
        started = subprocess.Popen(command, cwd=running.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield started
    finally:
        started.terminate()
        with suppress(subprocess.TimeoutExpired):
            started.wait(60)
        started.kill()
        started.wait()


def _profile(settings: Settings) -> str:
    brokers = ", ".join(f'"{each}"' for each in settings.log.brokers)
    return (
        f'[log]\nkind = "kafka"\nbrokers = [{brokers}]\ntopic = "{settings.log.topic}"\n'
        f"partitions = {settings.log.partitions}\n"
        f'[store]\nkind = "cassandra"\nport = {settings.store.port}\nname = "{settings.store.name}"\n'
        f'[pipeline]\nmaster = "{settings.pipeline.master}"\nexecutor_memory = "{settings.pipeline.executor_memory}"\n'
        f"max_executors = {settings.pipeline.max_executors}\n"
    )


def _await(store: Store, driver: "subprocess.Popen[bytes]", events: int) -> None:
    def is_counted() -> bool:
        if driver.poll() is not None:
            raise Broken("the pipeline ended; its log file says why")
        return pipeline.ledger(store).accepted >= events

    # Seldom: each look is a read of Cassandra, whose CPU is one of the figures.
    wait_until(is_counted, f"{events:,} events counted", deadline_s=DEADLINE_S, poll_s=0.1)


def _used(running: Servers, driver: "subprocess.Popen[bytes]") -> dict[str, float]:
    return {**running.cpu_s(), "driver": _cpu_s(driver.pid, children=True)}


def _cpu_s(pid: int, *, children: bool = False) -> float:
    """So far, with what its ended children used; with `children` also those that run."""
    used = 0.0
    process = psutil.Process(pid)
    for each in [process, *(process.children(recursive=True) if children else ())]:
        with suppress(psutil.Error):
            times = each.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used
