"""The claim table of one partition: which ids were seen before a stretch, and when they were last appended.

The law that any reader of the log can check: an event is a duplicate iff the latest copy of its (tenant, event, id)
before it in the log, counted or not, lies at most the horizon before it in append time. (Append times never go back in
a local log. On Kafka they may, by the difference of two brokers' clocks: the latest is then not always the previous.)

The table covers the prefix of the log before the current stretch, up to `through`. A stretch's own ids stay beside it
in a side file until the next stretch starts where this one ended, which proves that it was applied. Merging twice
changes nothing; anything else that does not fit is caught up or rebuilt from the log. So replays, other cuts, zombies
and lost files all give the same answer.
"""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tallymark.log.protocol import SLEW_PER_MILLE
from tallymark.pipeline.counting import side_file
from tallymark.pipeline.counting.claim_lock import ClaimLock
from tallymark.pipeline.counting.claim_table import ClaimTable, Heads, TableUnusable, Tails
from tallymark.pipeline.counting.ids import Ids as Ids
from tallymark.pipeline.counting.ids import Times as Times
from tallymark.pipeline.counting.ids import no_ids
from tallymark.pipeline.counting.private_tables import PrivateTables

logger = logging.getLogger("tallymark.pipeline")

# Beyond the horizon: clock ticks of append times that a rebuild must not cut off.
MARGIN_MS = 1_000
# How far the clock of whoever says when it first sent an event may be ahead of ours: differences of less than 5 s are
# left alone when an event is taken (events.clock_tolerance_s), and some are not worth a doubt.
CLOCKS_MS = 10_000

_private = PrivateTables()
# Table files beside which this process has removed drafts. To list the folder takes 25 ms with 1,024 partitions.
_swept: set[str] = set()


class History(Protocol):
    """The log's past, as far as claims need it."""

    @property
    def identity(self) -> str: ...

    @property
    def first(self) -> int:
        """The oldest offset that is still there."""
        ...

    def append_ms(self, offset: int) -> int | None:
        """When the record at `offset` was appended; None at the end of the log."""
        ...

    def offset_at(self, append_ms: int) -> int: ...

    @property
    def slack_ms(self) -> int:
        """How far append times may go back from one record to a later one."""
        ...

    @property
    def has_wall_times(self) -> bool:
        """Whether append times follow a wall clock, also when that is set."""
        ...

    def ids(self, start: int, end: int) -> Iterator[Ids]:
        """The ids of accepted events in [start, end), in chunks; buried records claim nothing."""
        ...

    def is_whole(self, start: int, end: int) -> bool:
        """Whether no record in [start, end) was buried."""
        ...


