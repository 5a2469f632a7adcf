"""The store's file: its write-ahead log stays small, several processes may make it, others' files are refused."""

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tallymark.meters.model import BUILT_IN, METRICS, Meter
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import StoreError
from tallymark.store.sqlite import upkeep
from tallymark.store.sqlite.store import SqliteStore


def grow(store: SqliteStore, batches: int) -> None:
    start = store.sink.applied("log").get(0, 0)
    for number in range(start, start + batches):
        store.sink.apply([StretchResult(Stretch(0, number, number + 1), "log", 1, (1,), b"", Ledger())], now_ms=0)


def test_an_oversized_write_ahead_log_is_cut_once_nobody_reads_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "WAL_LIMIT_BYTES", 50_000)
    log_file = store.path.with_name("store.db-wal")
    grow(store, 50)
    with store.snapshots.take() as snapshot:
        assert snapshot.applied() == {0: 50}
        grow(store, 50)
        assert log_file.stat().st_size > 50_000
        assert store.upkeep.checkpoint() is False
    assert store.upkeep.checkpoint() is True
    assert log_file.stat().st_size == 0
    grow(store, 1)
    assert store.sink.applied("log") == {0: 101}


def test_many_may_make_the_file_at_once(tmp_path: Path) -> None:
    stores: list[SqliteStore] = []
    makers = [threading.Thread(target=lambda: stores.append(SqliteStore(tmp_path / "store.db"))) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert [len(store.registry.meters("main")) for store in stores] == [2] * 8
    for store in stores:
        store.close()


def test_a_file_of_an_older_version_gets_the_meter_that_it_lacks(store: SqliteStore) -> None:
    with sqlite3.connect(store.path) as raw:
        raw.execute("DELETE FROM meters WHERE name = 'metrics'")
    views = store.registry.put_meter("main", Meter("views", ("view",)), now_ms=1)
    before = store.registry.live_meters()
    store.close()
    for _ in range(2):
        opened = SqliteStore(store.path)
        assert [(each.meter.name, each.version) for each in opened.registry.meters("main")] == [
            ("events", 1),
            ("metrics", 1),
            ("views", 1),
        ]
        assert opened.registry.meter("main", "metrics").meter_id not in {1, views.meter_id}
        assert opened.registry.live_meters().revision == before.revision + 1
        opened.close()


def test_a_users_own_meter_of_metrics_stays(store: SqliteStore) -> None:
    with sqlite3.connect(store.path) as raw:
        raw.execute("DELETE FROM meters WHERE name = 'metrics'")
    own = store.registry.put_meter("main", Meter("metrics", ("metrics",), ("host",)), now_ms=1)
    store.close()
    opened = SqliteStore(store.path)
    assert opened.registry.meter("main", "metrics") == own
    opened.registry.put_meter("main", Meter("metrics", ("metrics",), ("rack",)), now_ms=2)
    opened.registry.delete_meter("main", "metrics", now_ms=3)
    opened.close()
    again = SqliteStore(store.path)
    assert (again.registry.meter("main", "metrics").version, again.registry.meter("main", "metrics").meter) == (
        3,
        METRICS,
    )
    again.close()


def test_a_built_in_meter_that_another_version_defined_gets_a_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = replace(METRICS, compute=("min", "max"))
    with monkeypatch.context() as older:
        older.setitem(BUILT_IN, "metrics", narrow)
        store = SqliteStore(tmp_path / "store.db")
        before = store.registry.meter("main", "metrics")
        store.close()
    assert (before.meter, before.built_in) == (narrow, True)
    for _ in range(2):
        opened = SqliteStore(store.path)
        after = opened.registry.meter("main", "metrics")
        assert (after.version, after.meter, after.built_in) == (2, METRICS, True)
        assert after.meter_id != before.meter_id
        with pytest.raises(StoreError, match="built in"):
            opened.registry.put_meter("main", narrow, now_ms=3)
        opened.close()


def test_a_users_meter_defined_like_the_built_in_one_stays_the_users(store: SqliteStore) -> None:
    with sqlite3.connect(store.path) as raw:
        raw.execute("DELETE FROM meters WHERE name = 'metrics'")
    assert not store.registry.put_meter("main", METRICS, now_ms=1).built_in
    store.registry.delete_meter("main", "metrics", now_ms=2)


def test_threads_that_have_ended_leave_no_connection_behind(store: SqliteStore) -> None:
    for _ in range(20):
        thread = threading.Thread(target=store.snapshots.journal_end)
        thread.start()
        thread.join()
    assert len(store._connections._by_thread) <= 2


def test_a_letter_of_a_rare_kind_is_found_behind_ten_thousand_others(store: SqliteStore) -> None:
    rare = DeadLetter("pipeline", "damaged", "rare", 1, b"x", 0, 0, 0)
    common = [DeadLetter("collector", "bad_time", f"{number}", 1, b"{}", number) for number in range(10_050)]
    store.dead_letters.take_in("dead-log", Stretch(0, 0, 1), [rare, *common])
    for wanted in ({"reasons": ["damaged"]}, {"hops": ["pipeline"]}, {"hops": ["pipeline"], "reasons": ["damaged"]}):
        assert [each.detail for each in store.dead_letters.search(tenant=None, **wanted)] == ["rare"]
    newest = store.dead_letters.search(tenant=None, hops=["pipeline", "collector"], limit=2)
    assert [each.detail for each in newest] == ["10049", "10048"]


def test_letters_of_a_kind_are_found_by_an_index(store: SqliteStore) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        asked = (
            "EXPLAIN QUERY PLAN SELECT letter_id FROM letters WHERE tenant = '' AND hop = '' AND reason = ''"
            " ORDER BY letter_id DESC"
        )
        ((*_, plan),) = connection.execute(asked)
    assert "COVERING INDEX letters_by_kind" in plan
