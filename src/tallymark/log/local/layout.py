"""Where a stream keeps what: `layout.json`, and per partition a folder with a mark, segments and their indexes."""

import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from tallymark.log.local.disk import Disk
from tallymark.log.local.mark import Mark
from tallymark.log.protocol import LayoutChanged, LogDamaged, LogError, LogLost

VERSION = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """What is fixed when a stream is made."""

    identity: str
    partitions: int
    partition_by: str
    version: int = VERSION


def layout_file(stream: Path) -> Path:
    return stream / "layout.json"


def partition_folder(stream: Path, partition: int) -> Path:
    return stream / f"{partition:04d}"


def mark_file(folder: Path) -> Path:
    return folder / "mark"


def segment_file(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}.seg"


def index_file(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}.idx"


def segments(folder: Path) -> list[int]:
    """The first offsets of the segments in a partition's folder, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.seg"))


def read_layout(stream: Path) -> Layout:
    """The layout a stream was made with; LogLost where none was made yet."""
    path = layout_file(stream)
    try:
        fields = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise LogLost(f"there is no log at {stream}; the collector creates it when it first starts") from None
    except ValueError as error:
        raise LogDamaged(f"{path} is not JSON ({error}); restore it from a copy") from error
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        found = fields.get("version") if isinstance(fields, dict) else fields
        raise LogError(f"{path} has version {found!r}; this Tallymark reads version {VERSION}")
    return Layout(**fields)


def open_layout(stream: Path, *, partitions: int, partition_by: str, disk: Disk) -> Layout:
    """The layout on disk if it is the one asked for, or a new one; the caller holds the writer's lock."""
    try:
        layout = read_layout(stream)
    except LogLost:
        return _make(stream, Layout(str(uuid.uuid4()), partitions, partition_by), disk)
    if (layout.partitions, layout.partition_by) != (partitions, partition_by):
        raise LayoutChanged(
            f"{stream} has {layout.partitions} partitions by {layout.partition_by!r}, but the settings ask for "
            f"{partitions} by {partition_by!r}; set log.partitions = {layout.partitions} and "
            f'log.partition_by = "{layout.partition_by}", or start a new log in another data folder'
        )
    return layout


def _make(stream: Path, layout: Layout, disk: Disk) -> Layout:
    """`layout.json` is written last: a stream without one has never taken a record and may be made again."""
    for partition in range(layout.partitions):
        folder = partition_folder(stream, partition)
        folder.mkdir(exist_ok=True)
        if any(segment_file(folder, first).stat().st_size for first in segments(folder)):
            raise LogDamaged(f"{layout_file(stream)} is missing, but {folder} holds records; restore it from a copy")
        Mark.create(mark_file(folder))
        segment_file(folder, 0).touch()
        index_file(folder, 0).touch()
        disk.sync_folder(folder)
    path = layout_file(stream)
    fresh = path.with_suffix(".new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(asdict(layout), file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    disk.sync_folder(stream)
    disk.sync_folder(stream.parent)
    return layout
