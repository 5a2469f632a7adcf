"""Idle: CPU of everything `tallymark up` started, while nothing comes in."""

import time
from collections.abc import Iterator

from bench.figure import Conditions, Figure, at_most
from bench.processes import tallymark, used_between
from bench.startup import await_first_count
from tallymark.http import free_port

REACH = at_most(8)
SETTLE_S = 10.0


def measure(conditions: Conditions) -> Iterator[Figure]:
    port = free_port("127.0.0.1")
    seconds = conditions.choose(full=30, quick=10)
    with tallymark(conditions.folder / "idle", "up", "--port", str(port)) as tree:
        await_first_count(port, tree)
        time.sleep(SETTLE_S)
        before, begun = tree.cpu_s_by_kind(), time.monotonic()
        time.sleep(seconds)
        used, wall = used_between(before, tree.cpu_s_by_kind()), time.monotonic() - begun
        memory = tree.memory()
    shares = {kind: round(100 * cpu / wall, 2) for kind, cpu in used.items()}
    spoken = ", ".join(f"{kind} {share:.1f}" for kind, share in sorted(shares.items(), key=lambda each: -each[1]))
    yield Figure("idle", "all processes", sum(shares.values()), "% of a core", REACH, spoken, {"percent": shares})
    yield Figure("idle", "memory", memory.rss / 1e6, "MB", None, f"{memory.pss / 1e6:,.0f} MB with shared pages once")
