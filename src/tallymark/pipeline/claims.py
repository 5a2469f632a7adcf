"""The claim table of one partition: which ids were seen before a stretch, and when they were last appended.

The law that any reader of the log can check: an event is a duplicate iff the latest copy of its (tenant, event, id)
before it in the log, counted or not, lies at most the horizon before it in append time. (Append times never go back in
a local log. On Kafka they may, by the difference of two brokers' clocks: the latest is then not always the previous.)

The table covers the prefix of the log before the current stretch, up to `through`. A stretch's own ids stay beside it
in a side file until the next stretch starts where this one ended, which proves that it was applied. Merging twice
changes nothing; anything else that does not fit is caught up or rebuilt from the log. So replays, other cuts, zombies
and lost files all give the same answer.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt

from tallymark.pipeline.claim_table import ClaimTable, Heads, TableUnusable, Tails

logger = logging.getLogger("tallymark.pipeline")

Times = npt.NDArray[np.int64]

# Beyond the horizon: clock ticks of append times that a rebuild must not cut off.
MARGIN_MS = 1_000
# How far the clock of whoever says when it first sent an event may be ahead of ours: differences of less than 5 s are
# left alone when an event is taken (events.clock_tolerance_s), and some are not worth a doubt.
CLOCKS_MS = 10_000


class Ids(NamedTuple):
    """Ids of consecutive events in log order: 96 bits of hash and the append time of each."""

    high: Heads
    low: Tails
    append_ms: Times


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

    def ids(self, start: int, end: int) -> Iterator[Ids]:
        """The ids of accepted events in [start, end), in chunks."""
        ...


class Claims:
    """`with Claims(...) as claims:` then `claims.duplicates(ids)` for the events of the stretch [start, end)."""

    def __init__(
        self, folder: Path, partition: int, *, start: int, end: int, horizon_ms: int, history: History
    ) -> None:
        self._table_file = folder / f"{partition}.claims"
        self._side_file = folder / f"{partition}.side"
        self._lock_file = folder / f"{partition}.lock"
        self._start, self._end = start, end
        self._horizon_ms = horizon_ms
        self._history = history
        self._memory_ms = horizon_ms + MARGIN_MS + history.slack_ms
        self._lock: int | None = None

    def __enter__(self) -> "Claims":
        self._lock_file.parent.mkdir(parents=True, exist_ok=True)
        # A zombie of an older attempt may still run on this partition: one at a time.
        self._lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self._table = self._ready_table()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def duplicates(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """True where an event of the whole stretch is a duplicate; the stretch's own ids go to the side file."""
        if not len(ids.high):
            _write_side(self._side_file, self._history.identity, self._start, self._end, ids)
            return np.zeros(0, np.bool_)
        previous = _previous_in_stretch(ids)
        leads = np.flatnonzero(previous < 0)
        seen_ms = self._table.find(ids.high[leads], ids.low[leads])
        latest_ms = _latest_ms(previous, ids.append_ms, leads=leads, seen_ms=seen_ms)
        before_ms = np.where(previous >= 0, latest_ms[previous], -1)
        before_ms[leads] = seen_ms
        own = _last_copies(previous, Ids(ids.high, ids.low, latest_ms))
        _write_side(self._side_file, self._history.identity, self._start, self._end, own)
        return (before_ms >= 0) & (ids.append_ms - before_ms <= self._horizon_ms)

    def reach_back_to(self, since_ms: Times, append_ms: int) -> npt.NDArray[np.bool_]:
        """For what is appended now: whether a copy sent at these times or later would still be known."""
        return since_ms >= append_ms - (self._horizon_ms - CLOCKS_MS - self._history.slack_ms)

    def _ready_table(self) -> ClaimTable:
        """A table that covers exactly the prefix before the stretch."""
        identity = self._history.identity
        try:
            table = ClaimTable.open(self._table_file, identity=identity, horizon_ms=self._horizon_ms)
        except (FileNotFoundError, TableUnusable):
            table = None
        if table is not None and table.through < self._start:
            side = _read_side(self._side_file, identity)
            if side is not None and side[0] == table.through and side[1] <= self._start:
                table = self._merge(table, side[2])  # each id is in there once
                table.finish(side[1])
        stale_from = self._window_start()
        if table is None or table.through > self._start or table.through < stale_from:
            self._say_what_is_gone(stale_from)
            table = ClaimTable.create(
                self._table_file, identity=identity, horizon_ms=self._horizon_ms, through=stale_from
            )
        if table.through < self._start:
            table = self._catch_up(table)
        return table

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


_SIDE_MAGIC = b"TMSIDE1\0"


def _write_side(path: Path, identity: str, start: int, end: int, ids: Ids) -> None:
    body = b"".join(
        (
            np.array([start, end, len(ids.high)], np.int64).tobytes(),
            identity.encode().ljust(64, b"\0"),
            ids.high.tobytes(),
            ids.low.tobytes(),
            ids.append_ms.astype(np.int64, copy=False).tobytes(),
        )
    )
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    # A side file that cannot be written costs a catch-up from the log, not a count.
    try:
        draft.write_bytes(_SIDE_MAGIC + crc32(body).to_bytes(8, "little") + body)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)


def _read_side(path: Path, identity: str) -> tuple[int, int, Ids] | None:
    """(start, end, ids) of the last stretch, or None if it is missing, damaged or of another log."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if content[:8] != _SIDE_MAGIC or len(content) < 16 + 24 + 64:
        return None
    body = memoryview(content)[16:]
    if crc32(body) != int.from_bytes(content[8:16], "little"):
        return None
    start, end, count = (int(number) for number in np.frombuffer(body[:24], np.int64))
    if bytes(body[24:88]).rstrip(b"\0").decode(errors="replace") != identity or len(body) != 88 + count * 20:
        return None
    high = np.frombuffer(body, np.uint64, count, 88)
    low = np.frombuffer(body, np.uint32, count, 88 + count * 8)
    append_ms = np.frombuffer(body, np.int64, count, 88 + count * 12)
    return start, end, Ids(high, low, append_ms)
