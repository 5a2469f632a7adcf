"""Tables over HTTP: what there is, whole tables, rows."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any

from tallymark.events.moments import rfc3339_ms
from tallymark.http import MOST_TABLE_BYTES, Problem
from tallymark.query import moments
from tallymark.query.parameters import Given, sort_out
from tallymark.query.response import Response, json_response
from tallymark.query.routes import Request
from tallymark.query.sources import Sources
from tallymark.query.tenants_api import require_tenant
from tallymark.suggest import suggest
from tallymark.tables import Mistakes, Outcome, Row, Table, TableError, read
from tallymark.tables.bodies import Format
from tallymark.tables.kept import Named

PATH = "/v1/tables"
TABLE = f"{PATH}/{{name}}"
ROWS = f"{TABLE}/rows"
KEYS = {"key": "the column by which rows are found, called like the label that they join"}
ROWS_KEYS = {
    "search": "a part of a key or value, in any case",
    "limit": "how many rows (100; at most 1,000)",
    "after": "`next` of the page before",
    "at": "the moment at which they hold: RFC 3339, epoch milliseconds, or relative (now)",
}
BODY = "rows: a JSON array of objects, a JSON object a line, or CSV with a line of names"
BODY_TYPES = {"application/json": "array", "application/x-ndjson": "string", "text/csv": "string"}
MOST_LISTED = 1_000
# Larger bodies are read one at a time: as objects they take about ten times their size.
LARGE_BYTES = 1_000_000

_FORMS: dict[str, Format] = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/csv": "csv",
}

_reading = threading.Lock()


def list_tables(sources: Sources, request: Request) -> Response:
    request.no_parameters()
    found = sources.tables.names(request.tenant)
    if not found:
        require_tenant(sources.store.registry, request.tenant)
    return json_response({"tables": [to_json(each) for each in found]})


def get_table(sources: Sources, request: Request) -> Response:
    request.no_parameters()
    return json_response(to_json(_named(sources, request)))


def put_table(sources: Sources, request: Request) -> Response:
    """201 for a new table, 200 for one that was there."""
    given, name = _given(request, KEYS), request.arguments["name"]
    require_tenant(sources.store.registry, request.tenant)
    known = sources.tables.named(request.tenant, name)
    with _in_words(), _alone(request):
        key = _one(given, "key") or (known.definition.key if known else None)
        if key is None:
            detail = f"which column is the key of the table {name}? Add ?key=video, or --key video to the command"
            raise Problem(400, "missing_parameter", detail, parameter="key")
        body = read(_content(request), _form(request), key=key)
        done = sources.tables.put(request.tenant, name, key, body, now_ms=sources.clock_ms())
    return json_response(_outcome(name, done), status=201 if done.is_new else 200)


def patch_table(sources: Sources, request: Request) -> Response:
    request.no_parameters()
    known = _named(sources, request).definition
    with _in_words(), _alone(request):
        body = read(_content(request), _form(request), key=known.key, known=known.columns)
        done = sources.tables.patch(request.tenant, request.arguments["name"], body, now_ms=sources.clock_ms())
    if done is None:
        raise _unknown(sources, request)
    return json_response(_outcome(request.arguments["name"], done))


def delete_table(sources: Sources, request: Request) -> Response:
    request.no_parameters()
    name = request.arguments["name"]
    if not sources.tables.delete(request.tenant, name):
        raise _unknown(sources, request)
    return json_response({"deleted": name})


def list_rows(sources: Sources, request: Request) -> Response:
    given, table = _given(request, ROWS_KEYS), _table(sources, request)
    now_ms = sources.clock_ms()
    at = _one(given, "at")
    at_ms = now_ms if at is None else moments.parse("at", at, now_ms=now_ms, zone=UTC)
    limits = Given({name: given.where[name] for name in ("limit",) if name in given.where}, {})
    rows, has_more = table.page(
        at_ms=at_ms,
        search=_one(given, "search") or "",
        after=_one(given, "after"),
        limit=limits.whole("limit", default=100, most=MOST_LISTED),
    )
    return json_response({"rows": [_row(each) for each in rows], "next": rows[-1].key if has_more else None})


def get_row(sources: Sources, request: Request) -> Response:
    """Every version of it, the newest first."""
    request.no_parameters()
    table, key = _table(sources, request), request.arguments["key"]
    found = table.history(key)
    if not found:
        name = request.arguments["name"]
        raise Problem(404, "unknown_row", f"the table {name} has no row {key[:80]!r}", key=key[:80])
    return json_response({"key": key, "history": [_row(each) for each in found]})


def to_json(named: Named) -> dict[str, Any]:
    definition = named.definition
    history = {} if definition.history_ms is None else {"history_from": rfc3339_ms(definition.history_ms)}
    return {
        "name": named.name,
        "key": definition.key,
        "columns": definition.columns,
        "rows": definition.rows,
        "versions": definition.versions,
        **history,
        "created": rfc3339_ms(named.created_ms),
        "changed": rfc3339_ms(named.changed_ms),
    }


def _row(row: Row) -> dict[str, Any]:
    ended = {"deleted": True} if row.is_deleted else {}
    since = None if row.from_ms is None else rfc3339_ms(row.from_ms)
    return {"key": row.key, "from": since, "columns": row.columns, **ended}


def _outcome(name: str, done: Outcome) -> dict[str, Any]:
    counts = done.counts
    return {
        "name": name,
        "rows": done.table.definition.rows,
        "added": counts.added,
        "changed": counts.changed,
        "unchanged": counts.unchanged,
        "deleted": counts.deleted,
        **({"note": done.note} if done.note else {}),
    }


def _table(sources: Sources, request: Request) -> Table:
    found = sources.tables.get(request.tenant, request.arguments["name"])
    if found is None:
        raise _unknown(sources, request)
    return found


def _named(sources: Sources, request: Request) -> Named:
    found = sources.tables.named(request.tenant, request.arguments["name"])
    if found is None:
        raise _unknown(sources, request)
    return found


def _unknown(sources: Sources, request: Request) -> Problem:
    require_tenant(sources.store.registry, request.tenant)
    name = request.arguments["name"]
    near = suggest(name, [each.name for each in sources.tables.names(request.tenant)], what="there are")
    return Problem(404, "unknown_table", f"there is no table {name[:80]!r}{near}", table=name[:80])


def _given(request: Request, keys: dict[str, str]) -> Given:
    # `limit` is a parameter of questions, too, so its name is taken: here it is one of ours.
    pairs = [(f"label.{name}" if name in keys else name, value) for name, value in request.pairs]
    return sort_out(pairs, allowed=(), question=request.path, keys=tuple(keys))


def _one(given: Given, name: str) -> str | None:
    values = given.where.get(name, ())
    if len(values) > 1:
        raise Problem(400, "repeated_parameter", f"{name} is given {len(values)} times; give it once", parameter=name)
    return values[0] if values else None


def _content(request: Request) -> bytes:
    encoding = (request.headers("content-encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise Problem(415, "unknown_encoding", f"content-encoding {encoding[:40]!r}; tables are sent as they are")
    if len(request.body) > MOST_TABLE_BYTES:
        detail = (
            f"a body of at least {len(request.body):,} bytes exceeds {MOST_TABLE_BYTES:,}; send it in several patches"
        )
        raise Problem(413, "too_large", detail, limit=MOST_TABLE_BYTES, actual=len(request.body))
    return request.body


def _form(request: Request) -> Format:
    """As the content type says; `curl --data-binary` says that of a form, so then the first character does."""
    kind, _, rest = (request.headers("content-type") or "").lower().partition(";")
    charset = rest.partition("charset=")[2].strip().strip('"')
    kind = kind.strip()
    if charset not in ("", "utf-8", "utf8"):
        raise Problem(415, "unknown_type", f"charset={charset[:40]}; tables are sent in UTF-8")
    if kind in _FORMS:
        return _FORMS[kind]
    start = request.body.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if kind in ("", "application/x-www-form-urlencoded", "application/octet-stream") and start in (b"[", b"{"):
        return "json" if start == b"[" else "ndjson"
    known = ", ".join(BODY_TYPES)
    raise Problem(415, "unknown_type", f"content-type {kind[:60] or 'is missing'}; tables are sent as {known}")


@contextmanager
def _alone(request: Request) -> Iterator[None]:
    """One large body at a time: the others would only wait in the threads that answer questions."""
    if len(request.body) <= LARGE_BYTES:
        yield
        return
    if not _reading.acquire(blocking=False):
        detail = "another large table is being read; send it again in a moment"
        raise Problem(503, "overloaded", detail, headers={"retry-after": "2"})
    try:
        yield
    finally:
        _reading.release()


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except Mistakes as error:
        errors = [
            {
                "detail": str(each),
                "row" if each.is_row else "line": each.line,
                **({"column": each.column} if each.column else {}),
                **({"value": each.value} if each.value else {}),
            }
            for each in error.found
        ]
        raise Problem(400, "bad_row", error.detail, **error.extra, errors=errors) from None
    except TableError as error:
        raise Problem(400, error.code, error.detail, **error.extra) from None
