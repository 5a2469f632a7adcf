"""A range that keeps failing is halved until the record that fails is found; it is buried, the rest is counted."""

import logging
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from tallymark.log.protocol import LogError, LogReader, LogUnreachable
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import StoreUnreachable

logger = logging.getLogger("tallymark.pipeline")


class Counting(Protocol):
    """How a stretch is counted, and its result kept."""

    def count(self, stretch: Stretch, *, only: Collection[int] | None = None) -> StretchResult:
        """With all live meters or `only` some; raises when the task fails."""
        ...

    def apply(self, result: StretchResult) -> None: ...

    def live(self) -> list[int]:
        """The meters that count now."""
        ...


def is_away(error: Exception) -> bool:
    """Whether a task failed because log or store do not answer: then neither a record nor a meter is to blame.

    A task's error comes through Spark as text, so it is told by its name.
    """
    return any(kind.__name__ in f"{type(error).__name__} {error}" for kind in (LogUnreachable, StoreUnreachable))


def _rise_if_away(error: Exception) -> None:
    if is_away(error):
        raise error


def salvage(stretch: Stretch, *, counting: Counting, log: LogReader) -> list[int]:
    """Count all of the stretch but for the records that cannot be; returns their offsets.

    Halves are taken in order: the store accepts no gaps. What the store raises is not the records' fault, and rises.
    """
    if stretch.start >= stretch.end:
        return []
    try:
        result = counting.count(stretch)
    except Exception as error:
        _rise_if_away(error)
        if stretch.end - stretch.start == 1:
            return _judge(stretch, counting, log)
    else:
        counting.apply(result)
        return []
    middle = (stretch.start + stretch.end) // 2
    halves = (Stretch(stretch.partition, stretch.start, middle), Stretch(stretch.partition, middle, stretch.end))
    return [offset for half in halves for offset in salvage(half, counting=counting, log=log)]


def _judge(stretch: Stretch, counting: Counting, log: LogReader) -> list[int]:
    """One record on which the task fails: is it Spark, a meter, or the record?

    A Spark that has died fails every record. So before one is blamed it gets a second chance, and then counting nothing
    must succeed; if not, that error rises and everything stays in the log for the next start.
    """
    try:
        result = counting.count(stretch)
    except Exception as error:
        _rise_if_away(error)
        counting.count(Stretch(stretch.partition, stretch.start, stretch.start))
        broken = _to_blame(stretch, counting)
        if not broken:
            # Nothing fails apart: the whole gets a last chance, because what failed may have come back meanwhile.
            result_or_none = None if broken is None else _counted(stretch, counting)
            counting.apply(burial(stretch, error, log) if result_or_none is None else result_or_none)
            return [stretch.start] if result_or_none is None else []
        healthy = [meter for meter in counting.live() if meter not in broken]
        result = replace(counting.count(stretch, only=healthy), broken=broken)
        logger.error(
            "meters %s fail on record %d of partition %d and are set aside", broken, stretch.start, stretch.partition
        )
    counting.apply(result)
    return []


def _counted(stretch: Stretch, counting: Counting) -> StretchResult | None:
    try:
        return counting.count(stretch)
    except Exception as error:
        _rise_if_away(error)
        logger.warning("record %d of partition %d fails again: %s", stretch.start, stretch.partition, error)
        return None


def _to_blame(stretch: Stretch, counting: Counting) -> dict[int, str] | None:
    """The meters that fail on this record, each alone; None if it cannot be counted without any either."""
    broken: dict[int, str] = {}
    try:
        counting.count(stretch, only=())
        for meter in counting.live():
            try:
                counting.count(stretch, only=[meter])
            except Exception as error:
                _rise_if_away(error)
                broken[meter] = str(error)[-500:]
        # A machine that was short of something for a moment would have stopped a meter: each gets a second chance.
        return {meter: why for meter, why in broken.items() if not _counts(stretch, counting, meter)}
    except Exception as error:
        _rise_if_away(error)
        return None


def _counts(stretch: Stretch, counting: Counting, meter: int) -> bool:
    try:
        counting.count(stretch, only=[meter])
    except Exception as error:
        _rise_if_away(error)
        return False
    return True


def burial(stretch: Stretch, error: Exception, log: LogReader) -> StretchResult:
    """The result of a stretch of one record whose events all become dead letters."""
    events, raw, reason = 0, b"", "kills_its_task"
    at_ms = int(time.time() * 1000)
    try:
        record = next(iter(log.read(stretch.partition, stretch.start, stretch.end)))
        events, raw, at_ms = record.events, record.payload, record.append_ms
    except LogUnreachable:
        raise
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
