"""Keeping: the keeper's CPU and the bytes of a point for 10,000 series at 20,000 events/s, plain and with sketches.

No Spark and no HTTP: deltas as the pipeline would make them, folded every two seconds of event time in the slices that
the keeper takes, then rolled.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from bench import hot_store
from bench.figure import Conditions, Figure
from tallymark.aggregates import sketch
from tallymark.store import deltas

BENCHMARK = "keeping"
SERIES = 10_000
EVENTS_A_FOLD = 40_000
FOLDS_A_MINUTE = 30
FOLD_POINTS = 5_000
VALUES = EVENTS_A_FOLD * FOLDS_A_MINUTE // SERIES
REGISTERS = 4_096

Numbers = npt.NDArray[np.int64]
Slots = Callable[[np.random.Generator, int], Numbers]


@dataclass(frozen=True)
class Kind:
    name: str
    compute: list[str]
    slots: Slots | None
    rest: dict[str, object]


def measure(conditions: Conditions) -> Iterator[Figure]:
    minutes = conditions.choose(full=4, quick=2)
    for kind in (
        Kind("count", ["count"], None, {}),
        Kind("p99", ["count", "p99"], hot_store.latency_slots, {}),
        Kind("distinct", ["count", "distinct"], _registers, {"distinct": "user"}),
    ):
        yield from _kept(conditions, kind, minutes)


def _kept(conditions: Conditions, kind: Kind, minutes: int) -> Iterator[Figure]:
    folder = conditions.folder / f"keeping-{kind.name}"
    store = hot_store.open_sqlite(folder)
    definition = {"name": "kept", "event": "view", "by": ["video"], "compute": kind.compute, **kind.rest}
    meter = hot_store.put_meter(store, definition)
    hour = int(time.time()) // 3_600 * 3_600 - 7_200
    chance = np.random.default_rng(3)
    first, cpu = 0, 0.0
    for minute in range(minutes):
        for _ in range(FOLDS_A_MINUTE):
            hot_store.journal(store, _deltas(chance, kind, meter.set_id, hour + 60 * minute))
            begun = time.process_time()
            hot_store.fold(store, most_points=FOLD_POINTS)
            cpu += time.process_time() - begun
        store.upkeep.prune(now_ms=hour * 1000, journal_keep_ms=0, letter_bytes=0)
        # The first minute brings the series, too.
        first = first or hot_store.packed_size(store)
    size = (hot_store.packed_size(store) - first) / (SERIES * (minutes - 1))
    begun = time.process_time()
    hot_store.settle(store, int(time.time()))
    rolled = time.process_time() - begun
    store.close()
    remark = (
        f"{SERIES:,} series, {VALUES} values a minute; {size * 1.44:,.0f} kB a series and day, hours and days beside it"
    )
    yield Figure(BENCHMARK, f"bytes per point: {kind.name}", size, "bytes", None, remark)
    each = cpu / (SERIES * minutes * FOLDS_A_MINUTE) * 1e6
    remark = (
        f"{EVENTS_A_FOLD // 2:,} events/s, folded every 2 s: {each:.0f} us a point; its hour rolled in {rolled:.1f} s"
    )
    yield Figure(BENCHMARK, f"the keeper's CPU: {kind.name}", 100 * cpu / (60 * minutes), "% of a core", None, remark)


def _deltas(chance: np.random.Generator, kind: Kind, set_id: int, bucket_s: int) -> pl.DataFrame:
    events = pl.DataFrame({"video": chance.integers(0, SERIES, EVENTS_A_FOLD)})
    counts = events.group_by("video").agg(n=pl.len()).sort("video")
    found = counts.select(
        pl.lit(set_id, pl.Int32).alias("meter"),
        pl.format("video-{}", "video").alias("series"),
        pl.lit(bucket_s, pl.Int64).alias("bucket_s"),
        pl.col("n").cast(pl.Int64),
        pl.col("n").cast(pl.Int64).alias("n_value"),
    )
    if kind.slots is not None:
        row = np.searchsorted(counts["video"].to_numpy(), events["video"].to_numpy())
        slots = sketch.Slots(row, kind.slots(chance, EVENTS_A_FOLD), np.ones(EVENTS_A_FOLD, np.int64))
        found = found.with_columns(sketch.write(sketch.merge(slots), counts.height))
    return pl.concat([deltas.empty(), found], how="diagonal")


def _registers(chance: np.random.Generator, events: int) -> Numbers:
    return sketch.FIRST_REGISTER + chance.integers(0, REGISTERS, events)
