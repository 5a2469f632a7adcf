"""What the writer does when it opens a partition: check the indexes, cut the torn end, and say where to go on."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tallymark.log.local import index
from tallymark.log.local.disk import Disk, write_all
from tallymark.log.local.layout import index_file, segment_file, segments
from tallymark.log.local.mark import Mark
from tallymark.log.local.record import Broken, Header, walk
from tallymark.log.protocol import LogDamaged

logger = logging.getLogger(__name__)

WAY_OUT = "nothing from here on is read or written; restore the file from a copy, or start a new log"


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where a partition goes on: in segment `active` at byte `position`, with offset `end`, after the record `last`."""

    active: int
    position: int
    end: int
    last: Header | None


@dataclass(frozen=True, slots=True)
class _Scan:
    """The whole records at the beginning of a segment, and why there are no more of them."""

    entries: list[index.Entry]
    last: Header | None
    position: int
    end: int
    broken: Broken | None


def recover(folder: Path, *, seed: int, mark: Mark, disk: Disk) -> Recovered:
    """A partition whose every record is whole, indexed and durable; LogDamaged if one that was durable is not whole."""
    firsts = _segments(folder, mark)
    for first, following in pairwise(firsts):
        _check_sealed(folder, first, following, seed=seed, disk=disk)
    active = firsts[-1]
    scan = _recover_active(folder, active, seed=seed, mark=mark, disk=disk)
    disk.sync_folder(folder)
    last = scan.last or (_last_record(folder, firsts[-2], active, seed=seed) if len(firsts) > 1 else None)
    return Recovered(active, scan.position, scan.end, last)


def _segments(folder: Path, mark: Mark) -> list[int]:
    """The segments there must be; what an interrupted retention left below `first` is deleted."""
    firsts = segments(folder)
    for first in [first for first in firsts if first < mark.first]:
        index_file(folder, first).unlink(missing_ok=True)
        segment_file(folder, first).unlink(missing_ok=True)
        firsts.remove(first)
    if not firsts or firsts[0] != mark.first:
        raise LogDamaged(
            f"{segment_file(folder, mark.first)} is missing: offset {mark.first} cannot be read; {WAY_OUT}"
        )
    return firsts


def _check_sealed(folder: Path, first: int, following: int, *, seed: int, disk: Disk) -> None:
    """Trusts the index of a closed segment if it is whole and covers the file; else makes it again from the records."""
    path = segment_file(folder, first)
    if _index_covers(folder, first, following, seed=seed):
        return
    scan = _scan(path, first, seed=seed)
    if scan.broken:
        raise LogDamaged(f"{path}: {scan.broken}; {WAY_OUT}")
    if scan.end != following:
        missing = (
            f"offset {scan.end} to {following - 1}" if scan.end < following else f"what follows offset {following}"
        )
        raise LogDamaged(
            f"{path} ends at offset {scan.end} and the next segment begins at {following}: {missing}; {WAY_OUT}"
        )
    logger.warning("%s was damaged or missing and has been rebuilt from its segment", index_file(folder, first))
    _write_index(folder, first, scan.entries, seed=seed, disk=disk)


def _index_covers(folder: Path, first: int, following: int, *, seed: int) -> bool:
    try:
        with _opened(index_file(folder, first), os.O_RDONLY) as file:
            if os.fstat(file).st_size != (following - first) * index.ENTRY_BYTES:
                return False
            index.read_many(file, first=first, start=first, end=following, seed=seed)
            last = index.read_one(file, first=first, offset=following - 1, seed=seed)
    except (FileNotFoundError, index.IndexDamaged):
        return False
    return last.next_position == segment_file(folder, first).stat().st_size


def _recover_active(folder: Path, first: int, *, seed: int, mark: Mark, disk: Disk) -> _Scan:
    """Reads all of the last segment: its index is never synced, so only the records themselves can be believed.

    A segment is begun only after the one before it was synced, so the last one's first offset is a lower bound of what
    is durable, and helps where power took the newest mark.
    """
    path = segment_file(folder, first)
    synced = max(mark.read().synced, first)
    scan = _scan(path, first, seed=seed)
    if scan.end < synced:
        what = scan.broken or f"the file ends at offset {scan.end}"
        raise LogDamaged(f"{path}: {what}, but offsets up to {synced - 1} were synced; {WAY_OUT}")
    with _opened(path, os.O_RDWR) as file:
        torn = os.fstat(file).st_size - scan.position
        if torn:
            logger.warning(
                "%s: cut %d bytes of an append that was never acknowledged; offset %d is next", path, torn, scan.end
            )
            disk.truncate(file, scan.position)
        if scan.end > synced:
            _write_again(file, scan.entries[synced - first].position, scan.position, disk=disk)
        if torn or scan.end > synced:
            disk.sync(file)
    _write_index(folder, first, scan.entries, seed=seed, disk=disk)
    return scan


def _write_again(file: int, start: int, end: int, *, disk: Disk) -> None:
    """Dirties pages that a failed sync may have marked clean, so that the next sync really writes them."""
    while start < end:
        data = os.pread(file, min(end - start, 1 << 22), start)
        write_all(disk, file, data, start)
        start += len(data)


def _scan(path: Path, first: int, *, seed: int) -> _Scan:
    entries: list[index.Entry] = []
    broken = last = None
    with _opened(path, os.O_RDONLY) as file:
        try:
            for position, header, payload in walk(file, seed=seed, position=0, offset=first):
                _, append_ms, events_before, events, *_ = header
                entries.append(index.Entry(position, append_ms, events_before, events, len(payload)))
                last = header
        except Broken as caught:
            broken = caught
    position = entries[-1].next_position if entries else 0
    return _Scan(entries, last, position, first + len(entries), broken)


def _last_record(folder: Path, first: int, following: int, *, seed: int) -> Header:
    """The record before offset `following`, found through the index that was just checked."""
    path = segment_file(folder, first)
    with _opened(index_file(folder, first), os.O_RDONLY) as file:
        position = index.read_one(file, first=first, offset=following - 1, seed=seed).position
    with _opened(path, os.O_RDONLY) as file:
        try:
            return next(walk(file, seed=seed, position=position, offset=following - 1, end=following))[1]
        except Broken as broken:
            raise LogDamaged(f"{path}: {broken}; {WAY_OUT}") from None


def _write_index(folder: Path, first: int, entries: list[index.Entry], *, seed: int, disk: Disk) -> None:
    """In place, so that readers that hold the file open get the good entries too."""
    data = b"".join(index.pack(entry, offset=first + n, seed=seed) for n, entry in enumerate(entries))
    with _opened(index_file(folder, first), os.O_RDWR | os.O_CREAT) as file:
        if os.fstat(file).st_size == len(data) and os.pread(file, len(data), 0) == data:
            return
        write_all(disk, file, data, 0)
        disk.truncate(file, len(data))
        disk.sync(file)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags, 0o644)
    try:
        yield file
    finally:
        os.close(file)
