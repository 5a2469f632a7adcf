"""What the log must keep: what is young, and what the pipeline may still need."""

from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tallymark.keeper.retention import MARGIN_MS, keep_from, retain_events
from tallymark.keeper.service import make_rota
from tallymark.keeper.streams import Stream
from tallymark.log import LocalLogWriter, LogWriter, Outgoing, open_reader, retain
from tallymark.settings import Settings
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import WrongLog
from tallymark.store.sqlite.store import SqliteStore
from tallymark.testing import MemoryLog

SECOND = 1000


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def fill(writer: LogWriter, clock: Clock, records: int, *, every_s: int) -> None:
    for number in range(records):
        clock.now_ms = number * every_s * SECOND
        writer.append([Outgoing(0, b"x" * 500, 1)])


@pytest.mark.parametrize(
    ("applied", "keep_s", "kept"),
    [
        ({0: 1000}, 500, 500),  # young enough
        ({0: 1000}, 0, 999 - 100 - MARGIN_MS // SECOND),  # the horizon of the last applied record
        ({0: 800}, 0, 799 - 100 - MARGIN_MS // SECOND),
        ({0: 800}, 900, 100),
        ({0: 50}, 0, 0),
        ({0: 0}, 0, 0),
        ({}, 0, 0),  # nothing applied: everything is needed
    ],
)
def test_what_is_kept(applied: dict[int, int], keep_s: int, kept: int) -> None:
    clock = Clock()
    log = MemoryLog(1, clock=clock)
    fill(log, clock, 1000, every_s=1)
    found = keep_from(log, applied, now_ms=1000 * SECOND, keep_ms=keep_s * SECOND, horizon_ms=100 * SECOND)
    assert found == {0: kept}


def test_a_position_beyond_the_log_stops_retention() -> None:
    clock = Clock()
    log = MemoryLog(1, clock=clock)
    fill(log, clock, 10, every_s=1)
    with pytest.raises(WrongLog, match="up to 11, but the log ends at 10"):
        keep_from(log, {0: 11}, now_ms=0, keep_ms=0, horizon_ms=0)


def test_the_dead_letters_are_held_to_their_room_every_few_seconds() -> None:
    nothing = cast(Any, None)
    rota = make_rota(Settings(), nothing, events=nothing, dead=nothing)
    # In a minute a flood of refused events could have filled the disk.
    assert {duty.name: duty.every_s for duty in rota._duties}["drop old letters"] <= 5


def test_segments_are_deleted_and_what_is_needed_can_still_be_read(tmp_path: Path) -> None:
    settings, clock = Settings(data=str(tmp_path)), Clock()
    settings.log.keep_s = 0
    settings.pipeline.horizon_s = 100
    writer = LocalLogWriter(
        settings.log_folder, stream="events", partitions=1, partition_by="id", segment_bytes=4096, clock=clock
    )
    fill(writer, clock, 100, every_s=10)
    stream = Stream(partial(open_reader, settings, "events"))
    reader = stream.reader()
    assert reader is not None
    store = SqliteStore(tmp_path / "store.db")
    store.apply([StretchResult(Stretch(0, 0, 90), reader.identity, 1, (1,), b"", Ledger(accepted=90))], now_ms=0)
    retain_events(store, stream, settings, 1000 * SECOND, retain)
    needed = 89 - (100 + MARGIN_MS // SECOND) // 10
    first = reader.positions()[0].first
    assert needed - 10 < first <= needed
    assert len(list(reader.read(0, needed, 100))) == 100 - needed
    for opened in (stream, store, writer):
        opened.close()
