"""The hour that stories happen in."""

import time

import pytest

HOUR_MS = 3_600_000


@pytest.fixture(scope="session")
def hour_ms() -> int:
    """The start of the last hour that is over, so that all its minutes are past."""
    return int(time.time() * 1000) // HOUR_MS * HOUR_MS - HOUR_MS
