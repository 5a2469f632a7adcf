"""Questions: how long the query service takes, quiet and beside 20,000 events/s, and DuckDB on the same rows.

Over HTTP from one client that asks one question at a time, with `consistency=fresh`. "At the server" is what the
header Server-Timing says; without it, the time at the client less that of `/healthz`, which takes the same way.
"""

import http.client
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt

from bench import hot_store
from bench.collector import is_open
from bench.duck import Duck
from bench.figure import Conditions, Figure, Reach, at_most
from bench.hot_store import FULL, QUICK, Size
from bench.processes import Broken, Tree, tallymark, wait_until
from bench.startup import await_first_count
from tallymark.http import free_port

BENCHMARK = "questions"
CHOSEN = 1_000
RATE = 20_000
SETTLE_S = 5.0
AHEAD_S = 1_800

Times = npt.NDArray[np.float64]
"""milliseconds"""
Ask = Callable[[int], str]


@dataclass(frozen=True)
class Kind:
    what: str
    path: Ask
    """of the n-th question"""
    reach: Reach | None
    times: int


def kinds(size: Size) -> list[Kind]:
    servers = [("server", f"web-{number}") for number in range(0, size.servers, 2)][:CHOSEN]

    def path(meter: str, question: str, *pairs: tuple[str, str]) -> str:
        return f"/v1/meters/{meter}/{question}?{urlencode([*pairs, ('consistency', 'fresh')])}"

    def video(number: int) -> tuple[str, str]:
        return "video", f"video-{number * 37 % size.videos}"

    day, hour, minute, now = ("from", "-24h"), ("from", "-1h"), ("from", "-1m"), ("to", "now")
    return [
        Kind("total of a video", lambda number: path("videos", "total", video(number)), at_most(5), 400),
        Kind("total of all", lambda _: path("videos", "total"), at_most(5), 400),
        Kind("24 h series of a video", lambda number: path("videos", "series", video(number), day), at_most(20), 200),
        Kind("24 h series of all", lambda _: path("videos", "series", day), at_most(20), 200),
        Kind("top 10 of the last hour", lambda _: path("videos", "top", hour), at_most(30), 200),
        Kind(
            "p99 of 1,000 servers, last minute",
            lambda _: path("latency", "total", *servers, minute, now, ("fn", "p99")),
            at_most(50),
            200,
        ),
        Kind(
            "p99 of 1,000 servers, last hour",
            lambda _: path("latency", "total", *servers, hour, now, ("fn", "p99")),
            None,
            40,
        ),
        Kind("cached", lambda _: path("videos", "top", hour).replace("fresh", "cached"), at_most(1), 1_000),
    ]


def measure(conditions: Conditions) -> Iterator[Figure]:
    size = QUICK if conditions.quick else FULL
    folder = conditions.folder / "questions"
    duck = Duck(conditions.folder)
    yield from _fill(folder, size, duck)
    port = free_port("127.0.0.1")
    with tallymark(folder, "query", "--port", str(port)) as tree:
        wait_until(lambda: is_open(port), "the query service answers", deadline_s=30)
        yield from _asked(conditions, size, port, "quiet", tree)
        yield Figure(BENCHMARK, "memory of the query service", tree.memory().rss / 1e6, "MB", None, "quiet")
    yield from _duck(conditions, duck)
    duck.close()
    with _under_load(folder) as (port, tree, told):
        yield from _asked(conditions, size, port, f"beside {RATE:,}/s", tree)
    yield Figure(BENCHMARK, "rate held beside the questions", told(), "events/s")


def _fill(folder: Path, size: Size, duck: Duck) -> Iterator[Figure]:
    store = hot_store.open_sqlite(folder)
    # Into the future, so that the last minute is full whenever it is asked for.
    now_s = int(time.time()) + AHEAD_S
    meter = hot_store.put_meter(store, hot_store.VIDEOS)
    spent, rows = 0.0, 0
    for part in hot_store.videos(meter, size, now_s):
        duck.add_videos(part)
        hot_store.journal(store, part)
        cpu = time.process_time()
        hot_store.settle(store, now_s)
        spent += time.process_time() - cpu
        rows += part.height
    plain = hot_store.size_of(folder)
    remark = f"{rows:,} points of {size.videos:,} series, hours rolled; folded once in {spent / rows * 1e6:.1f} us each"
    yield Figure(BENCHMARK, "bytes per point: count, sum, min, max", plain / rows, "bytes", None, remark)
    latency = hot_store.put_meter(store, hot_store.SERVERS)
    for found in hot_store.histograms(size, now_s):
        duck.add_slots(found.long_form())
        hot_store.journal(store, hot_store.servers(latency, found, size))
        hot_store.settle(store, now_s)
    store.close()
    duck.choose([f"web-{number}" for number in range(0, size.servers, 2)][:CHOSEN])
    here = f"{hot_store.size_of(folder) / 1e6:,.0f} MB here"
    yield Figure(BENCHMARK, "size of the same rows in DuckDB", duck.settle() / 1e6, "MB", None, here)


