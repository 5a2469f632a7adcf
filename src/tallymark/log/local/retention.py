"""Deleting the oldest segments of a stream: what no reader needs any more, or what exceeds its room."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tallymark.log.local.layout import index_file, mark_file, partition_folder, read_layout, segment_file, segments
from tallymark.log.local.mark import Mark


def retain(stream: Path, keep_from: Mapping[int, int]) -> int:
    """The bytes freed by deleting segments that lie wholly below the offset given for their partition.

    Who may still need what is the caller's to know. The last synced record is always kept: the writer goes on from it.
    """
    with no_retention(stream):
        return sum(
            _delete_below(partition_folder(stream, partition), offset) for partition, offset in keep_from.items()
        )


def drop_oldest(stream: Path, max_bytes: int) -> int:
    """The bytes freed by deleting the oldest segments of each partition until the stream fits; for the dead letters."""
    partitions = read_layout(stream).partitions
    freed = 0
    with no_retention(stream):
        for partition in range(partitions):
            folder = partition_folder(stream, partition)
            firsts = segments(folder)
            excess = sum(_bytes(folder, first) for first in firsts) - max_bytes // partitions
            keep_from = firsts[0] if firsts else 0
            for first, following in pairwise(firsts):
                if excess <= 0:
                    break
                excess -= _bytes(folder, first)
                keep_from = following
            freed += _delete_below(folder, keep_from)
    return freed


def _delete_below(folder: Path, offset: int) -> int:
    mark = Mark(mark_file(folder), writable=True)
    try:
        limit = max(mark.first, min(offset, mark.read().synced - 1))
        firsts = segments(folder)
        doomed = [first for first, following in pairwise(firsts) if following <= limit]
        if not doomed:
            return 0
        keep = firsts[len(doomed)]
        # Readers are told first; a crash from here on leaves files that the next retention, or the writer, deletes.
        if keep > mark.first:
            mark.move_first(keep)
        return sum(_delete(folder, first) for first in doomed)
    finally:
        mark.close()


def _delete(folder: Path, first: int) -> int:
    size = _bytes(folder, first)
    # The segment last: whoever cleans up after a crash finds its files by it.
    index_file(folder, first).unlink(missing_ok=True)
    segment_file(folder, first).unlink()
    return size


def _bytes(folder: Path, first: int) -> int:
    """Room of a segment with its index."""
    return sum(
        path.stat().st_size for path in (segment_file(folder, first), index_file(folder, first)) if path.exists()
    )


@contextmanager
def no_retention(stream: Path) -> Iterator[None]:
    """Keeps retention out, in whichever process it runs; it holds this itself, and the writer while it recovers."""
    file = os.open(stream / "retention.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
