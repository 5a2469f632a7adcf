"""Saved queries over HTTP: their definitions, and how far their windows are stored."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from tallymark.evaluation import definition
from tallymark.evaluation.definition import Definition
from tallymark.evaluation.plan import NoPlan, Plan, plan
from tallymark.events.model import NAME, NAME_RULE
from tallymark.events.moments import rfc3339_ms, rfc3339_s
from tallymark.fidelity.freshness import complete_through
from tallymark.fidelity.queries import behind_ms
from tallymark.http import Problem
from tallymark.meters import language
from tallymark.meters.language import Query, QueryError
from tallymark.query import boards_api, ranges, sentences
from tallymark.query.joining import Columns
from tallymark.query.routes import MOST_BODY_BYTES, Request
from tallymark.query.sources import Sources
from tallymark.store.documents import Document
from tallymark.store.model import RegisteredMeter
from tallymark.store.queried import select_queried
from tallymark.store.windows import Lineage, share_of
from tallymark.suggest import suggest

PATH = "/v1/queries/{name}"
BODY = '{"q": "FROM … WINDOW 1m …", "title": "…", "tz": "…"}, or the query as text'
MOST_TITLE = 200


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved query as it is understood now; without a plan if what it asks for is gone."""

    document: Document
    definition: Definition
    query: Query
    plan: Plan | None = None
    problem: str | None = None


def list_queries(sources: Sources, tenant: str) -> dict[str, Any]:
    meters = sentences.meters_of(sources, tenant)
    found = [understood(each, meters) for each in sources.store.documents.of_tenant("query", tenant)]
    complete_ms = _complete_through(sources) if found else None
    lineages = {(each.tenant, each.name, each.digest): each for each in _live(sources.store.windows.lineages())}

    def own(saved: Saved) -> Lineage | None:
        return lineages.get((tenant, saved.plan.name, saved.plan.digest)) if saved.plan else None

    return {"queries": [_to_json(each, own(each), complete_ms) for each in found]}


def get_query(sources: Sources, tenant: str, name: str) -> dict[str, Any]:
    return _shown(sources, known_query(sources, tenant, name))


def put_query(sources: Sources, request: Request) -> tuple[int, dict[str, Any]]:
    """(status, answer): 201 for a new query, 200 for another text or no change."""
    name, tenant = request.arguments["name"], request.tenant
    check_name(name, "query")
    given = _given(request)
    if len(given.title) > MOST_TITLE:
        detail = f"a title of {len(given.title):,} characters exceeds {MOST_TITLE}"
        raise Problem(400, "bad_text", detail, parameter="title")
    checked = _checked(sources, tenant, given)
    before = sources.store.documents.get("query", tenant, name)
    kept = sources.store.documents.put("query", tenant, name, definition.encode(checked), now_ms=sources.clock_ms())
    select_queried(sources.store, now_ms=sources.clock_ms(), tenant=tenant)
    saved = understood(kept, sentences.meters_of(sources, tenant))
    return (201 if before is None else 200), {**_shown(sources, saved), "note": _note(before, kept)}


def delete_query(sources: Sources, tenant: str, name: str) -> dict[str, Any]:
    if not sources.store.documents.delete("query", tenant, name):
        raise unknown_query(sources, tenant, name)
    select_queried(sources.store, now_ms=sources.clock_ms(), tenant=tenant)
    boards = boards_api.with_query(sources, tenant, name)
    left = f"; the boards {', '.join(boards)} still show it" if boards else ""
    return {"deleted": name, "note": f"{name} is no longer evaluated, and its stored windows are deleted{left}"}


def known_query(sources: Sources, tenant: str, name: str) -> Saved:
    """404 with the nearest name if there is none."""
    found = sources.store.documents.get("query", tenant, name)
    if found is None:
        raise unknown_query(sources, tenant, name)
    return understood(found, sentences.meters_of(sources, tenant))


def understood(document: Document, meters: dict[str, RegisteredMeter]) -> Saved:
    """What a document asks of these meters."""
    body = definition.decode(document.body)
    query = language.parse(body.q)
    try:
        return Saved(document, body, query, plan(document, list(meters.values())))
    except NoPlan as error:
        return Saved(document, body, query, problem=str(error))


def lineage_of(sources: Sources, planned: Plan) -> Lineage | None:
    """Its stored windows; None until the keeper has begun with them."""
    found = _live(sources.store.windows.lineages(share_of(planned.tenant, planned.name)))
    own = [each for each in found if (each.tenant, each.name) == (planned.tenant, planned.name)]
    return next((each for each in own if each.digest == planned.digest), None)


def _live(lineages: Iterable[Lineage]) -> list[Lineage]:
    return [each for each in lineages if not each.dropped]


