"""Retention: deletes log segments, journal entries and letters that are old and that nobody needs."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tallymark import telemetry
from tallymark.keeper.streams import Stream
from tallymark.log.protocol import LogReader
from tallymark.settings import Settings
from tallymark.store.protocol import Store, Upkeep, WrongLog

# Beyond the horizon: claims are rebuilt a little earlier than they must be.
MARGIN_MS = 60_000
# How long entries of the journal wait for saved queries to look at them.
UNEVALUATED_KEEP_MS = 3_600_000


Retain = Callable[[Path, Mapping[int, int]], int]
DropOldest = Callable[[Path, int], int]


def keep_from(
    reader: LogReader, applied: Mapping[int, int], *, now_ms: int, keep_ms: int, horizon_ms: int
) -> dict[int, int]:
    """The first offset of each partition that must stay.

    The pipeline needs what was appended a horizon before its position, to know the ids it has seen; people asked for
    what is younger than `log.keep_s`. A partition of which nothing was applied stays as it is.
    """
    kept = {}
    for partition, standing in reader.positions().items():
        position = applied.get(partition, standing.first)
        if position > standing.synced:
            raise WrongLog(
                f"the store has applied partition {partition} up to {position}, but the log ends at {standing.synced}:"
                " the log has lost records that were counted; nothing is deleted until that is understood"
            )
        if position <= standing.first:
            kept[partition] = standing.first
            continue
        needed_ms = reader.append_ms(partition, position - 1) - horizon_ms - MARGIN_MS
        # In append time, which a wall clock that was set may be far from.
        oldest_ms = min(needed_ms, now_ms + standing.clock_ahead_ms - keep_ms)
        kept[partition] = min(position - 1, reader.offset_at(partition, oldest_ms))
    return kept


def retain_events(store: Store, stream: Stream, settings: Settings, now_ms: int, retain: Retain) -> None:
    """Deletes segments of the events' stream that are neither young nor needed."""
    reader = stream.reader()
    if reader is None:
        return
    applied = store.sink.applied(reader.identity)
    # A power cut may take the store back to its last checkpoint: what it needs then must still be there.
    if store.upkeep.checkpoint():
        kept = keep_from(
            reader,
            applied,
            now_ms=now_ms,
            keep_ms=settings.log.keep_s * 1000,
            horizon_ms=settings.pipeline.horizon_s * 1000,
        )
        freed = retain(settings.log_folder / "events", kept)
        telemetry.KEEPER_FREED_BYTES.labels("events").inc(freed)


def drop_old_letters(stream: Stream, settings: Settings, drop_oldest: DropOldest) -> None:
    """Keeps the stream `dead` within its room."""
    if stream.reader() is not None:
        freed = drop_oldest(settings.log_folder / "dead", settings.log.dead_bytes)
        telemetry.KEEPER_FREED_BYTES.labels("dead").inc(freed)


def prune(store: Store, settings: Settings, now_ms: int) -> None:
    """Deletes folded entries of the journal that no follower waits for, and letters beyond their room.

    What the saved queries have not looked at stays, but not for ever: without it they compute more windows again.
    """
    keep_ms = settings.keeper.journal_keep_s * 1000
    prune_store = partial(store.upkeep.prune, now_ms=now_ms, letter_bytes=settings.log.dead_bytes)
    evaluated = store.windows.evaluated()
    prune_store(journal_keep_ms=keep_ms, keep_after=evaluated)
    if evaluated is not None:
        prune_store(journal_keep_ms=max(keep_ms, UNEVALUATED_KEEP_MS))


def checkpoint(upkeep: Upkeep) -> None:
    """Keeps the store's write-ahead log small; one that fails because of readers is made up for by the next."""
    upkeep.checkpoint()
