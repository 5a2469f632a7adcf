"""A small log in a temporary folder, and a clock that moves by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallymark.log import LocalLogWriter
from tallymark.log.local.reader import LocalLogReader


class Clock:
    def __init__(self, ms: int = 1_000_000) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_log(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., LocalLogWriter]]:
    """Opens the writer of `events` in this test's folder; what is still open at the end is closed."""
    opened: list[LocalLogWriter] = []

    def open_log(**changes: Any) -> LocalLogWriter:
        options = {"partitions": 2, "partition_by": "id", "segment_bytes": 4096, "clock": clock} | changes
        writer = LocalLogWriter(tmp_path, stream="events", **options)
        opened.append(writer)
        return writer

    yield open_log
    for writer in opened:
        writer.close()


@pytest.fixture
def reader_of(tmp_path: Path) -> Iterator[Callable[[], LocalLogReader]]:
    opened: list[LocalLogReader] = []

    def reader_of() -> LocalLogReader:
        opened.append(LocalLogReader(tmp_path, "events"))
        return opened[-1]

    yield reader_of
    for reader in opened:
        reader.close()
