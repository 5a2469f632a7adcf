"""What the log must keep: what is young, and what the pipeline may still need."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tallymark.keeper.retention import MARGIN_MS, keep_from, retain_events
from tallymark.keeper.service import make_rota
from tallymark.keeper.streams import Stream
from tallymark.log import LocalLogWriter, LogReader, LogWriter, Outgoing, open_reader, retain
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

    def steady(self) -> int:
        return self.now_ms * 1_000_000


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


@pytest.mark.parametrize("ahead_s", [-660, 3600])
def test_what_is_young_is_told_by_the_clock_that_stamped_it(ahead_s: int) -> None:
    clock = Clock()
    log = MemoryLog(1, clock=clock)
    fill(log, clock, 1000, every_s=1)
    log.clock_ahead_ms = ahead_s * SECOND
    wall_ms = 1000 * SECOND - log.clock_ahead_ms
    found = keep_from(log, {0: 1000}, now_ms=wall_ms, keep_ms=500 * SECOND, horizon_ms=100 * SECOND)
    assert found == {0: 500}


def test_a_position_beyond_the_log_stops_retention() -> None:
    clock = Clock()
    log = MemoryLog(1, clock=clock)
    fill(log, clock, 10, every_s=1)
    with pytest.raises(WrongLog, match="up to 11, but the log ends at 10"):
        keep_from(log, {0: 11}, now_ms=0, keep_ms=0, horizon_ms=0)


def test_the_dead_letters_are_held_to_their_room_every_few_seconds() -> None:
    nothing = cast(Any, None)
    rota = make_rota(Settings(), nothing, events=nothing, dead=nothing, lease=nothing, heartbeat=nothing)
    # In a minute a flood of refused events could have filled the disk.
    assert {duty.name: duty.every_s for duty in rota._duties}["drop old letters"] <= 5


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A log of 100 records, one each 10 s, of which the store has applied 90."""
    settings, clock = Settings(data=str(tmp_path)), Clock()
    settings.log.keep_s = 0
    settings.pipeline.horizon_s = 100
    writer = LocalLogWriter(
        settings.log_folder,
        stream="events",
        partitions=1,
        partition_by="id",
        segment_bytes=4096,
        clock=clock,
        steady=clock.steady,
    )
    fill(writer, clock, 100, every_s=10)
    stream = Stream(partial(open_reader, settings, "events"))
    reader = stream.reader()
    assert reader is not None
    store = SqliteStore(tmp_path / "store.db")
    apply(store, reader, 0, 90)
    yield SimpleNamespace(settings=settings, stream=stream, reader=reader, store=store)
    for opened in (stream, store, writer):
        opened.close()


def apply(store: SqliteStore, reader: LogReader, start: int, end: int) -> None:
    result = StretchResult(Stretch(0, start, end), reader.identity, 1, (1,), b"", Ledger(accepted=end - start))
    store.sink.apply([result], now_ms=0)


def first_after_retention(counted: SimpleNamespace) -> int:
    retain_events(counted.store, counted.stream, counted.settings, 1000 * SECOND, retain)
    return int(counted.reader.positions()[0].first)


def first_needed(applied: int) -> int:
    return applied - 1 - (100 + MARGIN_MS // SECOND) // 10


def test_segments_are_deleted_and_what_is_needed_can_still_be_read(counted: SimpleNamespace) -> None:
    needed = first_needed(90)
    first = first_after_retention(counted)
    assert needed - 10 < first <= needed
    assert len(list(counted.reader.read(0, needed, 100))) == 100 - needed


def test_while_the_store_is_not_durable_nothing_is_deleted(counted: SimpleNamespace) -> None:
    # A snapshot keeps the newest commits out of the store's file: a power cut would take them, and the positions.
    with counted.store.snapshots.take() as snapshot:
        assert snapshot.applied() == {0: 90}
        apply(counted.store, counted.reader, 90, 100)
        assert first_after_retention(counted) == 0
    assert first_after_retention(counted) > 0


def test_what_was_applied_after_the_store_was_made_durable_does_not_count(
    counted: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, checkpoint = counted.store, counted.store.upkeep.checkpoint

    def checkpoint_and_go_on() -> bool:
        is_durable = checkpoint()
        apply(store, counted.reader, 90, 100)
        return bool(is_durable)

    monkeypatch.setattr(store.upkeep, "checkpoint", checkpoint_and_go_on)
    assert first_after_retention(counted) <= first_needed(90)
    assert store.sink.applied(counted.reader.identity) == {0: 100}
    assert first_needed(90) < first_after_retention(counted) <= first_needed(100)
