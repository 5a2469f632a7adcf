"""The journal's tail: the batches that are not in the points yet, merged and kept for the next question."""

import threading
from collections.abc import Callable, Iterable

import polars as pl

from tallymark.store import deltas
from tallymark.store.model import Folding

# Beyond it (the keeper was away for long) the tail is decoded again when the mark has moved.
MOST_BYTES = 200_000_000
# Spans that questions ask for at one time: one, or the two sides of a fold under way, perhaps of two snapshots.
MAX_SPANS = 4

Load = Callable[[int, int], Iterable[tuple[int, pl.DataFrame]]]
"""the batches after one sequence up to another, as (sequence, deltas), in order"""


def beyond(folding: Folding) -> pl.Expr:
    """Whether a delta's series lies beyond the border of a fold under way, and so is not in the points yet."""
    meter, series = pl.col("meter"), pl.col("series")
    return (meter > folding.meter) | ((meter == folding.meter) & (series > folding.series))


class Tail:
    """Merged entries, kept for the next question: between two folds each is decoded and merged once in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decoded: dict[int, pl.DataFrame] = {}
        self._held = 0.0
        self._merged: dict[tuple[int, int], pl.DataFrame] = {}

    def waiting(self, load: Load, *, folded: int, folding: Folding | None, end: int, sums: bool) -> list[pl.DataFrame]:
        """The deltas that the points do not have, for a snapshot with these marks.

        `sums` asks for those that the sums over all series lack: a fold under way wrote them first.
        """
        with self._lock:
            self._forget_through(folded)
        if folding is None:
            return [self._between(load, folded, end)]
        later = self._between(load, folding.through, end)
        if sums:
            return [later]
        return [self._between(load, folded, folding.through).filter(beyond(folding)), later]

    def _between(self, load: Load, after: int, through: int) -> pl.DataFrame:
        """The merged deltas of the entries after one sequence up to another."""
        with self._lock:
            known_through, known = max(
                ((span[1], merged) for span, merged in self._merged.items() if span[0] == after and span[1] <= through),
                key=lambda known: known[0],
                default=(after, deltas.empty()),
            )
        if known_through == through:
            return known
        merged = deltas.merge([known, *self._entries(load, known_through, through)])
        with self._lock:
            self._merged.pop((after, known_through), None)
            self._merged[after, through] = merged
            while len(self._merged) > MAX_SPANS:
                self._merged.pop(next(iter(self._merged)))
        return merged

    def _entries(self, load: Load, after: int, through: int) -> list[pl.DataFrame]:
        found: list[pl.DataFrame] = []
        with self._lock:
            for sequence in range(after + 1, through + 1):
                if sequence not in self._decoded:
                    break
                found.append(self._decoded[sequence])
                after = sequence
        for sequence, frame in load(after, through):
            found.append(frame)
            self._remember(sequence, frame)
        return found

    def _remember(self, sequence: int, frame: pl.DataFrame) -> None:
        with self._lock:
            if sequence not in self._decoded and self._held + frame.estimated_size() <= MOST_BYTES:
                self._decoded[sequence] = frame
                self._held += frame.estimated_size()

    def _forget_through(self, folded: int) -> None:
        for sequence in [sequence for sequence in self._decoded if sequence <= folded]:
            self._held -= self._decoded.pop(sequence).estimated_size()
        for span in [span for span in self._merged if span[0] < folded]:
            del self._merged[span]
