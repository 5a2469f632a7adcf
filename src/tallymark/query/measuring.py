"""The value of one function for each series: over a whole range, or the greatest (least, average) of its windows."""

from collections.abc import Mapping

import polars as pl

from tallymark.aggregates.functions import VERSION_COLUMN, Value, columns_for
from tallymark.evaluation.values import NOTHING, values
from tallymark.fidelity.freshness import Freshness
from tallymark.query import windows
from tallymark.query.parsing import Question
from tallymark.query.ranges import Range
from tallymark.query.reading import key_columns
from tallymark.query.windows import REPEATS, Window


def measured(question: Question, span: Range, rows: pl.DataFrame, name: str, fresh: Freshness) -> pl.DataFrame:
    """The labels of each series, its `value`, and with a window where it starts (`at`)."""
    keys = key_columns(question)
    if question.window is None:
        seconds = span.seconds(fresh.now_ms / 1000)
        value = _values(question, rows, name, None if seconds is None else [seconds] * rows.height)
        return pl.DataFrame([*(rows[key] for key in keys), value]).with_columns(at=pl.lit(None, pl.Int64))
    assert span.start_s is not None
    assert span.end_s is not None
    grain_s, buckets = question.meter.meter.grain_s, question.window.buckets
    end_s = _end_s(question.window, (span.start_s, span.end_s), grain_s, fresh)
    # Only what this function needs: windows of counts alone are sums, which take a quarter of the time.
    own = columns_for(("count", name), decimals=question.meter.meter.decimals) | {VERSION_COLUMN}
    needed = [column for column in rows.columns if column in own]
    within = rows.filter(pl.col("bucket_s") < end_s).select(*keys, "bucket_s", *needed)
    slid = windows.over_grains(within, keys, (span.start_s, end_s), buckets=buckets, grain_s=grain_s)
    # In full, also if it is not over: the rate of one that has hardly begun may be anything, and would be a peak.
    lengths_s = [float(buckets * grain_s)] * slid.height
    found = slid.select(*keys, "bucket_s", REPEATS).with_columns(_values(question, slid, name, lengths_s))
    chosen = _chosen(question.window.over)
    if not keys:
        return found.select(chosen)
    measures = found.group_by(keys, maintain_order=True).agg(chosen)
    # Those with events in windows that still fill only: in the others they had none.
    others = rows.select(keys).unique().join(measures, on=keys, how="anti")
    nothing = pl.Series("value", [empty(question, name)] * others.height, dtype=measures.schema["value"])
    return pl.concat([measures, others.with_columns(nothing, at=pl.lit(None, pl.Int64))])


def _end_s(window: Window, span: tuple[int, int], grain_s: int, fresh: Freshness) -> int:
    """Where the last window ends. One that still fills may be the greatest, but is too small for least and average."""
    start_s, end_s = span
    if window.over == "max" or fresh.complete_through_ms is None:
        return end_s
    complete_s = fresh.complete_through_ms // 1000 // grain_s * grain_s
    return min(end_s, complete_s) if complete_s - start_s >= window.buckets * grain_s else end_s


def _chosen(over: str) -> list[pl.Expr]:
    """Of all windows of a series; of equal ones the first. Windows without a value do not matter."""
    value, repeats = pl.col("value"), pl.col(REPEATS)
    if over == "avg":
        whole = repeats.filter(value.is_not_null()).sum()
        average = (value.cast(pl.Float64) * repeats).sum() / whole
        return [pl.when(whole > 0).then(average).alias("value"), pl.lit(None, pl.Int64).alias("at")]
    best = value.max() if over == "max" else value.min()
    return [best.alias("value"), pl.col("bucket_s").filter(value == best).first().alias("at")]


def growth(question: Question, rows: Mapping[Range, pl.DataFrame], name: str, fresh: Freshness) -> pl.DataFrame:
    """As `measured`, but by how much the value is more than in the range compared with. A series may be in one only."""
    assert question.comparison is not None
    keys, none = key_columns(question), empty(question, name)
    now, before = (
        measured(question, span, rows[span], name, fresh).select(*keys, "value", there=True)
        for span in (question.range, question.comparison.range)
    )
    both = now.join(before, on=keys, how="full", coalesce=True, suffix="_before")
    value, earlier = (
        pl.when(pl.col(f"there{side}").is_not_null()).then(pl.col(f"value{side}")).otherwise(pl.lit(none))
        for side in ("", "_before")
    )
    return both.select(*keys, (value - earlier).alias("value"))


def empty(question: Question, name: str) -> Value:
    """Of a series without events."""
    value = values(NOTHING, (name,), question.meter, seconds=[1.0])[0][name]
    is_average = question.window is not None and question.window.over == "avg"
    return float(value) if is_average and value is not None else value


def _values(question: Question, rows: pl.DataFrame, name: str, seconds: list[float] | None) -> pl.Series:
    found = [value[name] for value in values(rows, (name,), question.meter, seconds=seconds)]
    if any(value is not None for value in found):
        return pl.Series("value", found, strict=False)
    # Nulls do not tell their type; what a series without events has does. Exact sums must not become floats.
    none = empty(question, name)
    return pl.Series("value", found, dtype=pl.Float64 if none is None else pl.Series([none]).dtype)
