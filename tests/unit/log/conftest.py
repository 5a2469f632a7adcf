"""A small log in a temporary folder, and a clock that moves by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallymark.log import LocalLogWriter
from tallymark.log.local.reader import LocalLogReader


class Clock:
    """A wall clock, and beside it one that nobody sets.

    Moving `ms` forward lets that much time pass. Moving it back, and `set_to`, is what people do to a wall clock.
    """

    def __init__(self, ms: int = 1_000_000) -> None:
        self._ms = ms
        self._steady_ns = 0

    def __call__(self) -> int:
        return self._ms

    def steady(self) -> int:
        return self._steady_ns

    def set_to(self, ms: int) -> None:
        self._ms = ms

    @property
    def ms(self) -> int:
        return self._ms

    @ms.setter
    def ms(self, ms: int) -> None:
        self._steady_ns += max(0, ms - self._ms) * 1_000_000
        self._ms = ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_log(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., LocalLogWriter]]:
    """Opens the writer of `events` in this test's folder; what is still open at the end is closed."""
    opened: list[LocalLogWriter] = []

    def open_log(**changes: Any) -> LocalLogWriter:
        options = {"partitions": 2, "partition_by": "id", "segment_bytes": 4096} | changes
        options = {"clock": clock, "steady": clock.steady} | options
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
