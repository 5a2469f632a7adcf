"""Tables in both stores: whole or not at all, with history, each tenant's own."""

import threading
from typing import Any

import msgspec
import pytest

from tallymark.store import table_parts
from tallymark.store.protocol import Store, StoreError
from tallymark.tables import Body, Tables, read
from tallymark.tables import kept as keeping
from tallymark.tables.kept import LEFT_OVER_MS

OTHERS = {"B": "Beta", "C": "Gamma"}


def body(rows: Any, known: Any = None) -> Body:
    return read(msgspec.json.encode(rows), "json", key="video", known=known)


def titles(store: Store, at_ms: int = 10**12, *, tenant: str = "main", name: str = "videos") -> dict[str, Any] | None:
    """As a process sees them that has read nothing before."""
    table = Tables(store.documents, store.table_parts).get(tenant, name)
    if table is None:
        return None
    rows, _ = table.page(at_ms=at_ms, search="", after=None, limit=1000)
    return {row.key: row.columns.get("title") for row in rows}


@pytest.fixture
def tables(store: Store) -> Tables:
    return Tables(store.documents, store.table_parts)


def put(tables: Tables, rows: dict[str, Any], now_ms: int = 1000, *, tenant: str = "main") -> Any:
    given = [{"video": key, "title": title} for key, title in rows.items()]
    return tables.put(tenant, "videos", "video", body(given), now_ms=now_ms)


def patch(tables: Tables, rows: list[dict[str, Any]], now_ms: int) -> Any:
    return tables.patch("main", "videos", body(rows), now_ms=now_ms)


def test_what_is_put_is_there_for_every_process(store: Store, stores: Any, tables: Tables) -> None:
    assert put(tables, {"A": "Alpha", **OTHERS}).is_new
    assert titles(stores.open()) == {"A": "Alpha", **OTHERS}
    assert titles(stores.open(), tenant="acme") is None
    (named,) = tables.names("main")
    assert (named.name, named.definition.rows, named.definition.columns) == ("videos", 3, {"title": "text"})
    assert tables.names("acme") == []


def test_history_is_kept_and_asked_by_time(store: Store, tables: Tables) -> None:
    #   always      2000            3000       4000
    #   A = Alpha   A = Alpha two   A ended    A = Alpha three
    #                               (B too, by a whole table without it)
    put(tables, {"A": "Alpha", "B": "Beta"})
    patch(tables, [{"video": "A", "title": "Alpha two"}], 2000)
    put(tables, {"C": "Gamma"}, 3000)
    patch(tables, [{"video": "A", "title": "Alpha three"}], 4000)
    assert titles(store, 0) == titles(store, 1999) == {"A": "Alpha", "B": "Beta", "C": "Gamma"}
    assert titles(store, 2000) == {"A": "Alpha two", "B": "Beta", "C": "Gamma"}
    assert titles(store, 3000) == {"C": "Gamma"}
    assert titles(store, 4000) == {"A": "Alpha three", "C": "Gamma"}


def test_a_patch_of_the_past_takes_its_place_there(store: Store, tables: Tables) -> None:
    put(tables, {"A": "Alpha"})
    patch(tables, [{"video": "A", "title": "late"}], 5000)
    patch(tables, [{"video": "A", "title": "early", "from": 2000}], 6000)
    assert [titles(store, at)["A"] for at in (0, 2000, 4999, 5000)] == ["Alpha", "early", "early", "late"]  # type: ignore[index]


def test_the_same_again_writes_nothing(store: Store, tables: Tables) -> None:
    put(tables, {"A": "Alpha"})
    before = store.documents.get("table", "main", "videos")
    counts = put(tables, {"A": "Alpha"}, 2000).counts
    assert (counts.added, counts.changed, counts.unchanged, counts.deleted) == (0, 0, 1, 0)
    patch(tables, [{"video": "A", "title": "Alpha"}, {"video": "Z", "deleted": True}], 3000)
    assert store.documents.get("table", "main", "videos") == before


def test_tenants_have_tables_of_their_own(store: Store, tables: Tables) -> None:
    put(tables, {"A": "Alpha"})
    put(tables, {"A": "other"}, tenant="acme")
    assert titles(store) == {"A": "Alpha"}
    assert tables.delete("acme", "videos")
    assert not tables.delete("acme", "videos")
    assert titles(store, tenant="acme") is None
    assert titles(store) == {"A": "Alpha"}


def test_parts_that_were_replaced_are_deleted(store: Store, tables: Tables) -> None:
    put(tables, {"A": "Alpha"})
    for number in range(40):
        patch(tables, [{"video": "A", "title": f"title {number}"}], 2000 + number)
        left = store.table_parts.written_before(10**15)
        found = tables.named("main", "videos")
        assert found is not None
        assert sorted(left) == sorted(found.definition.parts)
        assert len(left) <= keeping.MOST_PATCHES + 1
    assert titles(store) == {"A": "title 39"}
    assert titles(store, 2007) == {"A": "title 7"}
    put(tables, {"B": "Beta"}, 9000)
    assert len(store.table_parts.written_before(10**15)) == 1
    tables.delete("main", "videos")
    assert store.table_parts.written_before(10**15) == []


