"""Kafka as the log: what acknowledgement costs the collector's process, beside the local log, and what reading costs.

The client's CPU alone is counted; the brokers' is told beside it.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from bench.figure import Conditions, Figure
from bench.processes import Broken
from bench.traffic import FRAME_EVENTS, traffic
from lab.kafka import KafkaCluster
from tallymark import log
from tallymark.log import Appended, LogWriter, Outgoing
from tallymark.settings import Settings

PARTITIONS = 2
WARM_UP = 0.1
# A stretch as the pipeline takes them: some dozens of frames.
STRETCH_RECORDS = 100


@dataclass(frozen=True)
class Run:
    """What appending some commits cost."""

    events: int
    payload_bytes: int
    cpu_s: float
    wall_s: float
    broker_cpu_s: float
    latencies_ms: list[float]
    """of each commit, sorted"""

    def latency_ms(self, share: float) -> float:
        return self.latencies_ms[min(len(self.latencies_ms) - 1, int(share * len(self.latencies_ms)))]


def measure(conditions: Conditions) -> Iterator[Figure]:
    commits = conditions.choose(full=1_500, quick=200)
    groups = list(_commits(commits))
    with KafkaCluster(conditions.folder / "appending") as cluster:
        for name, settings in _ways(conditions, cluster):
            writer = log.open_writer(settings, "events")
            try:
                yield from _spoken(name, _append(writer, groups, cluster))
            finally:
                writer.close()
            if settings.log.acks == "all":
                yield from _read(settings, groups)


def _ways(conditions: Conditions, cluster: KafkaCluster) -> Iterator[tuple[str, Settings]]:
    """The local log in the same run: on a shared machine only what ran together compares."""
    local = Settings()
    local.data = str(conditions.folder / "local")
    yield "local log", local
    for acks in ("all", "leader"):
        ours = Settings()
        ours.log.kind, ours.log.brokers, ours.log.acks = "kafka", cluster.bootstrap, acks
        ours.log.topic = f"bench-{uuid.uuid4().hex[:8]}"
        yield f"Kafka, acks {acks}", ours


def _commits(count: int) -> Iterator[list[Outgoing]]:
    """Commits as the collector makes them of 100,000 events a second: one frame for each of two partitions."""
    distinct = min(count, 100)
    now_ms = time.time_ns() // 1_000_000
    events = traffic(distinct * PARTITIONS * FRAME_EVENTS, seed=6, start_ms=now_ms)
    frames = list(events.frames(PARTITIONS, received_ms=now_ms))
    by_partition = [[each for each in frames if each.partition == number] for number in range(PARTITIONS)]
    shortest = min(len(each) for each in by_partition)
    for number in range(count):
        yield [each[number % shortest] for each in by_partition]


def _append(writer: LogWriter, groups: Sequence[list[Outgoing]], cluster: KafkaCluster) -> Run:
    warm = int(len(groups) * WARM_UP)
    for group in groups[:warm]:
        writer.append(group)
    latencies = []
    brokers = [psutil.Process(pid) for pid in cluster.pids.values()]
    broker_cpu = _cpu_s(brokers)
    cpu, begun = time.process_time(), time.monotonic()
    for group in groups[warm:]:
        started = time.monotonic()
        outcomes = writer.append(group)
        latencies.append((time.monotonic() - started) * 1000)
        if not all(isinstance(outcome, Appended) for outcome in outcomes):
            raise Broken(f"not appended: {outcomes}")
    cpu, wall = time.process_time() - cpu, time.monotonic() - begun
    frames = [frame for group in groups[warm:] for frame in group]
    return Run(
        sum(frame.events for frame in frames),
        sum(len(frame.payload) for frame in frames),
        cpu,
        wall,
        _cpu_s(brokers) - broker_cpu,
        sorted(latencies),
    )


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(each.cpu_times().user + each.cpu_times().system for each in processes)


def _spoken(name: str, run: Run) -> Iterator[Figure]:
    details = {
        "events": run.events,
        "bytes": run.payload_bytes,
        "cpu_s": run.cpu_s,
        "wall_s": run.wall_s,
        "broker_cpu_s": run.broker_cpu_s,
    }
    remark = f"{run.events / run.wall_s:,.0f} events/s"
    if name != "local log":
        remark += f"; brokers: {run.events / run.broker_cpu_s:,.0f} events/CPU-s"
    yield Figure("kafka", f"{name}: append", run.events / run.cpu_s, "events/CPU-s", remark=remark, details=details)
    for share, spoken in ((0.5, "p50"), (0.99, "p99")):
        yield Figure("kafka", f"{name}: commit {spoken}", run.latency_ms(share), "ms")


def _read(settings: Settings, groups: Sequence[list[Outgoing]]) -> Iterator[Figure]:
    """Stretch by stretch through each partition, as the pipeline's tasks do."""
    reader = log.open_reader(settings, "events")
    try:
        for _ in reader.read(0, 0, 1):
            pass  # the consumer is connected
        events = size = 0
        cpu, begun = time.process_time(), time.monotonic()
        for partition, at in reader.positions().items():
            for start in range(at.first, at.synced, STRETCH_RECORDS):
                for record in reader.read(partition, start, min(at.synced, start + STRETCH_RECORDS)):
                    events, size = events + record.events, size + len(record.payload)
        cpu, wall = time.process_time() - cpu, time.monotonic() - begun
    finally:
        reader.close()
    appended = sum(frame.events for group in groups for frame in group)
    if events != appended:
        raise Broken(f"{appended:,} events were appended, {events:,} read")
    details = {"events": events, "bytes": size, "cpu_s": cpu, "wall_s": wall}
    source = "local log" if settings.log.kind == "local" else "Kafka"
    remark = f"{size / wall / 1e6:,.0f} MB/s"
    yield Figure("kafka", f"{source}: read", size / cpu / 1e6, "MB/CPU-s", remark=remark, details=details)
    yield Figure("kafka", f"{source}: read", events / cpu, "events/CPU-s", details=details)
