"""Saved queries: how soon after a window is complete all of them have stored it, and what that costs the keeper.

A real keeper on a store that gets a batch a second, in which each of 10,000 series has an event with a number: 1,000
servers with ten routes each. 1,000 saved queries of one minute: of single servers, of all servers of a route (with a
p99 over a thousand servers), of everything by route, and the ten largest servers. Every window that is timed is also
one that the keeper folds meanwhile.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from bench.figure import Conditions, Figure, at_most
from bench.hot_store import journal, latency_slots, open_sqlite, put_meter
from bench.processes import Tree, tallymark, wait_until
from tallymark import log as logs
from tallymark.aggregates import sketch
from tallymark.evaluation import definition
from tallymark.evaluation.definition import Definition
from tallymark.settings import Settings
from tallymark.store import deltas
from tallymark.store.deltas import SEPARATOR
from tallymark.store.sqlite.store import SqliteStore

BENCHMARK = "saved"
SERVERS, ROUTES = 1_000, 10
METER: dict[str, object] = {
    "name": "latency",
    "event": "rpc",
    "by": ["server", "route"],
    "compute": ["count", "sum", "min", "max", "p99"],
}
MINUTE_S = 60
# Looking reads a row for each query, which takes CPU from the keeper.
POLL_S = 0.1


def queries(count: int) -> dict[str, str]:
    """Of every ten: six of a server, two of some routes over all servers, one by route, one of the largest servers."""
    made = {}
    for number in range(count):
        server = f"web-{number * 7 % SERVERS}"
        # As bits, so that no two queries ask for the same.
        routes = ", ".join(f"'/r{route}'" for route in range(ROUTES) if (number // 10 + 1) >> route & 1)
        match number % 10:
            case 0 | 1 | 2 | 3 | 4 | 5:
                text = f"FROM {server} SELECT latency WINDOW 1m COMPUTE count, avg, max BY route"
            case 6 | 7:
                text = f"FROM * SELECT latency WINDOW 1m COMPUTE count, p99 WHERE route IN ({routes})"
            case 8:
                text = f"FROM * SELECT latency WINDOW 1m COMPUTE count, sum WHERE route IN ({routes}) BY route"
            case _:
                text = f"FROM * SELECT latency WINDOW 1m COMPUTE count WHERE route IN ({routes}) BY server LIMIT 10"
        made[f"query-{number}"] = text
    return made


def measure(conditions: Conditions) -> Iterator[Figure]:
    count, minutes = conditions.choose(full=1_000, quick=100), conditions.choose(full=3, quick=1)
    folder = conditions.folder / "saved"
    store = open_sqlite(folder)
    logs.open_writer(Settings(data=str(folder)), "events").close()
    meter = put_meter(store, METER)
    for name, text in queries(count).items():
        body = definition.encode(Definition(str(definition.parse(text))))
        store.documents.put("query", "main", name, body, now_ms=time.time_ns() // 1_000_000)
    with tallymark(folder, "keeper") as keeper:
        yield from _measured(Batches(store, meter.set_id), keeper, count, minutes)
    yield _size(folder, store, count)
    store.close()


class Batches:
    """A batch a second: an event of every series."""

    def __init__(self, store: SqliteStore, set_id: int) -> None:
        self.store, self._set_id = store, set_id
        self._chance = np.random.default_rng(3)
        self._names = [f"web-{server}{SEPARATOR}/r{route}" for server in range(SERVERS) for route in range(ROUTES)]
        self._next = time.time()

    def until(self, end: float) -> None:
        while self._next < end:
            time.sleep(max(0.0, self._next - time.time()))
            journal(self.store, self._batch(int(time.time()) // MINUTE_S * MINUTE_S))
            self._next = max(self._next + 1.0, time.time())

    def _batch(self, bucket_s: int) -> pl.DataFrame:
        rows = len(self._names)
        value = np.round(self._chance.lognormal(3, 1, rows), 3)
        slots = sketch.Slots(np.arange(rows), latency_slots(self._chance, rows), np.ones(rows, np.int64))
        ones = np.ones(rows, np.int64)
        frame = pl.DataFrame(
            {
                "meter": pl.Series(np.full(rows, self._set_id), dtype=pl.Int32),
                "series": self._names,
                "bucket_s": np.full(rows, bucket_s),
                "n": ones,
                "n_value": ones,
                "sum": value,
                "min": value,
                "max": value,
                "sketch": sketch.write(slots, rows),
            }
        )
        return deltas.merge([frame.with_columns(_missing(frame)).select(deltas.SCHEMA.names())])


def _missing(frame: pl.DataFrame) -> list[pl.Expr]:
    return [pl.lit(None, kind).alias(name) for name, kind in deltas.SCHEMA.items() if name not in frame.columns]


def _measured(batches: Batches, keeper: Tree, count: int, minutes: int) -> Iterator[Figure]:
    store = batches.store
    first = (int(time.time()) // MINUTE_S + 1) * MINUTE_S
    batches.until(first)
    # The keeper may still be starting.
    wait_until(lambda: _stored(store, first) == count, "the first window", deadline_s=150.0)
    first = int(time.time()) // MINUTE_S * MINUTE_S
    waits, began, cpu_s = [], time.time(), keeper.cpu_s()
    rounds = []
    for minute in range(1, minutes + 1):
        end = first + minute * MINUTE_S
        batches.until(end)
        used = keeper.cpu_s()
        wait_until(lambda end=end: _stored(store, end) == count, f"window {minute}", deadline_s=50.0, poll_s=POLL_S)  # type: ignore[misc]
        waits.append(time.time() - end)
        rounds.append(keeper.cpu_s() - used)
    share = (keeper.cpu_s() - cpu_s) / (time.time() - began)
    details = {"seconds": [round(each, 2) for each in waits], "cpu_s": [round(each, 2) for each in rounds]}
    what = f"{count:,} queries of a minute over {SERVERS * ROUTES:,} series: all stored after the window's end"
    yield Figure(BENCHMARK, what, max(waits), "s", at_most(2.0), "the slowest of the windows", details)
    yield Figure(BENCHMARK, "CPU of the keeper until then", float(np.mean(rounds)), "s", remark="of each window")
    yield Figure(
        BENCHMARK, "CPU share of the keeper, folding included", share, "cores", remark="10,000 points a batch, 1/s"
    )


def _stored(store: SqliteStore, end_s: int) -> int:
    return sum(each.through_s >= end_s for each in store.windows.lineages())


def _size(folder: Path, store: SqliteStore, count: int) -> Figure:
    lineages = store.windows.lineages()
    windows = sum(each.windows for each in lineages)
    held = sum(len(body) for each in lineages for _, body in store.windows.read(each, each.from_s, each.next_s))
    return Figure(BENCHMARK, "size of a stored window", held / max(1, windows), "bytes", details={"windows": windows})
