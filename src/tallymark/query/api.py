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
    dead_letters,
    meters_api,
    openapi,
    over_time,
    parsing,
    sentences,
    tables_api,
    tenants_api,
    totals,
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
        Route("PUT", METER, "add or change a meter", _put(sources), body="the definition, as in the file of meters"),
        Route("DELETE", METER, "stop counting a meter", _named(partial(meters_api.delete_meter, sources))),
        Route(
            "POST",
            f"{METER}/resume",
            "let a broken meter count again",
            _named(partial(meters_api.resume_meter, sources)),
        ),
        _of_meter("total", "one number of a meter", parsing.TOTAL, sources, parsing.total, totals.total),
        _of_meter("series", "a meter over time", parsing.SERIES, sources, parsing.series, over_time.series),
        _of_meter("top", "the largest series of a meter", parsing.TOP, sources, parsing.top, totals.top),
        *_sentences(sources),
        *_tables(sources),
        Route(
            "GET",
            f"{METER}/live",
            "changes as they are applied, as server-sent events",
            None,
            parsing.LIVE,
            filters=True,
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
    """`make` gets the tenant and the name of the meter."""

    def answer(request: Request) -> Response:
        request.no_parameters()
        return json_response(make(request.tenant, request.arguments["name"]))

    return answer


def _put(sources: Sources) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        request.no_parameters()
        code, data = meters_api.put_meter(sources, request.tenant, request.arguments["name"], request.body)
        return json_response(data, status=code)

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
