"""A store as the product would have it after a day: 10,000 videos by the minute, 2,000 servers with percentiles.

Everything goes through the journal and is folded and rolled by the store's own upkeep, in larger bites than the keeper
takes, since nobody waits for the lock meanwhile.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tallymark.aggregates import sketch
from tallymark.meters import from_mapping
from tallymark.settings import Settings
from tallymark.store import deltas, open_store
from tallymark.store.model import RegisteredMeter
from tallymark.store.sqlite.store import SqliteStore

VIDEOS: dict[str, object] = {
    "name": "videos",
    "event": ["view", "click", "like"],
    "by": ["video"],
    "compute": ["count", "sum", "min", "max"],
}
SERVERS: dict[str, object] = {"name": "latency", "event": "click", "by": ["server"], "compute": ["count", "p99"]}
MINUTE_S, HOUR_S = 60, 3_600
FOLD_POINTS = 100_000
# Of the journal, out of the way of the partitions that the pipeline writes.
PARTITION = 1_000_000
# The slot of values from just above 1 to 2^(1/32).
FIRST_POSITIVE = 131_072


@dataclass(frozen=True)
class Size:
    videos: int
    minutes: int
    servers: int
    server_minutes: int
    values: int
    """of each server in a minute"""


FULL = Size(10_000, 1_470, 2_000, 100, 60)
QUICK = Size(1_000, 180, 2_000, 100, 10)


def open_sqlite(folder: Path) -> SqliteStore:
    store = open_store(Settings(data=str(folder)))
    assert isinstance(store, SqliteStore)
    return store


def put_meter(store: SqliteStore, definition: dict[str, object]) -> RegisteredMeter:
    return store.registry.put_meter("main", from_mapping(definition), now_ms=time.time_ns() // 1_000_000)


def videos(meter: RegisteredMeter, size: Size, now_s: int) -> Iterator[pl.DataFrame]:
    """Deltas of the last `minutes`, an hour at a time: every video in every minute."""
    chance = np.random.default_rng(1)
    names = pl.Series([f"video-{number}" for number in range(size.videos)])
    popularity = 1.0 / np.arange(1, size.videos + 1) ** 0.8
    last = now_s // MINUTE_S * MINUTE_S
    for start in range(last - (size.minutes - 1) * MINUTE_S, last + MINUTE_S, HOUR_S):
        minutes = np.arange(start, min(start + HOUR_S, last + MINUTE_S), MINUTE_S)
        rows = size.videos * len(minutes)
        n = 1 + chance.poisson(np.repeat(popularity * 200, len(minutes)))
        mean = np.round(chance.lognormal(3, 1, rows), 3)
        yield _frame(
            meter.set_id,
            names.gather(np.repeat(np.arange(size.videos), len(minutes))),
            np.tile(minutes, size.videos),
            {"n": n, "n_value": n, "sum": n * mean, "min": mean * 0.5, "max": mean * 2.0},
        )


@dataclass(frozen=True)
class Histograms:
    """Sketches of log-normal latencies: of each server in each minute."""

    server: npt.NDArray[np.int64]
    bucket_s: npt.NDArray[np.int64]
    slots: sketch.Slots
    """by the place of server and minute above"""

    def long_form(self) -> pl.DataFrame:
        row, slot, number = self.slots
        return pl.DataFrame(
            {"server": self.server[row], "bucket_s": self.bucket_s[row], "slot": slot, "number": number}
        )


def histograms(size: Size, now_s: int) -> Iterator[Histograms]:
    """Of the last minutes, ten at a time."""
    chance = np.random.default_rng(2)
    last = now_s // MINUTE_S * MINUTE_S
    for start in range(last - (size.server_minutes - 1) * MINUTE_S, last + MINUTE_S, 10 * MINUTE_S):
        minutes = np.arange(start, min(start + 10 * MINUTE_S, last + MINUTE_S), MINUTE_S)
        points = size.servers * len(minutes)
        row = np.repeat(np.arange(points), size.values)
        slots = sketch.merge(sketch.Slots(row, latency_slots(chance, len(row)), np.ones(len(row), np.int64)))
        yield Histograms(np.repeat(np.arange(size.servers), len(minutes)), np.tile(minutes, size.servers), slots)


def latency_slots(chance: np.random.Generator, values: int) -> npt.NDArray[np.int64]:
    # The slots of a histogram; by a logarithm, since nobody compares them with counted events.
    return FIRST_POSITIVE + np.ceil(32 * np.log2(chance.lognormal(3, 1, values))).astype(np.int64) - 1


def servers(meter: RegisteredMeter, found: Histograms, size: Size) -> pl.DataFrame:
    """Deltas with these sketches."""
    points = len(found.server)
    n = np.bincount(found.slots.row, weights=found.slots.number, minlength=points).astype(np.int64)
    names = pl.Series([f"web-{number}" for number in range(size.servers)])
    columns = {"n": n, "n_value": n, "sketch": sketch.write(found.slots, points)}
    return _frame(meter.set_id, names.gather(found.server), found.bucket_s, columns)


def journal(store: SqliteStore, frame: pl.DataFrame) -> None:
    """One entry, as the sink writes them, but of no stretch of any log."""
    connection = store._connections.mine()
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE marks SET value = value + 1 WHERE name = 'journal_end'")
    connection.execute(
        "INSERT INTO journal SELECT ?, value, value + 1, value, 0, ? FROM marks WHERE name = 'journal_end'",
        (PARTITION, deltas.encode(frame)),
    )
    connection.execute("COMMIT")


def fold(store: SqliteStore, *, most_points: int = FOLD_POINTS) -> None:
    while store.upkeep.fold(most_points=most_points).more:
        pass


def settle(store: SqliteStore, now_s: int) -> None:
    """Folded, rolled, pruned and in the file, as after a quiet minute."""
    fold(store)
    while store.upkeep.roll(now_ms=now_s * 1000, delay_s=120, slice_series=FOLD_POINTS):
        pass
    store.upkeep.prune(now_ms=now_s * 1000, journal_keep_ms=30_000, letter_bytes=10**9)
    store.upkeep.checkpoint()


def size_of(folder: Path) -> int:
    """Bytes of the store's file, without its write-ahead log."""
    return sum(path.stat().st_size for path in folder.rglob("*.db"))


def packed_size(store: SqliteStore) -> int:
    """Bytes of the store's pages that are in use, packed."""
    connection = store._connections.mine()
    connection.execute("VACUUM")
    return int(
        connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
    )


def _frame(set_id: int, series: pl.Series, buckets: object, values: dict[str, object]) -> pl.DataFrame:
    keys = {"meter": pl.repeat(set_id, len(series), dtype=pl.Int32, eager=True), "series": series, "bucket_s": buckets}
    found = pl.DataFrame({**keys, **values})
    given = {name: kind for name, kind in deltas.SCHEMA.items() if name in found.columns}
    return pl.concat([deltas.empty(), found.cast(given)], how="diagonal")
