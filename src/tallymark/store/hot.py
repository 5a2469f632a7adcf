"""Hot blocks: the latest points of sets that are asked for by many series, kept as columns in memory.

A block holds the points of one set from some moment on, as they are at a fold mark F. When the store's mark has moved
to F', the block takes in the journal's entries F+1 to F', which are exactly what the fold added. What came after the
mark is in the tail, whether or not a fold is under way. So nothing is read from the store again.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tallymark.aggregates.columns import NAMES
from tallymark.aggregates.functions import kept_for
from tallymark.store import numeric
from tallymark.store.answer import within
from tallymark.store.grains import floor
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import SnapshotOutdated, TooManyBytes
from tallymark.store.read_plan import Question
from tallymark.store.series_codes import Codes, SeriesCodes, is_among
from tallymark.store.tail import Load, Tail

# Of all blocks together: 10,000 series with five columns take 27 MB an hour.
MOST_BYTES = 256_000_000
MOST_SPAN_S = 2 * 3_600
# Of one point.
CODE_BYTES, COLUMN_BYTES = 4, 8
# Fewer series than that are read from the points: a seek each.
MANY_SERIES = 20
# Twice within this time is worth a block; one that cannot be had is not tried again for as long. Less than what the
# journal keeps (`keeper.journal_keep_s`): else the entries that a block needs to move on would be gone.
AGAIN_S = 25.0
# Rows that are added up at once for one answer.
MOST_CELLS = 4_000_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a block should hold: the points of a set from `start_s` on."""

    meter: RegisteredMeter
    set_id: int
    codes: SeriesCodes
    start_s: int
    names: tuple[str, ...]
    most_bytes: int
    """more than that raises TooManyBytes"""


@dataclass(frozen=True, slots=True)
class Found:
    """Points as they are at a mark."""

    mark: int
    points: Sequence[numeric.Arrays]
    """`code`, `bucket_s` and columns; no point twice"""
    rest: pl.DataFrame | None = None
    """deltas up to the mark that the points lack"""


Fill = Callable[[Wanted], Found]
"""reads from the store what a block should hold, from a snapshot of its own"""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The points of one bucket, in the order of codes. Never changed, only replaced."""

    codes: Codes
    columns: numeric.Arrays
    is_dense: bool
    """whether code and place are the same"""

    @classmethod
    def of(cls, codes: Codes, columns: numeric.Arrays) -> "Bucket":
        return cls(codes, columns, bool(len(codes)) and int(codes[-1]) == len(codes) - 1)

    def of_chosen(self, chosen: Codes) -> tuple[Codes, numeric.Arrays]:
        if self.is_dense:
            at = chosen[: np.searchsorted(chosen, len(self.codes))]
            return at, {name: column[at] for name, column in self.columns.items()}
        places = np.flatnonzero(is_among(self.codes, chosen))
        return self.codes[places], {name: column[places] for name, column in self.columns.items()}


@dataclass(frozen=True, slots=True)
class Block:
    """The points of a set from `start_s` on, at a mark. Never changed: a reader may keep it while others move on."""

    mark: int
    start_s: int
    codes: SeriesCodes
    names: tuple[str, ...]
    buckets: dict[int, Bucket] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """In bytes. From the number of points: asking each array took 65 ms for two hours of seconds."""
        points = sum(len(bucket.codes) for bucket in self.buckets.values())
        return points * (CODE_BYTES + COLUMN_BYTES * len(self.names))

    def with_rows(self, rows: numeric.Arrays, *, mark: int, start_s: int) -> "Block":
        """With these deltas, at a later mark, and without what lies before `start_s`."""
        kept = {bucket_s: bucket for bucket_s, bucket in self.buckets.items() if bucket_s >= start_s}
        for bucket_s in np.unique(rows["bucket_s"]).tolist():
            if bucket_s >= start_s:
                mine = np.flatnonzero(rows["bucket_s"] == bucket_s)
                merged = numeric.Merged(self.names, len(self.codes))
                known = kept.get(bucket_s)
                if known is not None:
                    merged.add(known.codes, known.columns, unique=True)
                merged.add(rows["code"][mine], {name: rows[name][mine] for name in self.names}, unique=False)
                present = merged.present()
                columns = {name: column[present] for name, column in merged.columns.items()}
                kept[bucket_s] = Bucket.of(present.astype(np.int32), columns)
        return Block(mark, start_s, self.codes, self.names, kept)


@dataclass
class _Set:
    """What is known of a set that was asked for by many series."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    block: Block | None = None
    asked_at: float = float("-inf")
    wanted_s: int | None = None
    """the earliest start that was asked for lately"""
    since: float = float("-inf")
    is_filling: bool = False
    not_before: float = float("-inf")


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="hot block", daemon=True).start()


