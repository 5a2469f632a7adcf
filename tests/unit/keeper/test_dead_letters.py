"""Refused events come from the log into the dead letters once, whatever happens on the way."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tallymark.keeper.dead_letters import take_in_letters
from tallymark.keeper.streams import Stream
from tallymark.log import LocalLogWriter, LogDamaged, LogReader, LogUnreachable, Outgoing, Record, drop_oldest
from tallymark.log.address import LocalAddress
from tallymark.store.model import DeadLetter
from tallymark.store.sqlite.store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db")
    yield opened
    opened.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LocalLogWriter]:
    opened = LocalLogWriter(tmp_path / "log", stream="dead", partitions=1, partition_by="none", segment_bytes=4096)
    yield opened
    opened.close()


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    opened = Stream(LocalAddress(str(tmp_path / "log"), "dead").open_reader)
    yield opened
    opened.close()


def letter(number: int, size: int = 10) -> DeadLetter:
    return DeadLetter("collector", "bad_time", f"letter {number}", 1, b"x" * size, number)


def refuse(writer: LocalLogWriter, *letters: DeadLetter) -> None:
    writer.append([Outgoing(0, msgspec.msgpack.encode(list(letters)), len(letters))])


def take_in_all(store: SqliteStore, stream: Stream) -> None:
    while take_in_letters(store.dead_letters, stream):
        pass


def test_before_the_log_exists_there_is_nothing_to_do(store: SqliteStore, stream: Stream) -> None:
    assert take_in_letters(store.dead_letters, stream) is False


def test_each_letter_comes_once(store: SqliteStore, writer: LocalLogWriter, stream: Stream) -> None:
    refuse(writer, letter(0), letter(1))
    refuse(writer, letter(2))
    take_in_all(store, stream)
    take_in_all(store, stream)
    refuse(writer, letter(3))
    take_in_all(store, stream)
    assert [found.at_ms for _, found in store.dead_letters.newest()] == [3, 2, 1, 0]
    assert store.dead_letters.counts(tenant=None) == {("collector", "bad_time"): 4}


def test_each_letter_belongs_to_the_tenant_it_was_refused_for(
    store: SqliteStore, writer: LocalLogWriter, stream: Stream
) -> None:
    refuse(writer, dataclasses.replace(letter(0), tenant="acme"))
    # As the version before tenants wrote it.
    older = {name: value for name, value in dataclasses.asdict(letter(1)).items() if name != "tenant"}
    writer.append([Outgoing(0, msgspec.msgpack.encode([older]), 1)])
    take_in_all(store, stream)
    assert [(found.at_ms, found.tenant) for _, found in store.dead_letters.newest()] == [(1, "main"), (0, "acme")]
    assert store.dead_letters.counts(tenant="acme") == {("collector", "bad_time"): 1}


def test_it_says_whether_more_waits(
    store: SqliteStore, writer: LocalLogWriter, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallymark.keeper.dead_letters.MAX_EVENTS", 1)
    for number in range(3):
        refuse(writer, letter(number))
    assert [take_in_letters(store.dead_letters, stream) for _ in range(4)] == [True, True, False, False]
    assert len(store.dead_letters.newest()) == 3


def test_a_letter_that_does_not_read_is_kept_as_it_is(
    store: SqliteStore, writer: LocalLogWriter, stream: Stream
) -> None:
    writer.append([Outgoing(0, b"\xc1 nonsense", 7)])
    refuse(writer, letter(1))
    take_in_all(store, stream)
    (_, good), (_, bad) = store.dead_letters.newest()
    assert good == letter(1)
    assert (bad.reason, bad.events, bad.raw) == ("letter_unreadable", 7, b"\xc1 nonsense")


def test_letters_dropped_before_they_were_taken_in_are_reported(
    store: SqliteStore, writer: LocalLogWriter, stream: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(writer, letter(0))
    take_in_all(store, stream)
    for number in range(1, 12):
        refuse(writer, letter(number, size=2000))
    assert drop_oldest(tmp_path / "log" / "dead", 8000) > 0
    first = writer.positions()[0].first
    assert first > 1
    take_in_all(store, stream)
    assert [found.at_ms for _, found in store.dead_letters.newest()] == [*range(11, first - 1, -1), 0]
    assert f"{first - 1} records of dead letters" in caplog.text


class Hurt:
    """A reader of the log on which some records are damaged, or which does not answer."""

    def __init__(self, reader: LogReader, damaged: set[int]) -> None:
        self._reader, self._damaged = reader, damaged
        self.away = False

    def __getattr__(self, name: str) -> object:
        if self.away and name != "close":
            raise LogUnreachable("no broker answers")
        return getattr(self._reader, name)

    def read(self, partition: int, start: int, end: int) -> Iterator[Record]:
        for record in self._reader.read(partition, start, end):
            if record.offset in self._damaged:
                raise LogDamaged(f"offset {record.offset} is not a frame")
            yield record


def test_a_damaged_record_is_taken_in_as_such_and_the_rest_goes_on(
    store: SqliteStore, writer: LocalLogWriter, tmp_path: Path
) -> None:
    for number in range(6):
        refuse(writer, letter(number))
    stream = Stream(lambda: Hurt(LocalAddress(str(tmp_path / "log"), "dead").open_reader(), {0, 2, 3, 5}))
    take_in_all(store, stream)
    stream.close()
    found = [found for _, found in store.dead_letters.newest()][::-1]
    assert [each.reason == "letter_unreadable" for each in found] == [True, False, True, True, False, True]
    assert found[0].detail == "offset 0 is not a frame"
    assert [each.events for each in found] == [1] * 6
    assert store.dead_letters.position(writer.identity) == 6


def test_a_reader_that_failed_is_opened_again(store: SqliteStore, writer: LocalLogWriter, tmp_path: Path) -> None:
    refuse(writer, letter(0))
    opened: list[Hurt] = []

    def open_reader() -> Hurt:
        opened.append(Hurt(LocalAddress(str(tmp_path / "log"), "dead").open_reader(), set()))
        return opened[-1]

    stream = Stream(open_reader)
    take_in_all(store, stream)
    opened[0].away = True
    refuse(writer, letter(1))
    with pytest.raises(LogUnreachable):
        take_in_letters(store.dead_letters, stream)
    take_in_all(store, stream)
    stream.close()
    assert len(opened) == 2
    assert store.dead_letters.counts(tenant=None) == {("collector", "bad_time"): 2}
