"""The store's file: its write-ahead log stays small, several processes may make it, others' files are refused."""

import sqlite3
import threading
from pathlib import Path

import pytest

from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import StoreError
from tallymark.store.sqlite import connection
from tallymark.store.sqlite.store import SqliteStore


def grow(store: SqliteStore, batches: int) -> None:
    start = store.applied("log").get(0, 0)
    for number in range(start, start + batches):
        store.apply([StretchResult(Stretch(0, number, number + 1), "log", 1, (1,), b"", Ledger())], now_ms=0)


def test_an_oversized_write_ahead_log_is_cut_once_nobody_reads_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WAL_LIMIT_BYTES", 50_000)
    log_file = store.path.with_name("store.db-wal")
    grow(store, 50)
    with store.snapshot() as snapshot:
        assert snapshot.applied() == {0: 50}
        grow(store, 50)
        assert log_file.stat().st_size > 50_000
        assert store.checkpoint() is False
    assert store.checkpoint() is True
    assert log_file.stat().st_size == 0
    grow(store, 1)
    assert store.applied("log") == {0: 101}


def test_many_may_make_the_file_at_once(tmp_path: Path) -> None:
    stores: list[SqliteStore] = []
    makers = [threading.Thread(target=lambda: stores.append(SqliteStore(tmp_path / "store.db"))) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert [len(store.meters()) for store in stores] == [1] * 8
    for store in stores:
        store.close()


def test_a_file_of_a_later_version_is_refused(store: SqliteStore) -> None:
    raw = sqlite3.connect(store.path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(StoreError, match="schema 99"):
        SqliteStore(store.path)


def test_threads_that_have_ended_leave_no_connection_behind(store: SqliteStore) -> None:
    for _ in range(20):
        thread = threading.Thread(target=store.journal_end)
        thread.start()
        thread.join()
    assert len(store._connections._by_thread) <= 2