def test_a_large_table_comes_back_as_it_was(store: Store, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_parts, "CHUNK_BYTES", 5_000)
    rows = {f"v{number}": f"{number * 7919 % 100_003:x}" * 8 for number in range(20_000)}
    put(tables, rows)
    (part,) = store.table_parts.written_before(10**15)
    assert int(part.partition("/")[2]) > 10
    table = Tables(store.documents, store.table_parts).get("main", "videos")
    assert table is not None
    keys = list(rows)[::997]
    assert table.at(0).values(keys, "title") == [rows[key] for key in keys]


def test_a_reader_whose_parts_were_replaced_meanwhile_reads_the_new_ones(store: Store, tables: Tables) -> None:
    put(tables, {"A": "Alpha"})
    reader = Tables(store.documents, store.table_parts)
    really, seen = store.documents.get, []

    def get(*arguments: Any) -> Any:
        found = really(*arguments)
        if not seen:
            seen.append(True)
            put(tables, {"A": "new"}, 2000)  # between the document and its parts
        return found

    reader._documents = type("Between", (), {"get": staticmethod(get)})()  # type: ignore[assignment]
    table = reader.get("main", "videos")
    assert table is not None
    assert table.at(10**12).values(["A"], "title") == ["new"]


def test_a_table_that_lost_a_part_says_so(store: Store, tables: Tables) -> None:
    put(tables, {"A": "Alpha"})
    store.table_parts.delete(store.table_parts.written_before(10**15))
    with pytest.raises(StoreError, match="parts of the table videos are missing; put it again"):
        titles(store)


def test_what_uploads_left_behind_is_swept(store: Store, tables: Tables) -> None:
    put(tables, {"A": "Alpha"}, 1000)
    store.table_parts.write(b"left", now_ms=1000)
    young = store.table_parts.write(b"under way", now_ms=5000)
    assert tables.sweep(now_ms=LEFT_OVER_MS + 2000) == 1
    assert young in store.table_parts.written_before(10**15)
    assert tables.sweep(now_ms=LEFT_OVER_MS + 2000) == 0
    assert titles(store) == {"A": "Alpha"}


CHANGES = {
    "first": lambda tables: put(tables, {"A": "new", "D": "new"}, 2000),
    "put": lambda tables: put(tables, {"A": "new", "D": "new"}, 2000),
    "patch": lambda tables: patch(tables, [{"video": "A", "title": "new"}, {"video": "D", "title": "new"}], 2000),
    "delete": lambda tables: tables.delete("main", "videos"),
}


@pytest.mark.parametrize("stores", ["sqlite", "memory"], indirect=True)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", CHANGES)
def test_a_crash_at_every_statement_leaves_the_old_or_the_new(
    stores: Any, fuse: Any, died: type[Exception], kind: str, after: bool
) -> None:
    old = None if kind == "first" else {"A": "Alpha", **OTHERS}
    new = {
        "first": {"A": "new", "D": "new"},
        "put": {"A": "new", "D": "new"},
        "patch": {"A": "new", "D": "new", **OTHERS},
        "delete": None,
    }[kind]
    seen = set()
    for statement in range(1, 200):
        name = f"{kind}-{after}-{statement}"
        whole = stores.open(name)
        if kind != "first":
            put(Tables(whole.documents, whole.table_parts), {"A": "Alpha", **OTHERS})
        dying = stores.open(name, fuse=fuse)
        fuse.light(statement, after=after)
        try:
            CHANGES[kind](Tables(dying.documents, dying.table_parts))
            is_done = True
        except died:
            is_done = False
        fuse.quench()
        dying.close()
        found = titles(stores.open(name))
        assert found in (old, new)
        seen.add(found == new)
        again = stores.open(name)
        repeated = Tables(again.documents, again.table_parts)
        CHANGES[kind](repeated)
        assert titles(again) == new
        repeated.sweep(now_ms=10**13)
        left = again.table_parts.written_before(10**15)
        named = repeated.named("main", "videos")
        assert sorted(left) == sorted(named.definition.parts if named else ())
        if is_done:
            break
    assert is_done
    assert seen == {False, True}


@pytest.mark.parametrize("stores", ["sqlite", "cassandra"], indirect=True)  # the server in memory is for one thread
def test_of_writers_at_once_no_row_is_lost(store: Store, stores: Any, tables: Tables) -> None:
    put(tables, {"A": "Alpha"})

    def write(number: int) -> None:
        other = stores.open()
        own = Tables(other.documents, other.table_parts)
        for turn in range(3):
            own.patch("main", "videos", body([{"video": f"{number}-{turn}", "title": "x"}]), now_ms=2000)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert titles(store) == {"A": "Alpha"} | {f"{number}-{turn}": "x" for number in range(3) for turn in range(3)}


@pytest.mark.parametrize("stores", ["sqlite", "memory"], indirect=True)
def test_somebody_who_is_faster_is_not_overwritten(store: Store, tables: Tables) -> None:
    put(tables, {"A": "Alpha"})
    other = Tables(store.documents, store.table_parts)
    really, turns = store.table_parts.write, []

    def write(content: bytes, *, now_ms: int) -> str:
        if not turns:
            turns.append(True)
            other.patch("main", "videos", body([{"video": "B", "title": "Beta"}]), now_ms=1500)
        return really(content, now_ms=now_ms)

    tables._parts.write = write  # type: ignore[method-assign]
    patch(tables, [{"video": "C", "title": "Gamma"}], 2000)
    assert titles(store) == {"A": "Alpha", **OTHERS}
    assert len(store.table_parts.written_before(10**15)) == 3
