"""Boards over HTTP."""

from typing import Any

import pytest

from asking import Desk


@pytest.fixture
def board_desk(desk: Desk) -> Desk:
    desk.send("PUT", "/v1/queries/slow", {"q": "FROM * SELECT latency WINDOW 1m"})
    return desk


def test_a_board_is_made_changed_shown_and_deleted(board_desk: Desk) -> None:
    panel = {"query": "slow", "kind": "bars", "width": 4, "range": "1h"}
    answer = board_desk.send("PUT", "/v1/boards/wall", {"title": "Wall", "panels": [panel]})
    assert answer.status == 201
    shown = board_desk.ask("/v1/boards/wall")
    assert shown["panels"] == [{**panel, "title": ""}]
    assert (shown["name"], shown["title"], shown["created"]) == ("wall", "Wall", "2026-11-15T12:30:30.000Z")
    assert board_desk.ask("/v1/boards") == {"boards": [shown]}
    assert board_desk.send("PUT", "/v1/boards/wall", {"panels": []}).status == 200
    assert board_desk.ask("/v1/boards/wall", "DELETE")["deleted"] == "wall"
    assert board_desk.refused("/v1/boards/wall").code == "unknown_board"
    assert board_desk.refused("/v1/boards/wall", "DELETE").status == 404


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"panels": [{"query": "slow"}, {"query": "slow", "kind": "pie"}]}, "panels[1].kind"),
        ({"panels": [{"query": "slow", "width": 5}]}, "panels[0].width"),
        ({"panels": [{"query": "slow", "range": "an hour"}]}, "panels[0].range"),
        ({"panels": [{"query": "slow"}] * 49}, "panels"),
        ({"panels": [{}]}, "panels[0]"),
        ({"panels": [{"query": "slow", "colour": "red"}]}, "panels[0]"),
        ({"title": 7}, "title"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(board_desk: Desk, body: Any, parameter: str) -> None:
    refused = board_desk.refused("/v1/boards/wall", "PUT", body)
    assert (refused.status, refused.code, refused.extra["parameter"]) == (400, "bad_board", parameter)


def test_its_queries_must_exist(board_desk: Desk) -> None:
    refused = board_desk.refused("/v1/boards/wall", "PUT", {"panels": [{"query": "slow"}, {"query": "slov"}]})
    assert (refused.status, refused.code, refused.extra["parameter"]) == (400, "unknown_query", "panels[1].query")
    assert "did you mean slow?" in refused.detail


def test_names_and_text_that_is_no_json_are_refused(board_desk: Desk) -> None:
    assert board_desk.refused("/v1/boards/1", "PUT", {"panels": []}).code == "bad_name"
    assert board_desk.refused("/v1/boards/wall", "PUT", b"{").code == "bad_json"
    listed = board_desk.refused("/v1/boards/wall", "PUT", b"[]")
    assert (listed.code, "parameter" in listed.extra) == ("bad_board", False)


def test_deleting_a_query_names_the_boards_that_show_it(board_desk: Desk) -> None:
    board_desk.send("PUT", "/v1/boards/wall", {"panels": [{"query": "slow"}]})
    assert "the boards wall still show it" in board_desk.ask("/v1/queries/slow", "DELETE")["note"]
