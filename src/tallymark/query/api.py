"""What each path answers."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tallymark import dashboard, problems, telemetry
from tallymark.fidelity.rates import Rates
from tallymark.fidelity.roles import full_name, roles
from tallymark.fidelity.status import status
from tallymark.http import MOST_TABLE_BYTES, Problem
from tallymark.query import (
    boards_api,
    checking,
    dead_letters,
    live,
    meters_api,
    openapi,
    over_time,
    parsing,
    preview,
    queries_api,
    saved_series,
    seen,
    sentences,
    tables_api,
    tail,
    tenants_api,
    totals,
    words,
)
from tallymark.query.asking import Compute, asking
from tallymark.query.joining import Lookup
from tallymark.query.meters_api import known_meter
from tallymark.query.parameters import Pairs
from tallymark.query.parsing import Question
from tallymark.query.response import NOT_STORED, Response, json_response
from tallymark.query.retrying import of_a_moment
from tallymark.query.routes import Request, Route, Routes
from tallymark.query.sources import Sources
from tallymark.query.status_feed import StatusFeed
from tallymark.settings import QuerySettings
from tallymark.store.model import RegisteredMeter

METER = "/v1/meters/{name}"


class Parse(Protocol):
    """Turns the parameters of a request into a question, or refuses them."""

    def __call__(
        self, meter: RegisteredMeter, pairs: Pairs, *, now_ms: int, settings: QuerySettings, tables: Lookup | None
    ) -> Question: ...


def routes(sources: Sources, rates: Rates, *, is_stopping: Callable[[], bool] = lambda: False) -> Routes:
    """The whole table."""
    table = [
        Route("GET", "/v1/tenants", "every tenant", _plain(lambda: tenants_api.list_tenants(sources))),
        Route("GET", "/v1/meters", "every meter", _of_tenant(partial(meters_api.list_meters, sources))),
        Route("GET", METER, "one meter", _named(partial(meters_api.get_meter, sources))),
        Route(
            "PUT",
            METER,
            "add or change a meter",
            _put(partial(_put_meter, sources)),
            body="the definition, as in the file of meters",
        ),
        Route("DELETE", METER, "stop counting a meter", _named(partial(meters_api.delete_meter, sources))),
        Route(
            "POST",
            f"{METER}/resume",
            "let a broken meter count again",
            _named(partial(meters_api.resume_meter, sources)),
        ),
        Route(
            "POST",
            "/v1/meters/check",
            "what is wrong with a definition, and what it would change",
            _checked(sources),
            body="the definition, as in the file of meters",
        ),
        Route(
            "POST",
            preview.PATH,
            "what a meter would count of the newest events; nothing is saved",
            lambda request: json_response(preview.preview(sources, request.tenant, request.pairs, request.body)),
            keys=seen.KEYS,
            body="the definition, as in the file of meters",
        ),
        Route(
            "GET",
            seen.PATH,
            "which events came lately and what they carry, from a sample",
            lambda request: json_response(seen.seen(sources, request.tenant, request.pairs)),
            keys=seen.KEYS,
        ),
        _of_meter("total", "one number of a meter", parsing.TOTAL, sources, parsing.total, totals.total),
        _of_meter("series", "a meter over time", parsing.SERIES, sources, parsing.series, over_time.series),
        _of_meter("top", "the largest series of a meter", parsing.TOP, sources, parsing.top, totals.top),
        *_sentences(sources),
        *_saved_queries(sources),
        *_boards(sources),
        Route(
            "GET",
            words.PATH,
            "what may come next in a query",
            lambda request: json_response(words.words(sources, request.tenant, request.pairs)),
            keys=words.KEYS,
            needed=("q",),
        ),
        *_tables(sources),
        Route(
            "GET",
            f"{METER}/live",
            "changes as they are applied, as server-sent events",
            opens=live.Live(sources).opening,
            parameters=parsing.LIVE,
            filters=True,
            content="text/event-stream",
        ),
        Route(
            "GET",
            "/v1/status/live",
            "the status once a second, as server-sent events",
            opens=StatusFeed(lambda: status(sources, rates)).opening,
            content="text/event-stream",
        ),
        Route(
            "GET",
            tail.PATH,
            "events as they pass, sampled, as server-sent events",
            opens=tail.Tail(sources).opening,
            keys=tail.KEYS,
            content="text/event-stream",
        ),
        Route("GET", "/v1/status", "is anything late or lost?", _plain(lambda: status(sources, rates))),
        Route(
            "GET",
            "/v1/dlq",
            "dead letters, newest first, and how many events of each reason",
            lambda request: json_response(dead_letters.list_letters(sources, request.tenant, request.pairs)),
            ("limit",),
            keys=dead_letters.FILTERS,
        ),
        Route(
            "GET",
            "/v1/dlq/{id}",
            "one dead letter with its events",
            lambda request: json_response(
                dead_letters.show_letter(sources, request.tenant, request.arguments["id"], request.pairs)
            ),
            ("limit",),
        ),
        Route("GET", "/healthz", "alive", _plain(lambda: {"status": "alive"})),
        Route("GET", "/readyz", "sees the store", _plain(lambda: _ready(sources, is_stopping))),
        Route("GET", "/metrics", "this process' metrics for Prometheus", _metrics, content="text/plain"),
        Route("GET", problems.PATH, "what each error code means", _errors, content="text/html"),
        Route("GET", "/openapi.json", "this document", _plain(lambda: openapi.document(table))),
        *(_static(path, file) for path, file in dashboard.files().items()),
    ]
    return Routes(table)


def _of_meter(
    kind: str, summary: str, parameters: tuple[str, ...], sources: Sources, parse: Parse, compute: Compute
) -> Route:
    def understand(request: Request) -> Question:
        meter = known_meter(sources.store.registry, request.tenant, request.arguments["name"])
        return parse(
            meter,
            request.pairs,
            now_ms=sources.clock_ms(),
            settings=sources.settings.query,
            tables=sources.tables,
        )

    answer = asking(sources, kind, understand, compute)
    return Route("GET", f"{METER}/{kind}", summary, answer, parameters, filters=True)


def _sentences(sources: Sources) -> list[Route]:
    answer = asking(sources, "query", sentences.understanding(sources), over_time.series)
    summary = "a question in the query language"
    return [
        Route("GET", sentences.PATH, summary, answer, sentences.PARAMETERS, keys=sentences.KEYS, needed=("q",)),
        Route(
            "POST",
            sentences.PATH,
            summary,
            answer,
            sentences.PARAMETERS,
            body='the query as text, or as JSON: {"q": "FROM …"}',
            body_types={"text/plain": "string", "application/json": "object"},
        ),
    ]


def _saved_queries(sources: Sources) -> list[Route]:
    path = queries_api.PATH
    return [
        Route("GET", "/v1/queries", "every saved query", _of_tenant(partial(queries_api.list_queries, sources))),
        Route("GET", path, "one saved query", _named(partial(queries_api.get_query, sources))),
        Route(
            "PUT",
            path,
            "save a query",
            _put(partial(queries_api.put_query, sources)),
            body=queries_api.BODY,
            body_types={"application/json": "object", "text/plain": "string"},
        ),
        Route("DELETE", path, "delete a saved query", _named(partial(queries_api.delete_query, sources))),
        Route(
            "GET",
            saved_series.PATH,
            "the windows of a saved query",
            asking(sources, "saved", saved_series.understanding(sources), saved_series.series),
            saved_series.PARAMETERS,
        ),
    ]


def _boards(sources: Sources) -> list[Route]:
    path = boards_api.PATH
    return [
        Route("GET", "/v1/boards", "every board", _of_tenant(partial(boards_api.list_boards, sources))),
        Route("GET", path, "one board", _named(partial(boards_api.get_board, sources))),
        Route(
            "PUT", path, "make or change a board", _put(partial(boards_api.put_board, sources)), body=boards_api.BODY
        ),
        Route("DELETE", path, "delete a board", _named(partial(boards_api.delete_board, sources))),
    ]


def _tables(sources: Sources) -> list[Route]:
    def uploads(method: str, summary: str, make: Callable[[Sources, Request], Response], **rest: Any) -> Route:
        return Route(
            method,
            tables_api.TABLE,
            summary,
            partial(make, sources),
            body=tables_api.BODY,
            body_types=tables_api.BODY_TYPES,
            most_body_bytes=MOST_TABLE_BYTES,
            **rest,
        )

    return [
        Route("GET", tables_api.PATH, "every table", partial(tables_api.list_tables, sources)),
        Route("GET", tables_api.TABLE, "one table, without its rows", partial(tables_api.get_table, sources)),
        uploads("PUT", "a whole table", tables_api.put_table, keys=tables_api.KEYS),
        uploads("PATCH", "add, change or end rows of a table", tables_api.patch_table),
        Route("DELETE", tables_api.TABLE, "delete a table", partial(tables_api.delete_table, sources)),
        Route(
            "GET",
            tables_api.ROWS,
            "rows of a table, by key",
            partial(tables_api.list_rows, sources),
            keys=tables_api.ROWS_KEYS,
        ),
        Route(
            "GET",
            f"{tables_api.ROWS}/{{key}}",
            "one row with its history, the newest first",
            partial(tables_api.get_row, sources),
            ends_open=True,
        ),
    ]


def _plain(make: Callable[[], Any]) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        request.no_parameters()
        return json_response(of_a_moment(make))

    return answer


def _of_tenant(make: Callable[[str], Any]) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        request.no_parameters()
        return json_response(make(request.tenant))

    return answer


def _named(make: Callable[[str, str], Any]) -> Callable[[Request], Response]:
    """`make` gets the tenant and the name in the path."""

    def answer(request: Request) -> Response:
        request.no_parameters()
        return json_response(make(request.tenant, request.arguments["name"]))

    return answer


def _put(make: Callable[[Request], tuple[int, Any]]) -> Callable[[Request], Response]:
    """`make` gives the status and the answer."""

    def answer(request: Request) -> Response:
        request.no_parameters()
        code, data = make(request)
        return json_response(data, status=code)

    return answer


def _put_meter(sources: Sources, request: Request) -> tuple[int, Any]:
    return meters_api.put_meter(sources, request.tenant, request.arguments["name"], request.body)


def _checked(sources: Sources) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        request.no_parameters()
        return json_response(checking.check(sources, request.tenant, request.body))

    return answer


def _ready(sources: Sources, is_stopping: Callable[[], bool]) -> dict[str, Any]:
    """Ready if the store answers. The states of the other roles are shown, but do not matter for that."""
    if is_stopping():
        raise Problem(503, "stopping", "the service is stopping; ask another one", headers={"retry-after": "1"})
    now_ms = sources.clock_ms()
    try:
        with sources.store.snapshots.take() as snapshot:
            applied = snapshot.applied()
        alive = roles(sources.settings.run_folder, sources.store.heartbeats.beats(), now_ms=now_ms)
    except Exception as error:
        raise Problem(503, "not_ready", f"the store does not answer: {error}", headers={"retry-after": "1"}) from error
    return {
        "ready": True,
        "store": "answers",
        "applied": applied,
        "roles": {full_name(each): each["state"] for each in alive},
    }


def _metrics(request: Request) -> Response:
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return Response(200, [("content-type", kind), NOT_STORED], telemetry.exposition())


def _errors(request: Request) -> Response:
    request.no_parameters()
    return Response(200, problems.HEADERS, problems.page())


def _static(path: str, file: dashboard.File) -> Route:
    def answer(request: Request) -> Response:
        known = request.headers("if-none-match") or ""
        if file.etag in [each.strip() for each in known.split(",")]:
            return Response(304, file.headers, b"")
        return Response(200, file.headers, file.content)

    return Route("GET", path, "the dashboard", answer, content=file.kind)
