"""One Tallymark for all stories: each has event names and meters of its own."""

import time
from collections.abc import Iterator

import pytest

from running import Running

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


@pytest.fixture(scope="package")
def tallymark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("stories"), settings={"log.partition_by": "key:video"})
    try:
        yield running.start()
        running.stop()
    finally:
        running.close()


@pytest.fixture(scope="session")
def hour_ms() -> int:
    """The start of the last hour that is over, so that all its minutes are past."""
    return int(time.time() * 1000) // HOUR_MS * HOUR_MS - HOUR_MS
