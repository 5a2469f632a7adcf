"""What one meter makes of a tenant's events: which of them it takes, and the deltas they add."""

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from tallymark.aggregates import columns, exact
from tallymark.aggregates.functions import HISTOGRAM, VERSION_COLUMN, columns_for, kept_for
from tallymark.meters.compile import to_polars
from tallymark.meters.expression import parse
from tallymark.meters.model import Late, Meter
from tallymark.pipeline.counting import sketches
from tallymark.pipeline.counting.decode import MOST_VALUES, Decoded
from tallymark.pipeline.counting.properties import PropertyColumns, number_column, text_column
from tallymark.store import deltas
from tallymark.store.model import RegisteredMeter

# Sums of money are exact integers (`aggregates.exact`): beyond 2^53 units a float could not say which integer it means.
LARGEST_EXACT = 2.0**53
# Below it no sum of as many values as can be counted is infinite, whatever the order. An infinite sum would stay so.
LARGEST = 1e280

_IS_LATE = "is_late"


def with_buckets(table: pl.DataFrame, meters: Iterable[RegisteredMeter]) -> pl.DataFrame:
    """With a column for each grain that one of the meters has."""
    grains = {registered.meter.grain_s for registered in meters}
    return table.with_columns(
        (pl.col("time") // (grain_s * 1000) * grain_s).alias(_bucket(grain_s)) for grain_s in grains
    )


def _bucket(grain_s: int) -> str:
    return f"bucket:{grain_s}"


def matching(table: pl.DataFrame, registered: RegisteredMeter) -> pl.Series | None:
    """Which events the meter is about; None for all."""
    meter = registered.meter
    conditions = []
    if meter.events:
        conditions.append(pl.col("event").is_in(list(meter.events)))
    if meter.where:
        conditions.append(to_polars(parse(meter.where), PropertyColumns()))
    if not conditions:
        return None
    return table.select(pl.all_horizontal(conditions).fill_null(False).alias("matched")).to_series()


def taken(table: pl.DataFrame, matched: pl.Series | None, registered: RegisteredMeter) -> pl.Series | None:
    """Which of the matched events count somewhere: all but the late ones of a meter that drops them. None for all."""
    late = registered.meter.late
    if late is None or late.then != "drop":
        return matched
    on_time = table.select(~is_late(late)).to_series()
    return on_time if matched is None else matched & on_time


def is_late(late: Late) -> pl.Expr:
    """By the event alone: so it is the same whenever the event is counted, and whatever others there are."""
    return pl.col("received") - pl.col("time") > late.after_s * 1000


def measure(events: Decoded, matched: pl.Series | None, registered: RegisteredMeter) -> Iterator[pl.DataFrame]:
    """The meter's aggregates per series and bucket, in one part or several. The table is `with_buckets`."""
    meter = registered.meter
    rows = events.table if matched is None else events.table.filter(matched)
    needed = columns_for(("count", *meter.compute), decimals=meter.decimals)
    chosen = [pl.col("row"), pl.col(_bucket(meter.grain_s)).alias("bucket_s"), _number(meter).alias("number")]
    chosen += [_label(name).alias(f"label{number}") for number, name in enumerate(meter.by)]
    chosen += [pl.col("time")] if columns.uses_time(needed) else []
    chosen += [_label(meter.distinct).alias(sketches.TEXT)] if meter.distinct else []
    chosen += [is_late(meter.late).alias(_IS_LATE)] if meter.late else []
    rows = rows.select(chosen)
    if not meter.each:
        yield from _sets(rows, registered)
        return
    rows = rows.drop("number")
    stored = registered.stored_metrics
    # One record alone may hold more named numbers than a slice should.
    for values in events.values.iter_slices(MOST_VALUES):
        if stored is not None:
            is_stored = values["metric"].is_in(list(stored))
            yield _dropped(rows, values["row"].filter(~is_stored), registered)
            values = values.filter(is_stored)
        yield from _sets(rows.join(values, on="row").rename({"metric": f"label{len(meter.by)}"}), registered)


def _number(meter: Meter) -> pl.Expr:
    if meter.weights:
        weights = dict(meter.weights)
        return pl.col("event").replace_strict(list(weights), list(weights.values()), return_dtype=pl.Float64)
    return pl.col(number_column(meter.value)) if meter.value else pl.col("value")


def _label(name: str) -> pl.Expr:
    return pl.col("event") if name == "event" else pl.col(text_column(name)).fill_null("")


def _sets(rows: pl.DataFrame, registered: RegisteredMeter) -> Iterator[pl.DataFrame]:
    """The deltas of the meter's own set, and those of its late set if it looks for late events."""
    late = registered.meter.late
    if late is None or not rows[_IS_LATE].any():
        yield _aggregated(rows, registered, set_id=registered.set_id)
        return
    late_rows = rows.filter(_IS_LATE)
    yield _aggregated(
        rows if late.then == "count" else rows.filter(~pl.col(_IS_LATE)), registered, set_id=registered.set_id
    )
    if late.then == "aside":
        yield _aggregated(late_rows, registered, set_id=registered.late_set_id)
    else:
        yield _only_counted(late_rows, registered)


def _aggregated(rows: pl.DataFrame, registered: RegisteredMeter, *, set_id: int) -> pl.DataFrame:
    meter = registered.meter
    labels = [f"label{number}" for number in range(len(meter.labels))]
    needed = columns_for(("count", *meter.compute), decimals=meter.decimals)
    kept = kept_for(meter.compute, decimals=meter.decimals)
    aggregates = columns.of_events(needed)
    # What is usable becomes columns first: within the aggregates it would be worked out again wherever it is used.
    ready = rows.lazy().with_columns(usable(meter.decimals) if kept & {"n_value", HISTOGRAM} else ())
    if columns.SKETCH in needed:
        ready = sketches.with_slots(ready.collect(), kept).lazy()
        aggregates += sketches.lists(kept)
    groups = ready.group_by([*labels, "bucket_s"]).agg(aggregates)
    if columns.SKETCH in needed:
        groups = sketches.encoded(groups.collect()).lazy()
    series = pl.concat_str(labels, separator=deltas.SEPARATOR) if labels else pl.lit("")
    return groups.select(_as_deltas(registered, set_id, series)).collect()


def _only_counted(rows: pl.DataFrame, registered: RegisteredMeter) -> pl.DataFrame:
    """Late events that count elsewhere or nowhere: how many, in the one series without labels of the late set."""
    series = pl.lit(deltas.SEPARATOR.join("" for _ in registered.labels))
    counted = rows.lazy().group_by("bucket_s").agg(columns.of_events({"n"}))
    return counted.select(_as_deltas(registered, registered.late_set_id, series)).collect()


def _dropped(rows: pl.DataFrame, row_of_each: pl.Series, registered: RegisteredMeter) -> pl.DataFrame:
    """How many named numbers are dropped, given the event of each: a mere count, in a set of its own."""
    # By places, not by a join: there may be a thousand of them for each that is stored.
    row = rows["row"].to_numpy()
    of_row = np.bincount(row_of_each.to_numpy(), minlength=1 + row.max(initial=0))
    counted = pl.DataFrame({"bucket_s": rows["bucket_s"], "n": of_row[row]})
    others = [expr for expr in columns.of_events(()) if expr.meta.output_name() != "n"]
    groups = counted.lazy().group_by("bucket_s").agg(pl.col("n").sum(), *others).filter(pl.col("n") > 0)
    series = pl.lit(deltas.SEPARATOR.join("" for _ in registered.labels))
    return groups.select(_as_deltas(registered, registered.dropped_set_id, series)).collect()


def _as_deltas(registered: RegisteredMeter, set_id: int, series: pl.Expr) -> list[pl.Expr]:
    return [
        pl.lit(set_id, pl.Int32).alias("meter"),
        series.alias("series"),
        *(pl.col(name) for name in deltas.SCHEMA if name not in ("meter", "series", VERSION_COLUMN)),
        pl.lit(registered.counts_as, pl.Int64).alias(VERSION_COLUMN),
    ]


def usable(decimals: int | None) -> list[pl.Expr]:
    """The column `number` without what counts as no value, and with `decimals` the same in whole `units`."""
    number = pl.col("number")
    number = pl.when(number.abs() < LARGEST).then(number)  # neither for what is infinite nor for what is no number
    if decimals is None:
        return [number.alias("number")]
    units = exact.units(number, decimals)
    units = pl.when(units.abs() < LARGEST_EXACT).then(units).cast(pl.Int64)
    return [pl.when(units.is_not_null()).then(pl.col("number")).alias("number"), units.alias("units")]
