"""A power cut takes what no sync had made durable: the end of the log's files, the newest commits of the store."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from loading import Load
from running import Running
from tallymark.log.local.index import ENTRY_BYTES, read_one
from tallymark.log.local.layout import index_file, mark_file, read_layout, segment_file, segments
from tallymark.log.local.mark import Mark
from tallymark.log.local.record import seed

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    # Segments small enough that a cut also falls just behind a new one.
    made = Running(
        tmp_path_factory.mktemp("power"), settings={"log.segment_bytes": 200_000, "pipeline.horizon_s": 3600}
    )
    try:
        yield made.start()
        made.stop()
    finally:
        made.close()


def test_a_log_whose_unsynced_end_is_gone_loses_nothing_and_doubles_nothing(running):
    load = begin_load(running, "tail")
    load.await_acknowledged(5_000)
    old_marks = {folder: mark_file(folder).read_bytes() for folder in partitions(running)}
    load.await_acknowledged(15_000)
    running.kill_everything()
    chance = random.Random(9)
    for place, folder in enumerate(partitions(running)):
        cut_power(folder, identity=read_layout(folder.parent).identity, partition=place, chance=chance)
        # The mark is never synced either: one partition finds it as it was long ago.
        if place == 0:
            mark_file(folder).write_bytes(old_marks[folder])
    running.start()
    load.finish()
    load.check()


def test_a_store_whose_newest_commits_are_gone_counts_again_to_the_same_numbers(running):
    load = begin_load(running, "store")
    load.await_acknowledged(5_000)
    copy = running.folder / "older.db"
    running.copy_store(copy)
    load.await_acknowledged(20_000)
    running.kill_everything()
    running.put_back_store(copy)
    running.start()
    load.finish()
    load.check()


def begin_load(running: Running, name: str) -> Load:
    """It goes on through the power cut, as clients do."""
    return Load(running, name, events=30_000, rate=3_000, duplicates=0.05, late=0.02)


def partitions(running: Running) -> list[Path]:
    found = sorted(path.parent for path in (running.data / "log" / "events").glob("*/mark"))
    assert found, "no partition to cut the power of"
    return found


def cut_power(folder: Path, *, identity: str, partition: int, chance: random.Random) -> None:
    """Nothing behind the synced mark is left as it was: the file may end there, or go on with zeros or with rubbish."""
    synced = synced_end(folder)
    first = max(start for start in segments(folder) if start <= synced)
    segment, index = segment_file(folder, first), index_file(folder, first)
    key = seed(identity, partition)
    with open(index, "rb") as entries:
        end = (
            read_one(entries.fileno(), first=first, offset=synced - 1, seed=key).next_position if synced > first else 0
        )
    assert segment.stat().st_size >= end, "what was acknowledged is in the file"
    os.truncate(segment, end)
    with open(segment, "ab") as file:
        file.write(chance.choice([bytes(5_000), chance.randbytes(5_000), chance.randbytes(60)]))
    # The index beside it is not synced at all before its segment is closed.
    os.truncate(index, chance.randrange(0, (synced - first) * ENTRY_BYTES + 1))


def synced_end(folder: Path) -> int:
    mark = Mark(mark_file(folder))
    try:
        return mark.read().synced
    finally:
        mark.close()