def _asked(conditions: Conditions, size: Size, port: int, when: str, tree: Tree) -> Iterator[Figure]:
    client = Client(port)
    healthz = float(np.median([client.ask("/healthz")[0] for _ in range(200)]))
    for kind in kinds(size):
        times = max(10, kind.times // (10 if conditions.quick else 1))
        for number in range(5):
            client.ask(kind.path(number + 10**6))
        before = _cpu_s(tree)
        asked = [client.ask(kind.path(number)) for number in range(times)]
        cpu_ms = (_cpu_s(tree) - before) / times * 1e3
        at_client = np.array([seconds for seconds, _ in asked]) * 1e3
        told = [at_server for _, at_server in asked]
        at_server = np.array(told) if None not in told else np.maximum(at_client - healthz * 1e3, 0.0)
        by = "Server-Timing" if None not in told else f"client less {healthz * 1e3:.2f} ms of /healthz"
        remark = f"{cpu_ms:.1f} ms of CPU; by {by}; at the client {_spread(at_client)}"
        yield _figure(f"{kind.what}, {when}", at_server, kind.reach, remark)


def _cpu_s(tree: Tree) -> float:
    """Of the query service: what a question costs also when others keep the machine busy."""
    return tree.cpu_s_by_kind().get("query", 0.0)


def _duck(conditions: Conditions, duck: Duck) -> Iterator[Figure]:
    for what, ask in duck.questions().items():
        found = []
        for number in range(conditions.choose(full=60, quick=5)):
            begun = time.perf_counter()
            ask(number)
            found.append(time.perf_counter() - begun)
        yield _figure(f"{what}, DuckDB", np.array(found) * 1e3, None, "in process, quiet")


def _figure(what: str, found: Times, reach: Reach | None, remark: str) -> Figure:
    p50, p95, p99 = np.percentile(found, (50, 95, 99)).tolist()
    details = {"p50": p50, "p95": p95, "p99": p99, "times": len(found)}
    return Figure(BENCHMARK, f"{what}: p99", p99, "ms", reach, f"p50 {p50:.2f}, p95 {p95:.2f}; {remark}", details)


def _spread(found: Times) -> str:
    return "p50 {:.2f}, p99 {:.2f}".format(*np.percentile(found, (50, 99)))


@contextmanager
def _under_load(folder: Path) -> Iterator[tuple[int, Tree, Callable[[], float]]]:
    """The port of the query service of a whole Tallymark that takes in events; afterwards, what rate it held."""
    port, asked = free_port("127.0.0.1"), free_port("127.0.0.1")
    command = [sys.executable, "-m", "bench.pour", str(port), str(RATE)]
    held = 0.0
    with tallymark(folder, "up", "--port", str(port), "--set", f"query.port={asked}") as tree:
        await_first_count(port, tree)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as pouring:
            try:
                time.sleep(SETTLE_S)
                yield asked, tree, lambda: held
                if pouring.poll() is not None:
                    raise Broken("the load ended before the questions did; its error is above")
            finally:
                pouring.terminate()
                held = float(pouring.communicate()[0] or 0)


class Client:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, path: str) -> tuple[float, float | None]:
        """Seconds until the whole answer was here; milliseconds at the server, if it says so."""
        begun = time.perf_counter()
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        body = response.read()
        seconds = time.perf_counter() - begun
        if response.status != 200:
            raise Broken(f"{path[:100]} answered {response.status}: {body[:300]!r}")
        timing = response.headers.get("server-timing", "")
        return seconds, float(timing.split("dur=")[1]) if "dur=" in timing else None
