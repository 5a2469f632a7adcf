"""The journal's tail: the batches that are not in the points yet, decoded once and kept for the next question."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tallymark.aggregates import columns
from tallymark.store.model import Folding, RegisteredMeter
from tallymark.store.series_codes import SeriesCodes

# Beyond it (the keeper was away for long) the tail is decoded again when the mark has moved.
MOST_BYTES = 200_000_000
# Of all sets together; beyond it those that were asked for least recently are forgotten.
MOST_SERIES = 1_000_000
# Spans that are kept: one for each set asked for and for its sums, two while a fold is under way.
MOST_SPANS = 256
# Rows are merged when they have doubled, but not below this: a pass over 20,000 numbers takes less than merging them.
MERGE_FROM = 20_000

Load = Callable[[int, int, bool], Iterable[tuple[int, pl.DataFrame]]]
"""the batches after one sequence up to another, as (sequence, deltas), in order; with their sketches if True"""


def beyond(folding: Folding) -> pl.Expr:
    """Whether a delta's series lies beyond the border of a fold under way, and so is not in the points yet."""
    meter, series = pl.col("meter"), pl.col("series")
    return (meter > folding.meter) | ((meter == folding.meter) & (series > folding.series))


@dataclass(frozen=True, slots=True)
class _Span:
    """The rows of a set in the entries after one sequence up to `through`."""

    through: int
    rows: pl.DataFrame
    codes: SeriesCodes
    merged: int
    """how many rows there were when they were merged last"""


@dataclass(frozen=True, slots=True)
class _Key:
    set_id: int
    after: int
    sums: bool
    """added up over all series"""
    sketches: bool


class Tail:
    """Each entry is decoded once in a process, and coded once for each set that is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decoded: dict[tuple[int, bool], pl.DataFrame] = {}
        self._held = 0.0
        self._spans: OrderedDict[_Key, _Span] = OrderedDict()
        self._codes: OrderedDict[int, SeriesCodes] = OrderedDict()

    def codes(self, set_id: int, meter: RegisteredMeter) -> SeriesCodes:
        """The numbers that stand for the series of a set in what this tail gives."""
        with self._lock:
            known = self._codes.get(set_id)
            if known is None:
                known = self._codes[set_id] = SeriesCodes(meter.labels)
            self._codes.move_to_end(set_id)
            self._forget_series()
            return known

    def waiting(
        self,
        load: Load,
        set_id: int,
        codes: SeriesCodes,
        *,
        folded: int,
        folding: Folding | None,
        end: int,
        sums: bool,
        sketches: bool,
    ) -> list[pl.DataFrame]:
        """The deltas of a set that the points do not have, for a snapshot with these marks.

        Their columns are `code`, `bucket_s` and those of `aggregates.columns`. `sums` asks for those that the sums over
        all series lack (a fold under way wrote them first), without `code`.
        """
        self._forget_through(folded)

        def between(after: int, through: int) -> pl.DataFrame:
            return self._between(load, _Key(set_id, after, sums, sketches), codes, through)

        if folding is None:
            return [between(folded, end)]
        later = between(folding.through, end)
        if sums or set_id < folding.meter:
            return [later]
        earlier = between(folded, folding.through)
        if set_id == folding.meter:
            earlier = earlier.filter(codes.beyond(folding.series)[earlier["code"].to_numpy()])
        return [earlier, later]

    def after(
        self, load: Load, set_id: int, codes: SeriesCodes, *, mark: int, end: int, sketches: bool = False
    ) -> pl.DataFrame:
        """All deltas of a set in the entries after the fold's mark, whatever is being folded."""
        self._forget_through(mark)
        return self._between(load, _Key(set_id, mark, False, sketches), codes, end)

    def folded_since(
        self, load: Load, set_id: int, codes: SeriesCodes, *, after: int, through: int
    ) -> pl.DataFrame | None:
        """The deltas of a set in entries that are folded; None if some of those entries are gone."""
        found = self._entries(load, after, through, sketches=False)
        if len(found) < through - after:
            return None
        return _rows(_Key(set_id, after, sums=False, sketches=False), codes, found)

    def _between(self, load: Load, key: _Key, codes: SeriesCodes, through: int) -> pl.DataFrame:
        if key.after == through:
            return _nothing(key)
        with self._lock:
            known = self._spans.get(key)
        if known is None or known.through > through or known.codes is not codes:
            known = _Span(key.after, _nothing(key), codes, 0)
        if known.through == through:
            return known.rows
        found = self._entries(load, known.through, through, sketches=key.sketches)
        rows = pl.concat([known.rows, _rows(key, codes, found)])
        span = _merged(key, _Span(through, rows, codes, known.merged))
        with self._lock:
            # A slower question of an older snapshot does not undo what a later one has added.
            latest = self._spans.get(key)
            if latest is None or latest.codes is not codes or latest.through < through:
                self._spans[key] = span
                self._spans.move_to_end(key)
            while len(self._spans) > MOST_SPANS:
                self._spans.popitem(last=False)
        return span.rows

    def _entries(self, load: Load, after: int, through: int, *, sketches: bool) -> list[pl.DataFrame]:
        found: list[pl.DataFrame] = []
        with self._lock:
            for sequence in range(after + 1, through + 1):
                if (sequence, sketches) not in self._decoded:
                    break
                found.append(self._decoded[sequence, sketches])
                after = sequence
        if after < through:
            for sequence, frame in load(after, through, sketches):
                found.append(frame)
                self._remember((sequence, sketches), frame)
        return found

    def _remember(self, key: tuple[int, bool], frame: pl.DataFrame) -> None:
        with self._lock:
            if key not in self._decoded and self._held + frame.estimated_size() <= MOST_BYTES:
                self._decoded[key] = frame
                self._held += frame.estimated_size()

    def _forget_through(self, folded: int) -> None:
        with self._lock:
            for entry in [entry for entry in self._decoded if entry[0] <= folded]:
                self._held -= self._decoded.pop(entry).estimated_size()
            for key in [key for key in self._spans if key.after < folded]:
                del self._spans[key]

    def _forget_series(self) -> None:
        surplus = sum(map(len, self._codes.values())) - MOST_SERIES
        for set_id in list(self._codes)[:-1]:
            if surplus <= 0:
                return
            surplus -= len(self._codes.pop(set_id))
            for key in [key for key in self._spans if key.set_id == set_id]:
                del self._spans[key]


