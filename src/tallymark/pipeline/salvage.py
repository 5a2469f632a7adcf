"""A range that keeps failing is halved until the record that fails is found; it is buried, the rest is counted."""

import logging
import time
from collections.abc import Callable, Sequence

from tallymark.log.protocol import LogError, LogReader
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult

logger = logging.getLogger("tallymark.pipeline")

Process = Callable[[Sequence[Stretch]], None]
Bury = Callable[[StretchResult], None]


def salvage(stretch: Stretch, *, process: Process, bury: Bury, log: LogReader) -> list[int]:
    """Count all of the stretch but for the records that cannot be; returns their offsets.

    `process` counts and applies a stretch or raises. Halves are taken in order: the store accepts no gaps.
    """
    if stretch.start >= stretch.end:
        return []
    try:
        process([stretch])
        return []
    except Exception:
        if stretch.end - stretch.start == 1:
            error = _to_blame(stretch, process)
            if error is None:
                return []
            bury(burial(stretch, error, log))
            return [stretch.start]
    middle = (stretch.start + stretch.end) // 2
    halves = (Stretch(stretch.partition, stretch.start, middle), Stretch(stretch.partition, middle, stretch.end))
    return [offset for half in halves for offset in salvage(half, process=process, bury=bury, log=log)]


def _to_blame(stretch: Stretch, process: Process) -> Exception | None:
    """Why this one record cannot be counted; None if it could be after all.

    A Spark that has died fails every record. So before one is blamed it gets a second chance, and then counting nothing
    must succeed; if not, that error is raised and everything stays in the log for the next start.
    """
    try:
        process([stretch])
        return None
    except Exception as error:
        process([Stretch(stretch.partition, stretch.start, stretch.start)])
        return error


def burial(stretch: Stretch, error: Exception, log: LogReader) -> StretchResult:
    """The result of a stretch of one record whose events all become dead letters."""
    events, raw, reason = 0, b"", "kills_its_task"
    at_ms = int(time.time() * 1000)
    try:
        record = next(iter(log.read(stretch.partition, stretch.start, stretch.end)))
        events, raw, at_ms = record.events, record.payload, record.append_ms
    except LogError as damage:
        reason, error = "damaged", damage
        events = log.events_in(stretch.partition, stretch.start, stretch.end)
    letter = DeadLetter(
        hop="pipeline",
        reason=reason,
        detail=str(error)[-500:],
        events=events,
        raw=raw,
        at_ms=at_ms,
        partition=stretch.partition,
        offset=stretch.start,
    )
    logger.error(
        "record %d of partition %d goes to the dead letters (%s): %d events are not counted",
        stretch.start,
        stretch.partition,
        reason,
        events,
    )
    return StretchResult(
        stretch=stretch,
        log_identity=log.identity,
        meters_revision=0,
        meter_ids=(),
        deltas=b"",
        ledger=Ledger(accepted=events, dead=events),
        dead=(letter,),
        buried=True,
    )