def _complete_through(sources: Sources) -> int | None:
    with sources.store.snapshots.take() as snapshot:
        applied, now_ms = snapshot.applied(), sources.clock_ms()
    return complete_through(applied, sources.events, now_ms=now_ms, clock_ms=sources.clock_ms)


def _shown(sources: Sources, saved: Saved) -> dict[str, Any]:
    lineage = lineage_of(sources, saved.plan) if saved.plan else None
    return _to_json(saved, lineage, _complete_through(sources))


def unknown_query(sources: Sources, tenant: str, name: str, *, status: int = 404, parameter: str = "") -> Problem:
    sentences.meters_of(sources, tenant)
    names = [each.name for each in sources.store.documents.of_tenant("query", tenant)]
    near = suggest(name, names, what="there are", otherwise=None if names else "none is saved yet")
    detail = f"there is no saved query {name[:80]!r}{near}"
    if status == 400:
        return Problem(400, "unknown_query", detail, parameter=parameter, query=name[:80])
    return Problem(404, "unknown_query", detail, query=name[:80])


def check_name(name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        raise Problem(400, "bad_name", f"{name[:80]!r} is not a name for a {what}; names are {NAME_RULE}")


def _given(request: Request) -> Definition:
    body = request.body
    if len(body) > MOST_BODY_BYTES:
        detail = f"a query of {len(body):,} bytes exceeds {MOST_BODY_BYTES:,}"
        raise Problem(413, "too_large", detail, limit=MOST_BODY_BYTES, actual=len(body))
    if "json" not in (request.headers("content-type") or "json"):
        try:
            return Definition(body.decode())
        except UnicodeDecodeError:
            raise Problem(400, "bad_text", "the query is not UTF-8") from None
    try:
        return msgspec.json.decode(body, type=_Given)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "bad_json", f'the body is not {{"q": "FROM …", "title": "…"}}: {error}') from None


class _Given(Definition, frozen=True, forbid_unknown_fields=True):
    """A definition as somebody writes it."""


def _checked(sources: Sources, tenant: str, given: Definition) -> Definition:
    """The definition as it is kept. Raises what `/v1/query` would, at the same position."""
    if given.tz is not None:
        ranges.zone(given.tz)
    try:
        query = definition.parse(given.q)
        meters = sentences.meters_of(sources, tenant)
        named, selected = definition.resolve(
            query,
            [each.meter for each in meters.values()],
            lambda meter: sentences.Metrics(sources.store, meters[meter.name], set()),
        )
        _refuse_columns(query, Columns(meters[selected.meter.name], sources.tables))
        where = language.filters(query, selected)
    except QueryError as error:
        raise sentences.refused(error) from None
    assert query.window_s is not None
    # A range of some windows, for what only a question can find out: a window that is no multiple of the grain …
    span = [("from", f"-{2 * query.window_s}s"), *([("tz", given.tz)] if given.tz else [])]
    sentences.asked(sources, query, meters[selected.meter.name], where, span)
    return Definition(str(named), given.title, given.tz)


def _refuse_columns(query: Query, columns: Columns) -> None:
    """A table changes without anything being counted: stored windows would not notice."""
    for clause, names in (("by", query.by), ("where", query.where)):
        for name in names:
            if columns.is_known(name):
                detail = f"{name} is a column of a table, which stored windows cannot follow; ask by its key, and for"
                detail += f" {name} without saving (GET /v1/query)"
                raise query.error("bad_query", detail, f"{clause}.{name}")


def _to_json(saved: Saved, lineage: Lineage | None, complete_ms: int | None) -> dict[str, Any]:
    """`behind_ms` is since when the oldest window that is not stored could be."""
    document, selection = saved.document, saved.query.selection
    has_windows = lineage is not None and lineage.windows > 0
    return {
        "name": document.name,
        "q": saved.definition.q,
        "title": saved.definition.title,
        "tz": saved.definition.tz,
        "meter": saved.plan.meter.meter.name if saved.plan else selection.meter or selection.name,
        "window": saved.query.window,
        "created": rfc3339_ms(document.created_ms),
        "changed": rfc3339_ms(document.changed_ms),
        "stored": {
            "from": rfc3339_s(lineage.from_s) if lineage and has_windows else None,
            "through": rfc3339_s(lineage.through_s) if lineage and has_windows else None,
            "windows": lineage.windows if lineage else 0,
        },
        "behind_ms": behind_ms(lineage, complete_ms) if lineage else None,
        "problem": saved.problem or (lineage.problem if lineage else "") or None,
    }


def _note(before: Document | None, after: Document) -> str:
    if before is None:
        return f"the windows of {after.name} are stored from now on"
    if before.revision == after.revision:
        return "nothing changed"
    was, now = definition.decode(before.body), definition.decode(after.body)
    if (was.q, was.tz) == (now.q, now.tz):
        return "only the title changed"
    return f"the windows of {after.name} are stored anew from now on; those of its former text are deleted"
