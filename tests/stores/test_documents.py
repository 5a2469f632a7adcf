"""Documents: what people write under a name."""

import threading
from typing import Any

import pytest

from tallymark.store import documents
from tallymark.store.documents import Document, TooManyDocuments
from tallymark.store.protocol import Store, StoreError


def test_what_is_put_is_there_for_every_process(store: Store, stores: Any) -> None:
    kept = store.documents.put("query", "main", "p99", "one", now_ms=5)
    assert kept == Document("query", "main", "p99", "one", 1, 5, 5)
    other = stores.open()
    assert other.documents.get("query", "main", "p99") == kept
    assert other.documents.get("board", "main", "p99") is None
    assert other.documents.get("query", "acme", "p99") is None


def test_another_text_is_another_revision_and_the_same_one_is_not(store: Store) -> None:
    store.documents.put("board", "main", "wall", "one", now_ms=5)
    changes = store.documents.changes("board")
    assert store.documents.put("board", "main", "wall", "one", now_ms=9).changed_ms == 5
    assert store.documents.changes("board") == changes
    assert store.documents.put("board", "main", "wall", "two", now_ms=9) == Document(
        "board", "main", "wall", "two", 2, 5, 9
    )
    assert store.documents.changes("board") > changes
    assert store.documents.changes("query") == 0


def test_they_are_listed_by_tenant_and_name(store: Store) -> None:
    for tenant, name in (("main", "b"), ("acme", "z"), ("main", "a"), ("main", "c")):
        store.documents.put("query", tenant, name, "text", now_ms=1)
    assert [(each.tenant, each.name) for each in store.documents.all("query")] == [
        ("acme", "z"),
        ("main", "a"),
        ("main", "b"),
        ("main", "c"),
    ]
    assert [each.name for each in store.documents.of_tenant("query", "main")] == ["a", "b", "c"]
    assert store.documents.all("table") == []


def test_a_deleted_one_is_gone_and_that_is_a_change(store: Store) -> None:
    store.documents.put("query", "main", "a", "text", now_ms=1)
    changes = store.documents.changes("query")
    assert store.documents.delete("query", "main", "a") is True
    assert store.documents.delete("query", "main", "a") is False
    assert store.documents.delete("table", "main", "a") is False
    assert store.documents.all("query") == []
    assert store.documents.changes("query") > changes
    assert store.documents.put("query", "main", "a", "text", now_ms=2).revision == 1


def test_too_large_and_too_many_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST", 2)
    monkeypatch.setattr(documents, "MOST_BYTES", 10)
    with pytest.raises(StoreError, match="a query of 12 bytes is larger than 10"):
        store.documents.put("query", "main", "a", "é" * 6, now_ms=1)
    for name in ("a", "b"):
        store.documents.put("query", "main", name, "text", now_ms=1)
    with pytest.raises(TooManyDocuments, match="at most 2"):
        store.documents.put("query", "main", "c", "text", now_ms=1)
    store.documents.put("query", "main", "a", "other", now_ms=1)
    store.documents.put("query", "acme", "c", "text", now_ms=1)


@pytest.mark.parametrize("stores", ["sqlite", "cassandra"], indirect=True)  # the server in memory is for one thread
def test_of_writers_at_once_none_is_lost(store: Store, stores: Any) -> None:
    others = [stores.open() for _ in range(4)]
    writers = [
        threading.Thread(target=each.documents.put, args=("query", "main", f"q{number}", "text"), kwargs={"now_ms": 1})
        for number, each in enumerate(others)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [each.name for each in store.documents.all("query")] == ["q0", "q1", "q2", "q3"]


def test_a_document_is_swapped_only_for_the_one_that_was_read(store: Store) -> None:
    assert store.documents.swap("table", "main", "a", None, "one", now_ms=1) is not None
    first = store.documents.get("table", "main", "a")
    assert store.documents.swap("table", "main", "a", None, "two", now_ms=2) is None
    second = store.documents.swap("table", "main", "a", first, "two", now_ms=2)
    assert second == Document("table", "main", "a", "two", 2, 1, 2)
    assert store.documents.swap("table", "main", "a", first, "three", now_ms=3) is None
    assert store.documents.get("table", "main", "a") == second
    changes = store.documents.changes("table")
    assert store.documents.swap("table", "main", "a", second, "two", now_ms=4) == second
    assert store.documents.changes("table") == changes
    assert store.documents.swap("table", "acme", "a", second, "other", now_ms=4) is None
    store.documents.delete("table", "main", "a")
    assert store.documents.swap("table", "main", "a", second, "four", now_ms=5) is None
