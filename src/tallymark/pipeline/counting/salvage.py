"""A range that keeps failing is halved until the record that fails is found; it is buried, the rest is counted."""

import logging
import re
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from tallymark.events.frame import UnknownFrameVersion
from tallymark.log.protocol import LogDamaged, LogError, LogReader, LogUnreachable
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import StoreUnreachable

logger = logging.getLogger("tallymark.pipeline")

# Searches that end at the same record for want of memory, each after a pause of the job, before it is buried.
SHORT_SEARCHES = 5


_CAUSE = re.compile(r"(: )?(Caused by: )?[\w.]*(Error|Exception|Damaged|Lost|Conflict|Version)\b:? ")


class Counting(Protocol):
    """How a stretch is counted, and its result kept."""

    def count(self, stretch: Stretch, *, only: Collection[int] | None = None) -> StretchResult:
        """With all live meters or `only` some; raises when the task fails."""
        ...

    def apply(self, result: StretchResult) -> None: ...

    def live(self) -> list[int]:
        """The meters that count now."""
        ...


class Blocked(Exception):
    """A record that a newer version wrote: its partition waits for that version, and nothing is buried."""

    def __init__(self, partition: int, offset: int, error: Exception) -> None:
        found = re.search(r"frame version .*?: upgrade it", str(error))
        why = found.group() if found else "it was written by a newer version: upgrade this one"
        super().__init__(f"partition {partition} stands still at offset {offset}: {why}")
        self.partition, self.offset = partition, offset


def is_too_new(error: Exception) -> bool:
    """Whether a task failed on a frame that a newer version wrote."""
    return _names(error, UnknownFrameVersion)


def summary(error: Exception) -> str:
    """The line of a long Spark error that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.match(line)]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:500]


def is_away(error: Exception) -> bool:
    """Whether a task failed because log or store do not answer: then neither a record nor a meter is to blame.

    A task's error comes through Spark as text, so it is told by its name.
    """
    return _names(error, LogUnreachable, StoreUnreachable)


def is_short(error: Exception) -> bool:
    """Whether a task failed because the machine is short of memory, files or disk (or its JVM of memory)."""
    return _names(error, MemoryError, OSError) and not _names(error, LogDamaged)


def _names(error: Exception, *kinds: type[Exception]) -> bool:
    text = f"{type(error).__name__} {error}"
    return any(kind.__name__ in text for kind in kinds)


def _rise_if_blameless(error: Exception) -> None:
    """What says nothing about a record or a meter."""
    if is_away(error) or is_short(error):
        raise error


def salvage(
    stretch: Stretch, *, counting: Counting, log: LogReader, shortages: Counter[tuple[int, int]] | None = None
) -> list[int]:
    """Count all of the stretch but for the records that cannot be; returns their offsets.

    Halves are taken in order: the store accepts no gaps. What the store raises is not the records' fault, and rises. So
    does a shortage of the machine, once less than one record is no longer to be had: `shortages` remembers from search
    to search how often that was at (partition, offset). A record that is too new raises Blocked.
    """
    shortages = Counter() if shortages is None else shortages
    if stretch.start >= stretch.end:
        return []
    try:
        result = counting.count(stretch)
    except Exception as error:
        if is_away(error):
            raise
        if stretch.end - stretch.start == 1:
            if is_too_new(error):
                raise Blocked(stretch.partition, stretch.start, error) from None
            return _judge(stretch, counting, log, shortages)
    else:
        counting.apply(result)
        return []
    middle = (stretch.start + stretch.end) // 2
    halves = (Stretch(stretch.partition, stretch.start, middle), Stretch(stretch.partition, middle, stretch.end))
    return [offset for half in halves for offset in salvage(half, counting=counting, log=log, shortages=shortages)]


def _judge(stretch: Stretch, counting: Counting, log: LogReader, shortages: Counter[tuple[int, int]]) -> list[int]:
    """One record on which the task fails: its result if it has one after all, else it is buried.

    A machine that is short of something is waited for. But a record for which memory never suffices must not stop its
    partition for ever; a full disk, or too many files, is never for the sake of one record.
    """
    place = stretch.partition, stretch.start
    try:
        verdict = _verdict(stretch, counting)
    except Exception as error:
        if not is_short(error):
            raise
        shortages[place] += 1
        if shortages[place] < SHORT_SEARCHES or not _names(error, MemoryError):
            raise
        _count_nothing(stretch, counting)
        verdict = error
    shortages.pop(place, None)
    if isinstance(verdict, StretchResult):
        counting.apply(verdict)
        return []
    counting.apply(burial(stretch, verdict, log))
    return [stretch.start]


def _verdict(stretch: Stretch, counting: Counting) -> StretchResult | Exception:
    """Is it Spark, a meter, or the record? The result, or the error for which the record is buried.

    A Spark that has died fails every record. So before one is blamed it gets a second chance, and then counting nothing
    must succeed; if not, that error rises and everything stays in the log for the next start.
    """
    try:
        return counting.count(stretch)
    except Exception as error:
        _rise_if_blameless(error)
        _count_nothing(stretch, counting)
        broken = _to_blame(stretch, counting)
        if not broken:
            # Nothing fails apart: the whole gets a last chance, because what failed may have come back meanwhile.
            return error if broken is None else _counted(stretch, counting) or error
    healthy = [meter for meter in counting.live() if meter not in broken]
    result = replace(counting.count(stretch, only=healthy), broken=broken)
    logger.error(
        "meters %s fail on record %d of partition %d and are set aside", broken, stretch.start, stretch.partition
    )
    return result


def _count_nothing(stretch: Stretch, counting: Counting) -> None:
    counting.count(Stretch(stretch.partition, stretch.start, stretch.start))


def _counted(stretch: Stretch, counting: Counting) -> StretchResult | None:
    try:
        return counting.count(stretch)
    except Exception as error:
        _rise_if_blameless(error)
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
                _rise_if_blameless(error)
                broken[meter] = summary(error)
        # A machine that was short of something for a moment would have stopped a meter: each gets a second chance.
        return {meter: why for meter, why in broken.items() if not _counts(stretch, counting, meter)}
    except Exception as error:
        _rise_if_blameless(error)
        return None


def _counts(stretch: Stretch, counting: Counting, meter: int) -> bool:
    try:
        counting.count(stretch, only=[meter])
    except Exception as error:
        _rise_if_blameless(error)
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
        detail=summary(error),
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
