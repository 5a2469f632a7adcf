"""Readers in other threads and processes see every delta exactly once, while fold and roll are at work."""

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.synchronize import Event as ProcessEvent
from pathlib import Path

import polars as pl
import pytest

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.sqlite.store import SqliteStore

MIDNIGHT = 20_000 * DAY_S
SERIES = 40
BATCH = 4 * SERIES
VIEWS = Meter("views", ("view",), by=("video",))


def batch(number: int, meter_id: int) -> StretchResult:
    """For each series an event in this hour, a late one in each of the two before, and one two days ago."""
    now = MIDNIGHT + 10 * HOUR_S + number * 600
    cells = [
        (meter_id, f"v{series}", (now - age) // 60 * 60, 1, 0, None, None, None, None)
        for series in range(SERIES)
        for age in (0, HOUR_S, 2 * HOUR_S, 2 * DAY_S)
    ]
    frame = pl.DataFrame(cells, schema=deltas.SCHEMA, orient="row")
    ledger = Ledger(accepted=BATCH, counted=BATCH)
    return StretchResult(
        Stretch(0, number * BATCH, (number + 1) * BATCH), "log", 2, (1, meter_id), deltas.encode(frame), ledger
    )


def watch(store: SqliteStore, finished: Callable[[], bool]) -> tuple[int, list[str]]:
    """(looks, what was wrong): every answer must equal the ledger of the same snapshot."""
    meter = store.meter("views")
    looks, wrong = 0, []
    while not finished() or looks == 0:
        with store.snapshot() as snapshot:
            expected = sum(ledger.counted for ledger in snapshot.ledger().values())
            for by, step_s in (((), None), ((), 60), ((), HOUR_S), (("video",), DAY_S)):
                answer = snapshot.read(meter, where={}, by=by, start_s=None, end_s=None, step_s=step_s)
                if answer["n"].sum() != expected:
                    wrong.append(f"{answer['n'].sum()} instead of {expected} by {by} step {step_s} at {snapshot.marks}")
        looks += 1
    return looks, wrong


def watch_in_a_process(
    path: Path, finished: ProcessEvent, ready: ProcessEvent, results: "multiprocessing.Queue[object]"
) -> None:
    store = SqliteStore(path)
    ready.set()
    results.put(watch(store, finished.is_set))
    store.close()


def work(store: SqliteStore, meter_id: int) -> None:
    """Applies, folds and rolls in small steps, as time goes on."""
    for number in range(60):
        store.apply([batch(number, meter_id)], now_ms=0)
        if number % 3 == 2:
            store.fold(most_points=100)
        now_s = MIDNIGHT + 10 * HOUR_S + number * 600
        for _ in range(4):
            store.roll(now_ms=now_s * 1000, delay_s=120, slice_series=7)
        if number % 10 == 9:
            store.prune(now_ms=10**15, journal_keep_ms=0, letter_bytes=0)
            store.checkpoint()


@pytest.mark.parametrize("threads", [2])
def test_readers_never_see_a_delta_twice_or_not_at_all(store: SqliteStore, threads: int) -> None:
    meter = store.put_meter(VIEWS, now_ms=0)
    context = multiprocessing.get_context("spawn")  # Polars does not survive a fork
    finished, ready, results = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=watch_in_a_process, args=(store.path, finished, ready, results))
    process.start()
    found: list[tuple[int, list[str]]] = []
    watchers = [threading.Thread(target=lambda: found.append(watch(store, finished.is_set))) for _ in range(threads)]
    try:
        assert ready.wait(30)
        for watcher in watchers:
            watcher.start()
        work(store, meter.meter_id)
    finally:
        finished.set()
        for watcher in watchers:
            watcher.join()
    found.append(results.get(timeout=30))
    process.join()
    assert store.marks().days_through > MIDNIGHT - DAY_S
    for looks, wrong in found:
        assert wrong == []
        assert looks > 3
