"""Tables over HTTP."""

from typing import Any

import pytest

from asking import Desk
from tallymark.http import MOST_TABLE_BYTES, Problem
from tallymark.query import tables_api

JSON, CSV, LINES = (
    {"content-type": kind} for kind in ("application/json", "text/csv; charset=utf-8", "application/x-ndjson")
)
VIDEOS = [
    {"video": "A", "title": "Alpha", "channel": "music", "minutes": 3, "paid": True},
    {"video": "B", "title": "Beta", "channel": "news"},
]


def put(desk: Desk, body: Any = VIDEOS, headers: dict[str, str] = JSON, target: str = "videos?key=video") -> Any:
    return desk.send("PUT", f"/v1/tables/{target}", body, headers)


def refused(desk: Desk, target: str, method: str, body: Any = b"", headers: dict[str, str] | None = None) -> Problem:
    with pytest.raises(Problem) as found:
        desk.send(method, f"/v1/tables{target}", body, headers)
    return found.value


def test_a_table_is_put_listed_shown_and_deleted(desk: Desk) -> None:
    assert put(desk).status == 201
    assert put(desk).status == 200
    shown = {
        "name": "videos",
        "key": "video",
        "columns": {"title": "text", "channel": "text", "minutes": "number", "paid": "boolean"},
        "rows": 2,
        "versions": 2,
        "created": "2026-11-15T12:30:30.000Z",
        "changed": "2026-11-15T12:30:30.000Z",
    }
    assert desk.ask("/v1/tables") == {"tables": [shown]}
    assert desk.ask("/v1/tables/videos") == shown
    assert desk.ask("/v1/tables/videos", "DELETE") == {"deleted": "videos"}
    assert desk.ask("/v1/tables") == {"tables": []}
    assert refused(desk, "/videos", "DELETE").status == 404


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"video":"A","title":"Alpha"}\n{"video":"B","title":"Beta"}\n', LINES),
        (b'{"video":"A","title":"Alpha"}\n{"video":"B","title":"Beta"}\n', {}),
        (b"video,title\nA,Alpha\nB,Beta\n", CSV),
        (b'[{"video":"A","title":"Alpha"},{"video":"B","title":"Beta"}]', {"content-type": "application/octet-stream"}),
    ],
)
def test_every_form_says_the_same(desk: Desk, body: bytes, headers: dict[str, str]) -> None:
    put(desk, body, headers)
    assert desk.ask("/v1/tables/videos/rows") == {
        "rows": [
            {"key": "A", "from": None, "columns": {"title": "Alpha"}},
            {"key": "B", "from": None, "columns": {"title": "Beta"}},
        ],
        "next": None,
    }


def test_a_patch_changes_rows_from_now_on_and_history_is_shown(desk: Desk) -> None:
    put(desk)
    patch = [{"video": "A", "title": "Alpha 2"}, {"video": "B", "deleted": True}, {"video": "c/d e", "title": "C"}]
    assert desk.ask("/v1/tables/videos", "PATCH", patch, JSON) == {
        "name": "videos", "rows": 2, "added": 1, "changed": 1, "unchanged": 0, "deleted": 1,
    }  # fmt: skip
    rows = desk.ask("/v1/tables/videos/rows")["rows"]
    assert [(row["key"], row["columns"]["title"], row["from"]) for row in rows] == [
        ("A", "Alpha 2", "2026-11-15T12:30:30.000Z"),
        ("c/d e", "C", "2026-11-15T12:30:30.000Z"),
    ]
    assert rows[0]["columns"]["minutes"] == 3
    before = desk.ask("/v1/tables/videos/rows?at=2026-11-15T12:30:29Z")["rows"]
    assert [row["columns"]["title"] for row in before] == ["Alpha", "Beta"]
    history = desk.ask("/v1/tables/videos/rows/B")
    assert history["history"][0] == {"key": "B", "from": "2026-11-15T12:30:30.000Z", "columns": {}, "deleted": True}
    assert history["history"][1]["columns"]["title"] == "Beta"
    assert desk.ask("/v1/tables/videos/rows/c/d e")["key"] == "c/d e"
    assert refused(desk, "/videos/rows/nobody", "GET").code == "unknown_row"


def test_rows_come_in_pages_and_can_be_searched(desk: Desk) -> None:
    put(desk, [{"video": f"v{number:02}", "title": f"Title {number}"} for number in range(25)])
    found, after = [], ""
    for _ in range(3):
        page = desk.ask(f"/v1/tables/videos/rows?limit=10{after}")
        found += [row["key"] for row in page["rows"]]
        after = f"&after={page['next']}"
    assert page["next"] is None
    assert found == [f"v{number:02}" for number in range(25)]
    assert [row["key"] for row in desk.ask("/v1/tables/videos/rows?search=TITLE 7")["rows"]] == ["v07"]
    problem = refused(desk, "/videos/rows?limit=5000", "GET")
    assert (problem.code, problem.extra["limit"], problem.extra["actual"]) == ("over_limit", 1000, 5000)
    assert refused(desk, "/videos/rows?limt=5", "GET").code == "unknown_parameter"
    assert refused(desk, "/videos/rows?at=noon", "GET").extra["parameter"] == "at"
    assert refused(desk, "/videos/rows?at=1&at=2", "GET").code == "repeated_parameter"