class HotBlocks:
    """Answers what its blocks hold; None for everything else, which is then read from the points."""

    def __init__(
        self,
        tail: Tail,
        fill: Fill,
        *,
        most_bytes: int = MOST_BYTES,
        run: Callable[[Callable[[], None]], None] = _in_background,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tail, self._fill = tail, fill
        self.run, self.clock, self.most_bytes = run, clock, most_bytes
        self.span_s, self.many_series = MOST_SPAN_S, MANY_SERIES
        self.answered = 0
        self._lock = threading.Lock()
        self._sets: OrderedDict[int, _Set] = OrderedDict()

    def answer(
        self,
        question: Question,
        load: Load,
        *,
        folded: int,
        end: int,
        most_rows: int | None = None,
        most_bytes: int | None = None,
    ) -> pl.DataFrame | None:
        """The whole answer for a snapshot with these marks."""
        if not self._is_wide(question) or not numeric.can_merge(question.columns):
            return None
        codes = self._tail.codes(question.set_id, question.meter)
        block = self._block(question, codes, load, folded)
        if block is None:
            return None
        waiting = self._tail.after(load, question.set_id, codes, mark=folded, end=end)
        found = _answer(question, block, numeric.from_frame(waiting, ["code", "bucket_s", *question.columns]))
        if found is None:
            return None
        self.answered += 1
        return within(found, most_rows=most_rows, most_bytes=most_bytes)

    def _is_wide(self, question: Question) -> bool:
        """Whether it reads many series of a short time."""
        if question.reads_sums:
            return False
        if question.where and sum(map(len, question.where.values())) <= self.many_series:
            return False
        # An open end is as far as there are points.
        return question.start_s >= self.clock() - self.span_s

    def _block(self, question: Question, codes: SeriesCodes, load: Load, folded: int) -> Block | None:
        """The block that stands at the snapshot's mark, if there is one; the second to ask has it made."""
        with self._lock:
            asked = self._sets.setdefault(question.set_id, _Set())
            self._sets.move_to_end(question.set_id)
        now = self.clock()
        with asked.lock:
            if asked.wanted_s is None or question.start_s < asked.wanted_s or now - asked.since > AGAIN_S:
                asked.wanted_s, asked.since = question.start_s, now
            block = asked.block
            if block is not None and block.codes is codes and block.start_s <= question.start_s:
                if block.mark < folded:
                    block = asked.block = self._moved_on(question, block, load, folded, asked.wanted_s)
                    self._forget_surplus()
                if block is None or block.mark > folded:
                    return None  # the journal is pruned, or this snapshot is older than the block
                return block if set(question.columns) <= set(block.names) else None
            is_again = now - asked.asked_at <= AGAIN_S
            asked.asked_at = now
            if not is_again or asked.is_filling or now < asked.not_before:
                return None
            asked.is_filling = True
        wanted = Wanted(
            question.meter, question.set_id, codes, question.start_s, _names(question), self.most_bytes // 2
        )
        self.run(lambda: self._make(asked, wanted))
        return None

    def _moved_on(self, question: Question, block: Block, load: Load, folded: int, start_s: int) -> Block | None:
        try:
            rows = self._tail.folded_since(load, question.set_id, block.codes, after=block.mark, through=folded)
        except SnapshotOutdated:
            rows = None
        if rows is None:
            return None
        arrays = numeric.from_frame(rows, ["code", "bucket_s", *block.names])
        return block.with_rows(arrays, mark=folded, start_s=max(block.start_s, min(start_s, question.start_s)))

    def _make(self, asked: _Set, wanted: Wanted) -> None:
        block = None
        try:
            block = self._filled(wanted)
        except TooManyBytes as error:
            logger.info("the latest points of set %d are not kept in memory: %s", wanted.set_id, error)
        except Exception:
            # Questions do without; the store may have been closed meanwhile.
            logger.debug("no hot block of set %d", wanted.set_id, exc_info=True)
        finally:
            with asked.lock:
                asked.is_filling = False
                asked.block = block
                if block is None:
                    asked.not_before = self.clock() + AGAIN_S
        self._forget_surplus()

    def _filled(self, wanted: Wanted) -> Block:
        found = self._fill(wanted)
        block = Block(found.mark, wanted.start_s, wanted.codes, wanted.names)
        if found.points:
            names = ("code", "bucket_s", *wanted.names)
            rows = {name: np.concatenate([part[name] for part in found.points]) for name in names}
            order = np.lexsort((rows["code"], rows["bucket_s"]))
            buckets, first = np.unique(rows["bucket_s"][order], return_index=True)
            for bucket_s, at in zip(buckets.tolist(), np.split(order, first[1:]), strict=True):
                code = rows["code"][at].astype(np.int32)
                block.buckets[bucket_s] = Bucket.of(code, {name: rows[name][at] for name in wanted.names})
        if found.rest is None:
            return block
        rest = numeric.from_frame(found.rest, ["code", "bucket_s", *wanted.names])
        return block.with_rows(rest, mark=found.mark, start_s=wanted.start_s)

    def _forget_surplus(self) -> None:
        with self._lock:
            known = list(self._sets.values())
        sizes = [0 if each.block is None else each.block.size for each in known]
        surplus = sum(sizes) - self.most_bytes
        for each, size in zip(known, sizes, strict=True):
            if surplus <= 0:
                return
            each.block = None
            surplus -= size


def _names(question: Question) -> tuple[str, ...]:
    """All plain columns that the meter keeps, so that one block answers every question about it."""
    meter = question.meter.meter
    kept = kept_for(meter.compute, decimals=meter.decimals) | set(question.columns)
    return tuple(name for name in NAMES if name in kept and (name == "n" or numeric.can_merge([name, "n_value"])))


def _answer(question: Question, block: Block, waiting: numeric.Arrays) -> pl.DataFrame | None:
    """Added up series by series, then by the labels that are asked for."""
    # In this order: whatever has a code by now is in the groups.
    groups = block.codes.groups(question.by)
    chosen = block.codes.chosen(question.where) if question.where else None
    buckets = {
        bucket_s: bucket for bucket_s, bucket in block.buckets.items() if question.start_s <= bucket_s < question.end_s
    }
    is_asked = (waiting["bucket_s"] >= question.start_s) & (waiting["bucket_s"] < question.end_s)
    starts = _steps(question, [*buckets, *np.unique(waiting["bucket_s"][is_asked]).tolist()])
    codes = len(groups.of_code)
    if codes * len(starts) > MOST_CELLS:
        return None
    merged = numeric.Merged(question.columns, codes * len(starts))
    for bucket_s, bucket in buckets.items():
        offset = starts[_step(question, bucket_s)] * codes
        if chosen is not None:
            at, rows = bucket.of_chosen(chosen)
            merged.add(at + offset, rows, unique=True)
        elif bucket.is_dense:
            merged.add(slice(offset, offset + len(bucket.codes)), bucket.columns, unique=True)
        else:
            merged.add(bucket.codes + offset, bucket.columns, unique=True)
    if chosen is not None:
        is_chosen = np.zeros(codes, np.bool_)
        is_chosen[chosen[chosen < codes]] = True
        is_asked &= is_chosen[waiting["code"]]
    places = np.flatnonzero(is_asked)
    if len(places):
        code, rows = waiting["code"][places], {name: waiting[name][places] for name in question.columns}
        if question.step_s is not None:
            floors = waiting["bucket_s"][places] // question.step_s * question.step_s
            code = code + np.searchsorted(np.array(list(starts), np.int64), floors) * codes
        merged.add(code, rows, unique=False)
    return _grouped(question, merged, groups.labels, groups.of_code, list(starts))


def _grouped(
    question: Question, merged: numeric.Merged, labels: pl.DataFrame, of_code: Codes, starts: list[int | None]
) -> pl.DataFrame:
    height = labels.height if question.by else 1
    codes = len(of_code)
    place = np.tile(of_code.astype(np.int64) * len(starts), len(starts)) + np.repeat(np.arange(len(starts)), codes)
    grouped = numeric.Merged(question.columns, height * len(starts))
    grouped.add(place, merged.columns, unique=height == codes)
    present = grouped.present() if question.by or question.step_s is not None else np.zeros(1, np.intp)
    keys = [labels[name].gather(present // len(starts)) for name in labels.columns] if question.by else []
    if question.step_s is not None:
        steps = np.array(starts, np.int64)
        keys.append(pl.Series("bucket_s", steps[present % len(starts)]))
    return pl.DataFrame([*keys, *grouped.series(present)])


def _step(question: Question, bucket_s: int) -> int | None:
    return None if question.step_s is None else floor(bucket_s, question.step_s)


def _steps(question: Question, buckets: Iterable[int]) -> dict[int | None, int]:
    """Each step that there is, in order, and its place."""
    if question.step_s is None:
        return {None: 0}
    return {start: place for place, start in enumerate(sorted({floor(each, question.step_s) for each in buckets}))}
