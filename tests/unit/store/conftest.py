"""A store's file to test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tallymark.store.sqlite.store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db")
    yield opened
    opened.close()