def _nothing(key: _Key) -> pl.DataFrame:
    return _NO_ROWS[key.sums, key.sketches]


def _rows(key: _Key, codes: SeriesCodes, entries: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """What entries have of a set, with codes instead of texts."""
    names = ("series", "bucket_s", *_names(sketches=key.sketches))
    found = [_of_set(entry, key.set_id, names) for entry in entries]
    rows = pl.concat(found) if found else _nothing(key)
    if rows.is_empty():
        return _nothing(key)
    if key.sums:
        return columns.merge(rows.drop("series"), ["bucket_s"])
    code = pl.Series("code", codes.of(rows["series"].to_list()), dtype=pl.Int32)
    return pl.DataFrame([code, *(rows[name] for name in rows.columns if name != "series")])


def _of_set(entry: pl.DataFrame, set_id: int, names: Sequence[str]) -> pl.DataFrame:
    # By places, not by an expression: a Polars query takes as long as the rest of it.
    places = np.flatnonzero(entry["meter"].to_numpy() == set_id)
    found = entry if len(places) == entry.height else entry[places]
    return pl.DataFrame([found[name] for name in names])


def _merged(key: _Key, span: _Span) -> _Span:
    keys = ["bucket_s"] if key.sums else ["code", "bucket_s"]
    if span.rows.height < max(2 * span.merged, 0 if key.sums else MERGE_FROM):
        return span
    rows = columns.merge(span.rows, keys).select(span.rows.columns)
    return _Span(span.through, rows, span.codes, rows.height)


def _names(*, sketches: bool) -> list[str]:
    return [name for name in columns.NAMES if sketches or name != columns.SKETCH]


def _schema(*, sums: bool, sketches: bool) -> dict[str, pl.DataType]:
    keys: dict[str, pl.DataType] = {"bucket_s": pl.Int64()} if sums else {"code": pl.Int32(), "bucket_s": pl.Int64()}
    return keys | {name: columns.TYPES[name] for name in _names(sketches=sketches)}


_NO_ROWS = {
    (sums, sketches): pl.DataFrame(schema=_schema(sums=sums, sketches=sketches))
    for sums in (False, True)
    for sketches in (False, True)
}
