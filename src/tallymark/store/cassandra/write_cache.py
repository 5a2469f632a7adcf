"""Rows of a base grain that this keeper wrote lately: a point is written with every fold of its bucket, read once."""

import polars as pl

from tallymark.store.cassandra.points import KEY, PLACE, ROW_TYPES, Place, Points
from tallymark.store.grains import MINUTE_S, SECOND_S, TEN_SECONDS_S

MOST_BYTES = {MINUTE_S: 80_000_000, TEN_SECONDS_S: 40_000_000, SECOND_S: 40_000_000}
"""by grain: the shorter its buckets, the fewer folds write one"""
MOST_PLACES = 500_000


class WriteCache:
    """Of the sets that have this base. Good as long as nobody else changed the points, as their book's token tells."""

    def __init__(self, points: Points, grain_s: int) -> None:
        self._points = points
        self._grain_s = grain_s
        self._token = ""
        self._rows = pl.DataFrame(schema=ROW_TYPES)
        self._written: list[pl.DataFrame] = []
        # Places that were empty when first met: of these all rows from `_from_s` on are remembered.
        self._whole: dict[Place, bool] = {}
        self._from_s: int | None = None

    def follow(self, before: str, after: str) -> None:
        """A change by this keeper that left what was counted alone: rolled points of a set are never of its base."""
        if self._token == before:
            self._token = after

    def begin(self, token: str) -> None:
        """Forgets everything if another keeper was at work."""
        if token != self._token:
            self._rows, self._whole, self._from_s, self._token = self._rows.clear(), {}, None, token
        self._written = []

    def bases(self, rows: pl.DataFrame, *, mark: int) -> pl.DataFrame:
        """For each of these rows what it was at the mark, as far as it was anything."""
        keys = rows.select(KEY)
        known = keys.join(self._rows, on=KEY)
        missing = keys.join(known, on=KEY, how="anti")
        self._look_at([place for place in missing.select(PLACE).unique().rows() if place not in self._whole])
        may_be_there = missing.filter(~self._is_known_empty(missing))
        return pl.concat([known.select(ROW_TYPES.names()), self._points.at(self._grain_s, may_be_there, mark=mark)])

    def add(self, written: pl.DataFrame, *, change: int) -> None:
        self._written.append(
            written.with_columns(pl.lit(change, dtype=pl.Int64).alias("change")).select(ROW_TYPES.names())
        )

    def finish(self, token: str) -> None:
        """The rows added since `begin` count now."""
        if self._written:
            fresh = pl.concat(self._written)
            self._rows = pl.concat([self._rows.join(fresh, on=KEY, how="anti"), fresh])
        self._written, self._token = [], token
        if self._rows.estimated_size() > MOST_BYTES[self._grain_s]:
            # The newest buckets are those that are written again.
            self._rows = self._rows.sort("bucket_s").tail(self._rows.height // 2)
            self._from_s = int(self._rows["bucket_s"].item(0)) + self._grain_s
            if len(self._whole) > MOST_PLACES:
                self._whole.clear()

    def _look_at(self, places: list[Place]) -> None:
        self._whole.update(zip(places, self._points.are_empty(self._grain_s, places), strict=True))

    def _is_known_empty(self, keys: pl.DataFrame) -> pl.Series:
        whole = pl.Series([self._whole[place] for place in keys.select(PLACE).iter_rows()], dtype=pl.Boolean)
        return whole if self._from_s is None else whole & (keys["bucket_s"] >= self._from_s)
