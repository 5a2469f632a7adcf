"""The journal: applied batches in order, and its tail, the batches that are not in the points yet."""

import sqlite3
import threading
from collections.abc import Generator
from itertools import groupby

import polars as pl

from tallymark.store import deltas

# About 120 MB. Beyond it (the keeper was away for long) the tail is decoded again when the mark has moved.
MAX_CACHED_ROWS = 2_000_000


def entries(
    connection: sqlite3.Connection, *, after: int, through: int | None = None
) -> Generator[tuple[int, pl.DataFrame]]:
    """(sequence, deltas) of every batch after one sequence, as many rows at a time as the caller takes."""
    rows = connection.execute(
        "SELECT sequence, deltas FROM journal WHERE sequence > ? AND sequence <= ? ORDER BY sequence, partition, start",
        (after, through if through is not None else 2**62),
    )
    for sequence, stretches in groupby(rows, key=lambda row: int(row[0])):
        frames = [deltas.decode(payload) for _, payload in stretches]
        yield sequence, frames[0] if len(frames) == 1 else pl.concat(frames)


def drop_folded(connection: sqlite3.Connection, *, folded: int, before_ms: int, most: int = 200) -> int:
    """Within a transaction: deletes at most this many entries that are in the points and that no follower waits for."""
    deleted = connection.execute(
        "DELETE FROM journal WHERE rowid IN ("
        "SELECT rowid FROM journal WHERE sequence <= ? AND applied_ms < ? ORDER BY sequence LIMIT ?)",
        (folded, before_ms, most),
    )
    return deleted.rowcount


class Tail:
    """Decoded entries, kept for the next question: between two folds each is decoded once in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decoded: dict[int, pl.DataFrame] = {}
        self._rows = 0
        self._span = (0, 0)
        self._merged = deltas.empty()

    def read(self, connection: sqlite3.Connection, *, folded: int, end: int) -> pl.DataFrame:
        """The merged deltas of the entries after `folded` up to `end`, for a connection whose snapshot has them."""
        with self._lock:
            (known_folded, known_end), known = self._span, self._merged
        if (known_folded, known_end) == (folded, end):
            return known
        if known_folded == folded and known_end < end:
            frames = [known, *self._entries(connection, known_end, end)]
        else:
            frames = self._entries(connection, folded, end)
        merged = deltas.merge(frames)
        with self._lock:
            # A snapshot taken before the one remembered must not push it out.
            if (folded, end) > self._span:
                self._span, self._merged = (folded, end), merged
                self._forget_through(folded)
        return merged

    def _entries(self, connection: sqlite3.Connection, after: int, through: int) -> list[pl.DataFrame]:
        found: list[pl.DataFrame] = []
        with self._lock:
            for sequence in range(after + 1, through + 1):
                if sequence not in self._decoded:
                    break
                found.append(self._decoded[sequence])
                after = sequence
        for sequence, frame in entries(connection, after=after, through=through):
            found.append(frame)
            self._remember(sequence, frame)
        return found

    def _remember(self, sequence: int, frame: pl.DataFrame) -> None:
        with self._lock:
            if sequence not in self._decoded and self._rows + frame.height <= MAX_CACHED_ROWS:
                self._decoded[sequence] = frame
                self._rows += frame.height

    def _forget_through(self, folded: int) -> None:
        for sequence in [sequence for sequence in self._decoded if sequence <= folded]:
            self._rows -= self._decoded.pop(sequence).height