def test_the_key_must_be_named_once_and_stays(desk: Desk) -> None:
    problem = refused(desk, "/videos", "PUT", VIDEOS, JSON)
    assert (problem.code, problem.extra["parameter"]) == ("missing_parameter", "key")
    put(desk)
    assert put(desk, target="videos").status == 200
    problem = refused(desk, "/videos?key=vidoe", "PUT", VIDEOS, JSON)
    assert problem.detail == "no row has the key 'vidoe'; did you mean video?"
    assert "history begins anew" in desk.ask("/v1/tables/videos?key=title", "PUT", VIDEOS, JSON)["note"]


def test_every_mistake_is_in_the_answer_with_its_line(desk: Desk) -> None:
    put(desk)
    problem = refused(desk, "/videos", "PATCH", b"video,minutes,from\nA,x,\nB,,noon\n", CSV)
    assert (problem.status, problem.code) == (400, "bad_row")
    assert (problem.extra["line"], problem.extra["column"]) == (2, "minutes")
    assert problem.extra["errors"] == [
        {
            "detail": "line 2: 'minutes' = 'x' is not a number, but the column is number: the table has it so",
            "line": 2,
            "column": "minutes",
            "value": "x",
        },
        {
            "detail": "line 3: from = 'noon' is not a time; write RFC 3339 with a zone, 2026-11-15T12:00:00Z, or epoch"
            " milliseconds",
            "line": 3,
            "column": "from",
            "value": "noon",
        },
    ]
    assert refused(desk, "/videos", "PATCH", [{"video": "A", "minutes": "x"}], JSON).extra["row"] == 1


def test_what_cannot_be_a_table_is_refused(desk: Desk) -> None:
    assert refused(desk, "/Videos?key=video", "PUT", VIDEOS, JSON).code == "bad_name"
    assert refused(desk, "/videos?key=video", "PUT", b"video\nA\n", {"content-type": "text/html"}).status == 415
    assert refused(desk, "/videos?key=video", "PUT", b"video\nA\n").status == 415
    latin = {"content-type": "text/csv; charset=latin-1"}
    assert refused(desk, "/videos?key=video", "PUT", b"video\nA\n", latin).code == "unknown_type"
    squeezed = {**JSON, "content-encoding": "gzip"}
    assert refused(desk, "/videos?key=video", "PUT", VIDEOS, squeezed).code == "unknown_encoding"
    large = refused(desk, "/videos?key=video", "PUT", b" " * (MOST_TABLE_BYTES + 1), JSON)
    assert (large.status, large.extra) == (413, {"limit": MOST_TABLE_BYTES, "actual": MOST_TABLE_BYTES + 1})
    unknown = refused(desk, "/vidoes", "PATCH", VIDEOS, JSON)
    put(desk)
    unknown = refused(desk, "/vidoes", "PATCH", VIDEOS, JSON)
    assert (unknown.status, unknown.detail) == (404, "there is no table 'vidoes'; did you mean videos?")
    assert refused(desk, "/vidoes/rows", "GET").code == "unknown_table"
    assert desk.ask("/v1/tables/videos")["rows"] == 2


def test_tenants_see_their_own(desk: Desk) -> None:
    desk.store.registry.add_tenant("acme")
    put(desk)
    put(desk, [{"video": "A", "title": "theirs"}], target="videos?key=video&tenant=acme")
    assert desk.ask("/v1/tables/videos/rows?tenant=acme")["rows"][0]["columns"] == {"title": "theirs"}
    assert desk.ask("/v1/tables/videos")["rows"] == 2
    problem = refused(desk, "/videos?key=video&tenant=nobody", "PUT", VIDEOS, JSON)
    assert (problem.status, problem.code) == (404, "unknown_tenant")


def test_one_large_body_is_read_at_a_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_api, "LARGE_BYTES", 10)
    with tables_api._reading:
        problem = refused(desk, "/videos?key=video", "PUT", VIDEOS, JSON)
    assert (problem.status, problem.code) == (503, "overloaded")
    assert put(desk).status == 201


@pytest.mark.parametrize(
    ("other", "target", "outcome"),
    [
        ([{"video": "A", "minutes": "three"}], "videos", "row 1: 'minutes' = 9 is a number, but the column is text"),
        ([{"id": "A", "minutes": 3}], "videos?key=id", "no row has the key 'id'"),
        ([{"video": "A", "minutes": 4}], "videos", ""),
    ],
)
def test_a_patch_is_read_again_if_the_table_was_changed_meanwhile(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, other: Any, target: str, outcome: str
) -> None:
    put(desk)
    read = tables_api.read

    def slow(*given: Any, **more: Any) -> Any:
        found = read(*given, **more)
        monkeypatch.setattr(tables_api, "read", read)
        put(desk, other, target=target)
        return found

    monkeypatch.setattr(tables_api, "read", slow)
    if outcome:
        assert outcome in refused(desk, "/videos", "PATCH", [{"video": "C", "minutes": 9}], JSON).detail
    else:
        assert desk.send("PATCH", "/v1/tables/videos", [{"video": "C", "minutes": 9}], JSON).status == 200
    rows = {each["key"] for each in desk.ask("/v1/tables/videos/rows")["rows"]}
    assert rows == ({"A"} if outcome else {"A", "C"})
