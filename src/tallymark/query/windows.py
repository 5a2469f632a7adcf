"""Windows: a stretch of fixed length that moves over the range, step by step or grain by grain.

A window is the merge of the rows that lie in it. Rows are sorted by series and bucket, so those of a window stand next
to each other, and all windows are merged in log2(rows of a window) passes, whatever the aggregates are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from tallymark.aggregates import columns
from tallymark.aggregates.rules import Count
from tallymark.evaluation.steps import Fixed, Step
from tallymark.http import Problem
from tallymark.query import lengths, limits
from tallymark.query.lengths import to_text
from tallymark.query.ranges import Range
from tallymark.settings import QuerySettings

OVER = ("max", "min", "avg")
REPEATS = "repeats"
"""column: in how many windows in a row, each a grain later, the same rows lie"""
# Of the sketches in all windows together, each counted with every row it is merged from.
MOST_SKETCH_BYTES = 60_000_000

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """How long it is and how it moves."""

    text: str
    buckets: int
    """steps of a series, or grains"""
    over: str = ""
    """which of all windows is the answer of a total or top; empty in a series, where each is a point"""


def hopping(text: str, step: Step, step_text: str, *, zone_is_utc: bool) -> Window:
    """That of a series: a window for every step."""
    length = lengths.parse("window", text, code="bad_window")
    own = step.length
    if isinstance(step, Fixed):
        if length.months or (length.days and not zone_is_utc):
            same = f"window={24 * length.days}h" if length.days else "days"
            detail = f"window = {text!r} has no fixed length, but the step, {step_text}, has; write {same}"
            raise Problem(400, "bad_window", detail, parameter="window", step=step_text)
        count, each = length.seconds, own.count
    else:
        count, each = (length.months if own.unit == "mo" else length.days), own.count
    if count % each or count < each:
        why = "is shorter than the step" if 0 < count < each else "is not a multiple of the step"
        nearest = _next_multiple(count, own.unit, each)
        detail = f"window = {text!r} {why}, {step_text}; write window={nearest}, or another step"
        raise Problem(400, "bad_window", detail, parameter="window", step=step_text)
    return Window(text, count // each)


def sliding(text: str, over: str, *, grain_s: int) -> Window:
    """That of a total or top: a window for every grain."""
    length = lengths.parse("window", text, code="bad_window")
    if length.months:
        detail = f"window = {text!r}: months have no fixed length; write days"
        raise Problem(400, "bad_window", detail, parameter="window")
    return Window(
        text, lengths.on_the_grain("window", text, length.seconds, grain_s, code="bad_window") // grain_s, over
    )


def check_fits(window: Window, span: Range, buckets: int) -> None:
    """A range shorter than its window has none."""
    if buckets < window.buckets:
        asked = span.to_json()
        detail = (
            f"no window of {window.text} fits into the range from {asked['from']} to {asked['to']};"
            f" ask for a range of at least {window.text}, or for a shorter window"
        )
        raise Problem(400, "short_range", detail, parameter="window")


def over_buckets(rows: pl.DataFrame, keys: Sequence[str], starts: Sequence[int], buckets: int) -> pl.DataFrame:
    """The windows of a series that hold any rows; `bucket_s` is their start, one of `starts`."""
    if rows.is_empty():
        return rows
    rows = rows.sort(*keys, "bucket_s")
    place = np.searchsorted(np.asarray(starts, np.int64), rows["bucket_s"].to_numpy())
    lines = _Lines(rows, keys, place, len(starts) + buckets)
    last = len(starts) - buckets
    wanted = np.arange(last + 1)
    places = (np.arange(lines.count)[:, None] * lines.width + wanted).ravel()
    first, end = lines.rows_from(places), lines.rows_from(places + buckets)
    places, first, end = (each[end > first] for each in (places, first, end))
    at = np.asarray(starts, np.int64)[places % lines.width]
    return lines.frame(places, at).hstack(merged(rows, first, end))


def over_grains(
    rows: pl.DataFrame, keys: Sequence[str], span: tuple[int, int], *, buckets: int, grain_s: int
) -> pl.DataFrame:
    """The different windows of each series, each at its first start, with how often it `repeats`.

    What lies in a window changes only where a row enters or leaves it. So a series has at most twice as many different
    windows as it has rows, and one more: a day of seconds in which a card was used five times has eleven.
    """
    start_s, end_s = span
    rows = rows.sort(*keys, "bucket_s")
    last = (end_s - start_s) // grain_s - buckets
    place = ((rows["bucket_s"] - start_s) // grain_s).to_numpy()
    lines = _Lines(rows, keys, place, last + 2 * buckets + 1)
    base = lines.of_row * lines.width
    places = _distinct(
        np.arange(max(lines.count, 0 if keys else 1)) * lines.width,
        base + np.maximum(place - buckets + 1, 0),
        (base + place + 1)[place < last],
    )
    following = np.append(places, -1)[1:]
    is_last = following // lines.width != places // lines.width
    ends = np.where(is_last, places // lines.width * lines.width + last + 1, following)
    windows = lines.frame(places, start_s + places % lines.width * grain_s)
    values = merged(rows, lines.rows_from(places), lines.rows_from(places + buckets))
    return windows.hstack(values).with_columns(pl.Series(REPEATS, ends - places))


def _distinct(*places: Ints) -> Ints:
    """Sorted, each once. `np.unique` hashes, which took 4 s for a million on a busy machine instead of 0.1."""
    ordered = np.sort(np.concatenate(places))
    is_new = np.ones(len(ordered), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


class _Lines:
    """Rows, sorted by series and bucket, on one line of numbers: the series' number times `width`, plus the place."""

    def __init__(self, rows: pl.DataFrame, keys: Sequence[str], place: Ints, width: int) -> None:
        self.width = width
        self._keys = rows.select(keys)
        is_first = np.zeros(rows.height, np.bool_)
        if rows.height:
            changes = [pl.col(key).ne_missing(pl.col(key).shift()) for key in keys]
            if keys:
                is_first = rows.select(pl.any_horizontal(changes)).to_series().fill_null(True).to_numpy().copy()
            is_first[0] = True
        self._first = np.flatnonzero(is_first)
        self.of_row: Ints = np.cumsum(is_first) - 1
        self.count = len(self._first)
        self._places = self.of_row * width + place

    def rows_from(self, places: Ints) -> Ints:
        """The first row at or after each place."""
        return np.searchsorted(self._places, places)

    def frame(self, places: Ints, bucket_s: Ints) -> pl.DataFrame:
        """The keys of the series, and the start of its window."""
        start = pl.DataFrame({"bucket_s": bucket_s}, schema={"bucket_s": pl.Int64})
        return self._keys[self._first[places // self.width]].hstack(start) if self._keys.width else start


def merged(rows: pl.DataFrame, first: Ints, end: Ints) -> pl.DataFrame:
    """Row i is the merge of rows[first[i]:end[i]]; of no rows it is that of no events."""
    own = [column for column in columns.COLUMNS if column.name in rows.columns]
    counts = [column.name for column in own if isinstance(column.rule, Count)]
    others = [
        column.name for column in own if rows[column.name].null_count() < rows.height and column.name not in counts
    ]
    if others:
        _check_sketches(rows, first, end)
        found = _merged_by_doubling(rows.select(*counts, *others), first, end)
    else:
        found = pl.DataFrame([_sums(rows[name], first, end) for name in counts])
    return found.select(pl.col(column.name) if column.name in found.columns else column.left_out for column in own)


def _sums(numbers: pl.Series, first: Ints, end: Ints) -> pl.Series:
    """Whole numbers, so that the difference of two sums is exact."""
    sums = np.concatenate(([0], np.cumsum(numbers.to_numpy())))
    return pl.Series(numbers.name, sums[end] - sums[first], dtype=pl.Int64)


def _merged_by_doubling(rows: pl.DataFrame, first: Ints, end: Ints) -> pl.DataFrame:
    """Blocks of 1, 2, 4 … rows are merged once; a window takes those that its number of rows has as bits."""
    length, place, size = end - first, first.copy(), 1
    parts, blocks = [], rows
    while True:
        takes = np.flatnonzero(length & size)
        parts.append(blocks[place[takes]].with_columns(pl.Series("_window", takes)))
        place[takes] += size
        if 2 * size > length.max(initial=0):
            break
        pairs = [half.with_row_index("_block") for half in (blocks[: blocks.height - size], blocks[size:])]
        blocks = columns.merge(pl.concat(pairs), ["_block"]).sort("_block").drop("_block")
        size *= 2
    whole = columns.merge(pl.concat(parts), ["_window"])
    every = pl.DataFrame({"_window": np.arange(len(first))}).join(
        whole, on="_window", how="left", maintain_order="left"
    )
    nothing = {name: columns.NOTHING[name] for name in rows.columns if columns.NOTHING[name] is not None}
    return every.with_columns(pl.col(name).fill_null(none) for name, none in nothing.items()).drop("_window")


def _check_sketches(rows: pl.DataFrame, first: Ints, end: Ints) -> None:
    if columns.SKETCH not in rows.columns:
        return
    sizes = rows[columns.SKETCH].bin.size().fill_null(0).cast(pl.Int64)
    held = int(_sums(sizes, first, end).sum())
    if held > MOST_SKETCH_BYTES:
        raise limits.too_large_windows(held, MOST_SKETCH_BYTES)


def check_number(window: Window, grains: int, settings: QuerySettings) -> None:
    if grains - window.buckets + 1 > settings.max_points:
        raise limits.too_many_windows(grains - window.buckets + 1, settings)


def _next_multiple(count: int, unit: str, each: int) -> str:
    wanted = max(1, -(-count // each)) * each
    return to_text(wanted) if unit == "s" else f"{wanted}{unit}"