class Claims:
    """`with Claims(...) as claims:` then `claims.duplicates(ids)` for the events of the stretch [start, end).

    The stretch's own ids are published when the block ends well. One that raises has counted nothing, so it must not
    claim anything either: else the retry of an event of a record that is then buried would be a duplicate of nothing.
    """

    def __init__(
        self,
        folder: Path,
        partition: int,
        *,
        start: int,
        end: int,
        horizon_ms: int,
        history: History,
        lock: ClaimLock | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._partition = folder, partition
        self._table_file = folder / f"{partition}.claims"
        self._side_file = folder / f"{partition}.side"
        self._start, self._end = start, end
        self._horizon_ms = horizon_ms
        self._history = history
        self._memory_ms = horizon_ms + MARGIN_MS + history.slack_ms
        self._lock = lock or ClaimLock(folder / f"{partition}.lock")
        self._clock = clock
        self._has_lock = False
        self._asked = False
        self._own: Ids = no_ids()
        self._own_table: ClaimTable | None = None

    def __enter__(self) -> "Claims":
        self._has_lock = self._lock.acquire(f"which counts records {self._start} to {self._end}")
        _private.drop_unused(since_s=self._clock() - self._horizon_ms / 1000)
        try:
            if self._has_lock:
                _private.drop(str(self._table_file))
                self._sweep()
            elif self._lock.is_news:
                logger.warning(
                    "the claims of partition %d are locked by %s, which does not go on; records %d to %d are counted"
                    " with claims read from the log instead, as are those after them. End that process if it is"
                    " stopped: until then each batch costs more memory and time",
                    self._partition,
                    self._lock.holder,
                    self._start,
                    self._end,
                )
            self._table = self._ready_table()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._asked and self._has_lock:
                own = self._own if self._own_table is None else Ids(*self._own_table.ids())
                side_file.write(self._side_file, self._history.identity, self._start, self._end, own)
        finally:
            self._lock.release()

    def duplicates(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """True where an event is a duplicate. A stretch may be asked for in slices, which follow each other."""
        previous = _previous_in_stretch(ids)
        leads = np.flatnonzero(previous < 0)
        seen_ms = self._seen_ms(ids.high[leads], ids.low[leads])
        latest_ms = _latest_ms(previous, ids.append_ms, leads=leads, seen_ms=seen_ms)
        before_ms = np.where(previous >= 0, latest_ms[previous], -1)
        before_ms[leads] = seen_ms
        self._claim(_last_copies(previous, Ids(ids.high, ids.low, latest_ms)))
        return (before_ms >= 0) & (ids.append_ms - before_ms <= self._horizon_ms)

    def _seen_ms(self, high: Heads, low: Tails) -> Times:
        """When each of these ids was last appended, before this slice; -1 where it was not seen."""
        seen_ms = self._table.find(high, low)
        if not self._asked:
            return seen_ms
        if self._own_table is None:
            nothing = ClaimTable.create(
                None, identity=self._history.identity, horizon_ms=self._horizon_ms, through=self._start
            )
            self._own_table = self._merge(nothing, self._own)
        return np.maximum(seen_ms, self._own_table.find(high, low))

    def _claim(self, own: Ids) -> None:
        """Each id once. Of a stretch in one slice, as nearly all are, nothing is looked up again: no table is made."""
        if self._own_table is None:
            self._own = own
        else:
            self._own_table = self._merge(self._own_table, own)
        self._asked = True

    @property
    def has_wall_times(self) -> bool:
        return self._history.has_wall_times

    def reach_back(self, elapsed_ms: Times) -> npt.NDArray[np.bool_]:
        """Whether a copy that was first tried so long before this one is appended would still be known."""
        pace_ms = self._horizon_ms * SLEW_PER_MILLE // 1000
        return elapsed_ms <= self._horizon_ms - pace_ms - CLOCKS_MS - self._history.slack_ms

    def _ready_table(self) -> ClaimTable:
        """A table that covers exactly the prefix before the stretch."""
        identity = self._history.identity
        try:
            table = self._known_table()
        except (FileNotFoundError, TableUnusable):
            table = None
        if self._has_lock and table is not None and table.through < self._start:
            side = side_file.read(self._side_file, identity)
            # A record may have been counted well and buried all the same, by a task that died on its way back or
            # that was tried with other meters: then the side file claims what nobody counted.
            if (
                side is not None
                and side[0] == table.through
                and side[1] <= self._start
                and self._history.is_whole(*side[:2])
            ):
                table = self._merge(table, side[2])  # each id is in there once
                table.finish(side[1])
        stale_from = self._window_start()
        if table is None or table.through > self._start or table.through < stale_from:
            self._say_what_is_gone(stale_from)
            table = ClaimTable.create(
                self._table_file if self._has_lock else None,
                identity=identity,
                horizon_ms=self._horizon_ms,
                through=stale_from,
            )
        if table.through < self._start:
            table = self._catch_up(table)
        if not self._has_lock:
            _private.keep(str(self._table_file), table, now_s=self._clock())
        return table

    def _known_table(self) -> ClaimTable | None:
        identity, horizon_ms = self._history.identity, self._horizon_ms
        if self._has_lock:
            return ClaimTable.open(self._table_file, identity=identity, horizon_ms=horizon_ms)
        table = _private.get(str(self._table_file))
        if table is not None:
            table.check(identity, horizon_ms)
        return table

    def _sweep(self) -> None:
        """Remove drafts: whoever makes one has the lock, so they are of processes that were killed before this one."""
        if str(self._table_file) in _swept:
            return
        _swept.add(str(self._table_file))
        for kind in (self._table_file, self._side_file):
            for draft in self._folder.glob(f"{kind.name}.*"):
                draft.unlink(missing_ok=True)

    def _window_start(self) -> int:
        """The first offset whose ids can still make something in the stretch a duplicate."""
        start_ms = self._history.append_ms(self._start)
        if start_ms is None:
            # Nothing was appended at `start` yet: whatever comes will be no older than the record before it.
            start_ms = self._history.append_ms(self._start - 1) if self._start > self._history.first else None
        if start_ms is None:
            return self._start
        window = self._history.offset_at(start_ms - self._memory_ms)
        return max(self._history.first, min(window, self._start))

    def _say_what_is_gone(self, rebuilt_from: int) -> None:
        """A table that must be rebuilt from a log that no longer has all of its window."""
        first_ms, start_ms = self._history.append_ms(rebuilt_from), self._history.append_ms(self._start)
        if rebuilt_from == self._history.first > 0 and first_ms is not None and start_ms is not None:
            missing_ms = first_ms - (start_ms - self._horizon_ms)
            if missing_ms > 0:
                logger.error(
                    "the claims before record %d are rebuilt from a log that begins %.0f s too late for the horizon:"
                    " a copy of an event of that time would count again; keep the log longer than the horizon",
                    self._start,
                    missing_ms / 1000,
                )

    def _catch_up(self, table: ClaimTable) -> ClaimTable:
        for chunk in self._history.ids(table.through, self._start):
            table = self._merge(table, _last_of_each(chunk))
        table.finish(self._start)
        return table

    def _merge(self, table: ClaimTable, ids: Ids) -> ClaimTable:
        """The table with these ids, each of them once, which all lie before the stretch."""
        if len(ids.high):
            # Whatever follows is no older than the newest of these: what lies a horizon before it can be left out.
            oldest_ms = int(ids.append_ms.max()) - self._memory_ms
            ids = _only(ids, ids.append_ms >= oldest_ms)
            table = table.with_room(len(ids.high), oldest_ms=oldest_ms)
        table.merge(*ids)
        return table


def _previous_in_stretch(ids: Ids) -> npt.NDArray[np.int64]:
    """For each event the index of the copy before it within the same stretch, -1 for the first."""
    previous = np.full(len(ids.high), -1, np.int64)
    repeated = _repeated(ids.high)
    if len(repeated):
        # Stable order by all 96 bits keeps copies in log order beside each other.
        order = repeated[np.lexsort((ids.low[repeated], ids.high[repeated]))]
        same = (ids.high[order[1:]] == ids.high[order[:-1]]) & (ids.low[order[1:]] == ids.low[order[:-1]])
        previous[order[1:][same]] = order[:-1][same]
    return previous


def _repeated(high: Heads) -> npt.NDArray[np.int64]:
    """Indexes of values that occur more than once; few in practice, so that only these are sorted."""
    import polars as pl

    return np.flatnonzero(pl.Series(high).is_duplicated().to_numpy())


def _latest_ms(
    previous: npt.NDArray[np.int64], append_ms: Times, *, leads: npt.NDArray[np.int64], seen_ms: Times
) -> Times:
    """For each event the latest append time among it and its copies before; its own, unless clocks went back."""
    if (append_ms[1:] >= append_ms[:-1]).all() and (seen_ms <= append_ms[leads]).all():
        return append_ms
    latest = append_ms.copy()
    latest[leads] = np.maximum(latest[leads], seen_ms)
    for place in np.flatnonzero(previous >= 0):  # in log order, so that a copy's predecessor is done
        latest[place] = max(latest[place], latest[previous[place]])
    return latest


def _last_copies(previous: npt.NDArray[np.int64], ids: Ids) -> Ids:
    """Each id once, with its last append time."""
    followed = np.zeros(len(previous), np.bool_)
    followed[previous[previous >= 0]] = True
    return _only(ids, ~followed)


def _only(ids: Ids, chosen: npt.NDArray[np.bool_]) -> Ids:
    return ids if chosen.all() else Ids(ids.high[chosen], ids.low[chosen], ids.append_ms[chosen])


def _last_of_each(ids: Ids) -> Ids:
    if not len(ids.high):
        return ids
    previous = _previous_in_stretch(ids)
    nothing = np.zeros(0, np.int64)
    return _last_copies(
        previous, Ids(ids.high, ids.low, _latest_ms(previous, ids.append_ms, leads=nothing, seen_ms=nothing))
    )
