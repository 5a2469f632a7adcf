"""What becomes of a table: against a model that keeps every version in a dict."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_documents import FakeDocuments, FakeTableParts
from tallymark.tables import Tables, kept, read
from tallymark.tables.bodies import Body
from tallymark.tables.model import ALWAYS_MS, TableError
from tallymark.tables.table import Table

KEYS = st.sampled_from("ABC")
MOMENTS = st.none() | st.integers(1, 12)
VALUES = st.none() | st.sampled_from(["x", "y"])
ROWS = st.lists(
    st.fixed_dictionaries({"id": KEYS}, optional={"t": VALUES, "u": VALUES, "from": MOMENTS, "deleted": st.booleans()}),
    max_size=4,
    unique_by=lambda row: (row["id"], row.get("from")),
)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "patch", "patch"]), ROWS, st.integers(0, 3)), max_size=6)


class Model:
    """Key -> moment -> the row, or None where it ends."""

    def __init__(self) -> None:
        self.versions: dict[str, dict[int, dict[str, Any] | None]] = {}

    def at(self, key: str, at: int) -> dict[str, Any] | None:
        moments = [each for each in self.versions.get(key, {}) if each <= at]
        return self.versions[key][max(moments)] if moments else None

    def patch(self, rows: list[dict[str, Any]], now: int) -> None:
        for row in sorted(rows, key=lambda row: now if row.get("from") is None else row["from"]):
            at = now if row.get("from") is None else row["from"]
            before, key = self.at(row["id"], at), row["id"]
            after = None
            if not row.get("deleted"):
                after = {**(before or {"t": None, "u": None}), **{each: row[each] for each in "tu" if each in row}}
            if after != before:
                self.versions.setdefault(key, {})[at] = after

    def put(self, rows: list[dict[str, Any]], now: int) -> None:
        given: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            given.setdefault(row["id"], []).append(row)
        for key, sent in given.items():
            values = [None if row.get("deleted") else {each: row.get(each) for each in "tu"} for row in sent]
            if len(sent) == 1 and sent[0].get("from") is None and self.versions.get(key):
                past = {at: row for at, row in self.versions[key].items() if at <= now}
                if self.at(key, now) != values[0]:
                    past[now] = values[0]
                self.versions[key] = past
            else:
                moments = [ALWAYS_MS if row.get("from") is None else row["from"] for row in sent]
                stated = dict(zip(moments, values, strict=True))
                if stated.get(ALWAYS_MS, ...) is None:
                    del stated[ALWAYS_MS]
                is_nothing = not self.versions.get(key) and not any(row is not None for row in stated.values())
                self.versions[key] = {} if is_nothing else stated
        for key in set(self.versions) - set(given):
            past = {at: row for at, row in self.versions[key].items() if at < now}
            if self.at(key, 10**9) is not None:
                self.versions[key] = {**past, now: None} if past else {}


def body(rows: list[dict[str, Any]]) -> Body:
    import msgspec

    return read(msgspec.json.encode(rows), "json", key="id", known={"t": "text", "u": "text"})


def tables(**rest: Any) -> Tables:
    return Tables(FakeDocuments(), FakeTableParts(), **rest)


def shown(table: Table | None, at: int) -> dict[str, Any]:
    assert table is not None
    return {row.key: dict(row.columns) for row in table.page(at_ms=at, search="", after=None, limit=100)[0]}


@given(ROWS, STEPS)
def test_any_puts_and_patches_show_at_any_moment_what_the_model_says(first: Any, steps: Any) -> None:
    found, model, now = tables(), Model(), 1
    columns = [{"id": "every", "t": "x", "u": "x"}]
    found.put("main", "t", "id", body(first + columns), now_ms=now)
    model.put(first + columns, now)
    for kind, rows, later in steps:
        now += later
        if kind == "put":
            found.put("main", "t", "id", body(rows + columns), now_ms=now)
            model.put(rows + columns, now)
        else:
            found.patch("main", "t", body(rows), now_ms=now)
            model.patch(rows, now)
    again = Tables(found._documents, found._parts).get("main", "t")
    for at in (-5, *range(16), 10**9):
        wanted = {key: row for key in model.versions if (row := model.at(key, at)) is not None}
        assert shown(found.get("main", "t"), at) == shown(again, at) == wanted


def test_the_answer_says_what_was_done() -> None:
    found = tables()
    outcome = found.put("main", "t", "id", body([{"id": "A", "t": "x"}, {"id": "B", "t": "x"}]), now_ms=1)
    assert (outcome.is_new, outcome.counts.added) == (True, 2)
    counts = found.put(
        "main", "t", "id", body([{"id": "A", "t": "y"}, {"id": "C", "t": "x"}, {"id": "B", "t": "x"}]), now_ms=2
    ).counts
    assert (counts.added, counts.changed, counts.unchanged, counts.deleted) == (1, 1, 1, 0)
    patched = found.patch(
        "main", "t", body([{"id": "A", "deleted": True}, {"id": "B"}, {"id": "D", "t": "z"}]), now_ms=3
    )
    assert patched is not None
    counts = patched.counts
    assert (counts.added, counts.changed, counts.unchanged, counts.deleted) == (1, 0, 1, 1)
    assert patched.table.definition.rows == 3
    assert found.patch("main", "other", body([]), now_ms=3) is None


def test_another_key_or_type_begins_the_history_anew_and_says_so() -> None:
    found = tables()
    found.put("main", "t", "id", body([{"id": "A", "t": "x"}]), now_ms=1)
    outcome = found.put("main", "t", "id", read(b'[{"id":"A","t":1}]', "json", key="id"), now_ms=2)
    assert outcome.note == "the column 't' was text and is number, so the history begins anew"
    assert [row.from_ms for row in outcome.table.history("A")] == [None]
    outcome = found.put("main", "t", "name", read(b'[{"name":"A","t":1}]', "json", key="name"), now_ms=3)
    assert outcome.note == "the key was 'id' and is 'name', so the history begins anew"
    assert outcome.table.definition.key == "name"


def test_a_key_that_ended_and_comes_back_has_a_gap_in_its_history() -> None:
    found = tables()
    for now_ms, rows in ((1, "AB"), (10, "B"), (20, "AB")):
        outcome = found.put(
            "main", "t", "id", body([{"id": key, "t": f"{key}{now_ms}"} for key in rows]), now_ms=now_ms
        )
    assert (outcome.counts.added, outcome.counts.changed) == (1, 1)
    table = found.get("main", "t")
    assert [list(shown(table, at)) for at in (0, 10, 19, 20)] == [["A", "B"], ["B"], ["B"], ["A", "B"]]
    assert shown(table, 9)["A"] == {"t": "A1"}


def test_a_column_that_a_whole_table_lacks_is_gone() -> None:
    found = tables()
    found.put("main", "t", "id", body([{"id": "A", "t": "x", "u": "y"}]), now_ms=1)
    outcome = found.put("main", "t", "id", body([{"id": "A", "t": "x"}]), now_ms=2)
    assert outcome.table.definition.columns == {"t": "text"}
    assert shown(found.get("main", "t"), 5) == {"A": {"t": "x"}}


def test_a_patch_may_bring_a_column() -> None:
    found = tables()
    found.put("main", "t", "id", body([{"id": "A", "t": "x"}, {"id": "B"}]), now_ms=1)
    found.patch("main", "t", read(b'[{"id":"A","n":2}]', "json", key="id"), now_ms=2)
    assert shown(found.get("main", "t"), 5) == {"A": {"t": "x", "n": 2}, "B": {"t": None, "n": None}}


def test_history_beyond_the_limit_goes_from_its_old_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_VERSIONS", 10)
    found = tables()
    found.put("main", "t", "id", body([{"id": "A", "t": "0"}, {"id": "B", "t": "0"}]), now_ms=1)
    for at in range(10, 19):
        found.patch("main", "t", body([{"id": "A", "t": str(at)}]), now_ms=at)
    table = found.get("main", "t")
    assert table is not None
    # One too many, so a tenth goes, the versions that ended first; what holds stays, however old it is.
    assert [row.from_ms for row in table.history("A")] == [18, 17, 16, 15, 14, 13, 12, 11]
    assert [row.from_ms for row in table.history("B")] == [None]
    assert (table.definition.versions, table.definition.history_ms) == (9, 11)
    assert shown(table, 10) == {"B": {"t": "0"}}
    assert shown(table, 11) == {"A": {"t": "11"}, "B": {"t": "0"}}


def test_too_many_rows_and_too_large_a_table_are_refused_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tables()
    found.put("main", "t", "id", body([{"id": "A"}]), now_ms=1)
    monkeypatch.setattr(kept, "MOST_ROWS", 2)
    with pytest.raises(TableError, match="3 rows exceed 2; leave some out"):
        found.patch("main", "t", body([{"id": "B"}, {"id": "C"}]), now_ms=2)
    monkeypatch.setattr(kept, "MOST_BYTES", 100)
    with pytest.raises(TableError, match="bytes in memory exceeds 100"):
        found.patch("main", "t", body([{"id": "B", "t": "x" * 200}]), now_ms=2)
    assert list(shown(found.get("main", "t"), 5)) == ["A"]


def test_a_table_in_memory_is_read_again_only_as_far_as_it_changed() -> None:
    found = tables()
    documents, parts = found._documents, found._parts
    assert isinstance(parts, FakeTableParts)
    found.put("main", "t", "id", body([{"id": "A", "t": "x"}]), now_ms=1)
    reader = Tables(documents, parts)
    first = reader.get("main", "t")
    assert parts.reads == 1
    assert reader.get("main", "t") is first
    found.patch("main", "t", body([{"id": "A", "t": "y"}]), now_ms=2)
    assert shown(reader.get("main", "t"), 5) == {"A": {"t": "y"}}
    assert parts.reads == 2
    tokens = {first.token, reader.get("main", "t").token}  # type: ignore[union-attr]
    assert len(tokens) == 2


def test_only_so_many_bytes_of_tables_are_held() -> None:
    found = tables(held_bytes=1_000)
    parts = found._parts
    assert isinstance(parts, FakeTableParts)
    for name in ("a", "b", "c"):
        found.put("main", name, "id", body([{"id": str(number), "t": "x" * 50} for number in range(20)]), now_ms=1)
    assert len(found._held) == 1
    assert found.get("main", "c") is not None
    assert parts.reads == 0
    assert found.get("main", "a") is not None
    assert parts.reads == 1


def test_deleted_and_made_again_it_is_another_table() -> None:
    found = tables()
    reader = Tables(found._documents, found._parts)
    found.put("main", "t", "id", body([{"id": "A", "t": "x"}]), now_ms=1)
    first = reader.get("main", "t")
    found.delete("main", "t")
    assert reader.get("main", "t") is None
    found.put("main", "t", "id", body([{"id": "A", "t": "z"}]), now_ms=1)
    second = reader.get("main", "t")
    assert first is not None
    assert second is not None
    assert first.token != second.token
    assert shown(second, 5) == {"A": {"t": "z"}}


def test_search_pages_and_values() -> None:
    found = tables()
    rows = b'[{"id":"a1","t":"Alpha","n":1.0,"b":true},{"id":"a2","t":"beta","n":2.5},{"id":"ALL","t":null}]'
    table = found.put("main", "t", "id", read(rows, "json", key="id"), now_ms=1).table
    assert [row.key for row in table.page(at_ms=1, search="AL", after=None, limit=9)[0]] == ["ALL", "a1"]
    page, more = table.page(at_ms=1, search="", after=None, limit=2)
    assert ([row.key for row in page], more) == (["ALL", "a1"], True)
    page, more = table.page(at_ms=1, search="", after="a1", limit=2)
    assert ([row.key for row in page], more) == (["a2"], False)
    view = table.at(1)
    assert view.values(["a1", "nobody", "a2"], "n") == [1, None, 2.5]
    assert [type(each) for each in view.values(["a1"], "n")] == [int]
    assert sorted(view.keys_with("n", ["1", "elsewhere"])) == ["1", "a1", "elsewhere"]
    assert view.keys_with("b", ["", "true"]) == ["ALL", "a1", "a2", "", "true"]


def test_a_change_whose_answer_was_lost_is_not_undone_when_others_build_on_it() -> None:
    found = tables()
    other = Tables(found._documents, found._parts)
    found.put("main", "t", "id", body([{"id": "A", "t": "x"}]), now_ms=1)
    really, documents = found._documents.swap, found._documents

    def swap(*arguments: Any, **rest: Any) -> Any:
        documents.swap = really  # type: ignore[method-assign]
        assert really(*arguments, **rest) is not None  # it was done, but nobody heard
        other.patch("main", "t", body([{"id": "C", "t": "z"}]), now_ms=3)

    documents.swap = swap  # type: ignore[method-assign]
    found.patch("main", "t", body([{"id": "B", "t": "y"}]), now_ms=2)
    again = Tables(documents, found._parts)
    assert shown(again.get("main", "t"), 5) == {"A": {"t": "x"}, "B": {"t": "y"}, "C": {"t": "z"}}
