"""Where counting begins: the store's positions, checked against the log before anything is counted."""

import logging
import time
from collections.abc import Callable, Mapping

from tallymark.log.protocol import LogReader, Positions
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import Sink, WrongLog

logger = logging.getLogger("tallymark.pipeline")

# After a broker died, its successor may for a moment know less of what the dead one had already shown.
END_COMES_BACK_S = 15.0


def check(
    log: LogReader,
    sink: Sink,
    *,
    skip_lost: bool = False,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Raises WrongLog if counting cannot go on from the store's positions; makes those of new partitions."""
    applied = sink.applied(log.identity)
    is_new = not applied
    for partition, at in _positions(log, applied, wait=wait, clock=clock).items():
        offset = applied.get(partition)
        if offset is None and is_new:
            if at.first > 0:
                logger.error(
                    "partition %d begins at %d: what was before is deleted, and not counted", partition, at.first
                )
            # Also at 0: else records that retention deletes before the first is counted would not be missed.
            sink.begin(log.identity, partition, at.first)
        elif offset is None:
            sink.begin(log.identity, partition, 0)
            if at.first > 0:
                _lost(log.identity, sink, Stretch(partition, 0, at.first), skip_lost=skip_lost)
        elif offset > at.synced:
            raise WrongLog(
                f"the store has applied partition {partition} up to {offset}, but the log ends at {at.synced}: this log"
                " is not the one that was counted, or it lost its end; restore the log, or begin anew with an empty"
                " store"
            )
        elif offset < at.first:
            _lost(log.identity, sink, Stretch(partition, offset, at.first), skip_lost=skip_lost)


def _positions(
    log: LogReader, applied: Mapping[int, int], *, wait: Callable[[float], object], clock: Callable[[], float]
) -> Mapping[int, Positions]:
    """Those of the log, once it has what was applied or has had the time to show it."""
    patience = clock() + END_COMES_BACK_S
    while True:
        positions = log.positions()
        behind = any(applied.get(partition, 0) > at.synced for partition, at in positions.items())
        if not behind or log.slack_ms == 0 or clock() > patience:
            return positions
        wait(0.5)


def _lost(identity: str, sink: Sink, gap: Stretch, *, skip_lost: bool) -> None:
    what = (
        f"partition {gap.partition} is applied up to {gap.start}, but the log begins at {gap.end}: the log's retention"
        f" deleted {gap.end - gap.start:,} records before they were counted"
    )
    if not skip_lost:
        raise WrongLog(
            f"{what}; put them back from a copy, or go on without them by `tallymark pipeline --skip-lost`, which"
            " leaves a dead letter about them"
        )
    logger.error("%s; going on at %d, as asked", what, gap.end)
    now_ms = int(time.time() * 1000)
    letter = DeadLetter("pipeline", "lost_by_retention", what, 0, b"", now_ms, gap.partition, gap.start)
    nothing = StretchResult(gap, identity, 0, (), b"", Ledger(), dead=(letter,))
    sink.apply([nothing], now_ms=now_ms)
