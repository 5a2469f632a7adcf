"""End to end: `tallymark up` under `tallymark load`: rate held, lag, exactness, memory, CPU."""

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.figure import Conditions, Figure, Reach, at_least, at_most
from bench.processes import Broken, Memory, Tree, tallymark, used_between
from bench.startup import await_first_count
from tallymark.http import free_port
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.store.model import Lag

MEMORY_EVERY_S = 5.0
PATIENCE_S = 120
# A rate is held when it was acknowledged and no backlog grew: over the whole run nearly nothing waited long.
HELD = 0.99
NO_BACKLOG_MS = 5_000
REACH_LAG_MS = at_most(1_000)
REACH_MEMORY_MB = at_most(2_000)


@dataclass(frozen=True)
class Load:
    name: str
    flags: tuple[str, ...]
    rate_reach: Reach | None = None
    lag_reach: Reach | None = None
    meters: tuple[dict[str, Any], ...] = ()
    """that count its events, beside the one that every load has"""


# A connection has one request of at most 1,000 events under way: 100,000 events a second over the default of four would
# need every answer within 40 ms.
ZIPF = ("--keys", "10000", "--duplicates", "0.02", "--connections", "8")
# The values of each key as a histogram, and how many keys there are each minute.
SKETCHES = (
    {"name": "sketches_p99", "by": ["key"], "compute": ["count", "p50", "p99"]},
    {"name": "sketches_distinct", "distinct": "key"},
)
LOADS = (
    Load("10,000/s", ("--rate", "10000", *ZIPF)),
    Load("50,000/s", ("--rate", "50000", *ZIPF), lag_reach=REACH_LAG_MS),
    Load("50,000/s with sketches", ("--rate", "50000", *ZIPF), lag_reach=at_most(400), meters=SKETCHES),
    Load("100,000/s", ("--rate", "100000", *ZIPF), rate_reach=at_least(100_000 * HELD)),
    Load("1,000 servers x 100 metrics", ("--servers", "1000", "--metrics", "100")),
)


NOTHING = Memory(0, 0, 0)


@dataclass
class Watched:
    """What the processes used while a load ran."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    peak: Memory = NOTHING


def measure(conditions: Conditions) -> Iterator[Figure]:
    port = free_port("127.0.0.1")
    settings = Settings(data=str(conditions.folder / "end-to-end"))
    seconds = conditions.choose(full=60, quick=10)
    with tallymark(settings.folder, "up", "--port", str(port)) as tree:
        await_first_count(port, tree)
        for load in LOADS:
            begun_ms = time.time_ns() // 1_000_000
            with _watching(tree) as watched:
                told = _send(conditions, port, load, seconds)
            told |= _check(conditions, port, told["journal"])
            store = open_store(settings)
            with store.snapshots.take() as snapshot:
                lag = snapshot.lag(since_ms=begun_ms)
            store.close()
            if lag is None:
                raise Broken(f"nothing was counted of {load.name}")
            yield from _figures(load, told, lag, watched)


def _send(conditions: Conditions, port: int, load: Load, seconds: int) -> dict[str, Any]:
    """What `tallymark load` says of the sending. Checking comes after, so that its questions cost nothing here."""
    run = re.sub("[^a-z0-9]+", "_", load.name)
    for meter in load.meters:
        _put_meter(port, {**meter, "event": f"load_{run}"})
    return _load(conditions, port, *load.flags, "--run", run, "--seconds", str(seconds), "--no-check")


def _put_meter(port: int, definition: dict[str, Any]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("PUT", f"/v1/meters/{definition['name']}", body=json.dumps(definition))
        answer = connection.getresponse()
        if answer.status >= 300:
            raise Broken(f"the meter {definition['name']} was refused: {answer.read().decode()[:500]}")
    finally:
        connection.close()


def _check(conditions: Conditions, port: int, journal: str) -> dict[str, Any]:
    """What `tallymark load` says of the counts: to the unit, by total, minutes, hours, days and keys."""
    return _load(conditions, port, "--check", journal)


def _load(conditions: Conditions, port: int, *flags: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tallymark", "load", *flags, "--patience", str(PATIENCE_S)]
    command += ["--url", f"http://127.0.0.1:{port}", "--output", "json"]
    done = subprocess.run(command, cwd=conditions.folder, capture_output=True, text=True, check=False)
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = done.stderr[-500:]
        raise Broken(f"`tallymark load {' '.join(flags)}` ended with {done.returncode}: {said}") from None
    return told


def _figures(load: Load, told: dict[str, Any], lag: Lag, watched: Watched) -> Iterator[Figure]:
    held = told["rate_held"] if lag.p99 < NO_BACKLOG_MS else 0.0
    answers = ", ".join(f"{name} {value:g}" for name, value in told["latency_ms"].items())
    behind = "" if held else f"; {told['rate_held']:,.0f} acknowledged, but the counts fell behind"
    yield Figure(
        load.name,
        "rate held",
        held,
        "events/s",
        load.rate_reach,
        f"answers after ms: {answers}{behind}",
        {"load": told},
    )
    spoken = f"p50 {lag.p50:,.0f}, p99 {lag.p99:,.0f}, highest {lag.highest:,.0f}"
    details = {"p50": lag.p50, "p95": lag.p95, "p99": lag.p99, "highest": lag.highest, "events": lag.events}
    yield Figure(load.name, "lag p95, from receipt to counted", lag.p95, "ms", load.lag_reach, spoken, details)
    wrong = len(told["differences"]) if told["applied"] else told["compared"]
    compared = f"{told['compared']:,} compared; all counted {told['waited_s']} s after it was asked"
    yield Figure(load.name, "counts that are wrong", wrong, "", at_most(0), compared)
    peak = watched.peak
    spoken = f"{peak.pss / 1e6:,.0f} MB with shared pages once, claim tables {peak.claims / 1e6:,.0f} MB apart"
    yield Figure(load.name, "memory at its peak", peak.rss / 1e6, "MB", REACH_MEMORY_MB, spoken)
    cores = {kind: cpu / watched.seconds for kind, cpu in watched.cpu_s.items()}
    cores["(load)"] = told["cpu_s"] / told["seconds"]
    spoken = ", ".join(f"{kind} {share:.2f}" for kind, share in sorted(cores.items(), key=lambda each: -each[1]))
    total = sum(watched.cpu_s.values()) / watched.seconds
    yield Figure(load.name, "CPU beside the generator", total, "cores", None, spoken, {"cpu_s": watched.cpu_s})


@contextmanager
def _watching(tree: Tree) -> Iterator[Watched]:
    """CPU and the peak of memory from here to the end of the block."""
    watched, done = Watched(), threading.Event()

    def watch() -> None:
        while True:
            now = tree.memory()
            watched.peak = max(watched.peak, now, key=lambda memory: memory.rss)
            if done.wait(MEMORY_EVERY_S):
                return

    before, begun = tree.cpu_s_by_kind(), time.monotonic()
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield watched
    finally:
        done.set()
        thread.join()
        watched.cpu_s, watched.seconds = used_between(before, tree.cpu_s_by_kind()), time.monotonic() - begun
