"""What waits for the disk: what nobody could apply again from the log does, a batch does not."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tallymark.meters.model import Meter
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import StoreError
from tallymark.store.sqlite import connection
from tallymark.store.sqlite.store import SqliteStore

NORMAL, FULL = 1, 2


class Commits:
    """How SQLite was told to sync at each commit, and what it held then."""

    def __init__(self, path: Path) -> None:
        self.levels: list[int] = []
        commits = self

        class Watched(sqlite3.Connection):
            def execute(self, *arguments: Any) -> sqlite3.Cursor:
                if arguments[0] == "COMMIT":
                    commits.levels.append(super().execute("PRAGMA synchronous").fetchone()[0])
                return super().execute(*arguments)

        self.store = SqliteStore(path, connect=lambda path: connection.connect(path, factory=Watched))

    def taken(self) -> list[int]:
        levels, self.levels = self.levels, []
        return levels


@pytest.fixture
def commits(tmp_path: Path) -> Iterator[Commits]:
    opened = Commits(tmp_path / "store.db")
    opened.taken()
    yield opened
    opened.store.close()


def test_a_definition_is_on_disk_when_it_is_answered_and_a_batch_does_not_wait_for_that(commits: Commits) -> None:
    store = commits.store
    store.registry.put_meter("main", Meter("views", ("view",)), now_ms=0)
    assert commits.taken() == [FULL]
    store.sink.apply([StretchResult(Stretch(0, 0, 1), "log", 1, (1,), b"", Ledger(accepted=1))], now_ms=0)
    assert commits.taken() == [NORMAL]
    store.registry.resume_meter("main", "views")
    assert commits.taken() == [FULL]
    store.registry.delete_meter("main", "views", now_ms=1)
    assert commits.taken() == [FULL]
    with pytest.raises(StoreError, match="built in"):
        store.registry.delete_meter("main", "events", now_ms=1)
    assert commits.taken() == []
    store.sink.apply([StretchResult(Stretch(0, 1, 2), "log", 1, (1,), b"", Ledger(accepted=1))], now_ms=0)
    assert commits.taken() == [NORMAL]
