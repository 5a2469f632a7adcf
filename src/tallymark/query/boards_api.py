"""Boards over HTTP: saved queries arranged on a page."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tallymark.events.moments import rfc3339_ms
from tallymark.http import Problem
from tallymark.query import lengths, queries_api
from tallymark.query.routes import MOST_BODY_BYTES, Request
from tallymark.query.sources import Sources
from tallymark.query.tenants_api import require_tenant
from tallymark.store.documents import Document
from tallymark.suggest import suggest

PATH = "/v1/boards/{name}"
BODY = '{"title": "…", "panels": [{"query": "…", "title": "…", "kind": "line", "width": 2, "range": "1h"}]}'
MOST_PANELS = 48

Title = Annotated[str, Meta(max_length=200)]


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One saved query on a board."""

    query: str
    title: Title = ""
    kind: Literal["line", "bars", "number", "table"] = "line"
    width: Annotated[int, Meta(ge=1, le=4)] = 2
    """of four columns"""
    range: str | None = None
    """how far back it looks, such as `1h`; None is as the page has it"""


class Board(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a document of the kind `board`."""

    title: Title = ""
    panels: Annotated[tuple[Panel, ...], Meta(max_length=MOST_PANELS)] = ()


def list_boards(sources: Sources, tenant: str) -> dict[str, Any]:
    require_tenant(sources.store.registry, tenant)
    return {"boards": [_to_json(each) for each in sources.store.documents.of_tenant("board", tenant)]}


def get_board(sources: Sources, tenant: str, name: str) -> dict[str, Any]:
    found = sources.store.documents.get("board", tenant, name)
    if found is None:
        raise _unknown(sources, tenant, name)
    return _to_json(found)


def put_board(sources: Sources, request: Request) -> tuple[int, dict[str, Any]]:
    """(status, answer): 201 for a new board, 200 for another text or no change."""
    name, tenant = request.arguments["name"], request.tenant
    require_tenant(sources.store.registry, tenant)
    queries_api.check_name(name, "board")
    board = _given(request.body)
    _check_panels(sources, tenant, board)
    before = sources.store.documents.get("board", tenant, name)
    body = msgspec.json.encode(board).decode()
    kept = sources.store.documents.put("board", tenant, name, body, now_ms=sources.clock_ms())
    return (201 if before is None else 200), _to_json(kept)


def delete_board(sources: Sources, tenant: str, name: str) -> dict[str, Any]:
    if not sources.store.documents.delete("board", tenant, name):
        raise _unknown(sources, tenant, name)
    return {"deleted": name, "note": "its saved queries stay"}


def with_query(sources: Sources, tenant: str, query: str) -> list[str]:
    """The boards that show this query."""
    return [
        each.name
        for each in sources.store.documents.of_tenant("board", tenant)
        if any(panel.query == query for panel in _decoded(each).panels)
    ]


def _given(body: bytes) -> Board:
    if len(body) > MOST_BODY_BYTES:
        detail = f"a board of {len(body):,} bytes exceeds {MOST_BODY_BYTES:,}"
        raise Problem(413, "too_large", detail, limit=MOST_BODY_BYTES, actual=len(body))
    try:
        return msgspec.json.decode(body, type=Board)
    except msgspec.ValidationError as error:
        place = str(error).partition(" - at `$.")[2].rstrip("`")
        extra: dict[str, Any] = {"parameter": place} if place else {}
        raise Problem(400, "bad_board", str(error), **extra) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "bad_json", f"the board is not JSON: {error}") from None


def _check_panels(sources: Sources, tenant: str, board: Board) -> None:
    names = {each.name for each in sources.store.documents.of_tenant("query", tenant)}
    for place, panel in enumerate(board.panels):
        if panel.query not in names:
            parameter = f"panels[{place}].query"
            raise queries_api.unknown_query(sources, tenant, panel.query, status=400, parameter=parameter)
        if panel.range is not None:
            lengths.parse(f"panels[{place}].range", panel.range, code="bad_board")


def _to_json(document: Document) -> dict[str, Any]:
    return {
        "name": document.name,
        **msgspec.to_builtins(_decoded(document)),
        "created": rfc3339_ms(document.created_ms),
        "changed": rfc3339_ms(document.changed_ms),
    }


def _decoded(document: Document) -> Board:
    return msgspec.json.decode(document.body, type=Board)


def _unknown(sources: Sources, tenant: str, name: str) -> Problem:
    require_tenant(sources.store.registry, tenant)
    names = [each.name for each in sources.store.documents.of_tenant("board", tenant)]
    near = suggest(name, names, what="there are", otherwise=None if names else "there is none yet")
    return Problem(404, "unknown_board", f"there is no board {name[:80]!r}{near}", board=name[:80])
