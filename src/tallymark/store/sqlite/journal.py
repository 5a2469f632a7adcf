"""The journal: applied batches in order."""

import sqlite3
from collections.abc import Generator
from itertools import groupby

import polars as pl

from tallymark.store import deltas


def entries(
    connection: sqlite3.Connection, *, after: int, through: int | None = None, sketches: bool = True
) -> Generator[tuple[int, pl.DataFrame]]:
    """(sequence, deltas) of every batch after one sequence, as many rows at a time as the caller takes."""
    rows = connection.execute(
        "SELECT sequence, deltas FROM journal WHERE sequence > ? AND sequence <= ? ORDER BY sequence, partition, start",
        (after, through if through is not None else 2**62),
    )
    for sequence, stretches in groupby(rows, key=lambda row: int(row[0])):
        frames = [deltas.decode(payload, sketches=sketches) for _, payload in stretches]
        yield sequence, frames[0] if len(frames) == 1 else pl.concat(frames)


def drop_folded(connection: sqlite3.Connection, *, folded: int, before_ms: int, most: int = 200) -> int:
    """Within a transaction: deletes at most this many entries that are in the points and that no follower waits for."""
    deleted = connection.execute(
        "DELETE FROM journal WHERE rowid IN ("
        "SELECT rowid FROM journal WHERE sequence <= ? AND applied_ms < ? ORDER BY sequence LIMIT ?)",
        (folded, before_ms, most),
    )
    return deleted.rowcount
