"""The routes of the public port."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tallymark import problems, telemetry
from tallymark.collector import health, snippet
from tallymark.collector.body import ClientGone, Limits, Reader
from tallymark.collector.clients import Clients
from tallymark.collector.forward import Forwarder
from tallymark.collector.intake import Intake
from tallymark.collector.pressure import Budget, Holding
from tallymark.http import JSON_HEADERS, MOST_TABLE_BYTES, Callers, Problem, Scope
from tallymark.tenants import is_page, tenant_of

METRICS_HEADERS = [("content-type", "text/plain; version=0.0.4; charset=utf-8")]
# What `POST /v1/events` can answer; each counter exists before it is needed.
STATUSES = (200, 202, 400, 403, 405, 408, 413, 415, 421, 422, 429, 500, 503)
TABLES = "/v1/tables/"
LIMITS_OF_TABLES = Limits(
    MOST_TABLE_BYTES, 0, body_timeout_s=60.0, said="{:,}, the most for a table; send it in several patches"
)

logger = logging.getLogger(__name__)


class Origins:
    """CORS: which pages may send events from a browser."""

    def __init__(self, allowed: list[str]) -> None:
        self._allowed = set(allowed)

    def headers(self, origin: str | None) -> list[tuple[str, str]]:
        if origin is None or not self._allowed & {"*", origin}:
            return []
        return [
            ("access-control-allow-origin", "*" if "*" in self._allowed else origin),
            ("access-control-expose-headers", "retry-after"),
            ("vary", "origin"),
        ]

    def preflight(self, origin: str | None) -> list[tuple[str, str]]:
        allowed = self.headers(origin)
        return allowed and [
            *allowed,
            ("access-control-allow-methods", "POST"),
            (
                "access-control-allow-headers",
                "content-type, content-encoding, idempotency-key, tallymark-sent-at, tallymark-client, "
                "tallymark-tenant, authorization",
            ),
            ("access-control-max-age", "86400"),
        ]


class App:
    """The RSGI application: events to the intake, questions of operators to health, the rest to the query service."""

    def __init__(  # noqa: PLR0913
        self,
        intake: Intake,
        readiness: health.Readiness,
        forwarder: Forwarder,
        *,
        callers: Callers,
        origins: Origins,
        reader: Reader,
        budget: Budget,
        run_folder: Path,
        instance: str,
    ) -> None:
        self._intake, self._readiness, self._forwarder = intake, readiness, forwarder
        self._callers = callers
        self._origins, self._reader, self._budget, self._run_folder = origins, reader, budget, run_folder
        self._clients = Clients()
        self._tables, self._is_taking_a_table = Budget(MOST_TABLE_BYTES, is_published=False), False
        self._instance = instance
        self._statuses = {status: telemetry.COLLECTOR_REQUESTS.labels(str(status)) for status in STATUSES}

    async def __call__(self, scope: Scope, proto: Any) -> None:
        if scope.path == "/v1/events":
            await self._events(scope, proto)
            return
        try:
            self._callers.check(scope)
            await self._other(scope, proto)
        except Problem as problem:
            proto.response_bytes(problem.status, problem.headers, problem.body())
        except ClientGone:
            proto.response_empty(400, [("connection", "close")])

    async def _events(self, scope: Scope, proto: Any) -> None:
        origin = scope.headers.get("origin")
        shared = self._origins.headers(origin) if origin is not None else []
        try:
            self._callers.check(scope)
            if scope.method == "OPTIONS":
                proto.response_empty(204, [("allow", "POST, OPTIONS"), *self._origins.preflight(origin)])
                return
            if scope.method != "POST":
                raise Problem(
                    405, "wrong_method", f"{scope.method} /v1/events; use POST", headers={"allow": "POST, OPTIONS"}
                )
            if (said := scope.headers.get("tallymark-client")) is not None:
                self._clients.note(said)
            answer = await self._intake.answer(scope, proto)
        except ClientGone:
            proto.response_empty(400, [("connection", "close")])
            return
        except Problem as problem:
            self._statuses[problem.status].inc()
            proto.response_bytes(problem.status, [*problem.headers, *shared], problem.body())
            return
        except Exception as error:
            logger.error("POST /v1/events failed; nothing was acknowledged", exc_info=error)
            self._statuses[500].inc()
            internal = Problem(500, "internal", "internal error in the collector; see its log file")
            proto.response_bytes(500, [*internal.headers, *shared], internal.body())
            return
        self._statuses[answer.status].inc()
        proto.response_bytes(answer.status, [*JSON_HEADERS, *shared], answer.body)

    async def _other(self, scope: Scope, proto: Any) -> None:
        match scope.path:
            case "/healthz":
                _json(proto, 200, {"alive": True})
            case "/readyz":
                status, report = await self._readiness.report()
                _json(proto, status, report)
            case "/v1/clients":
                _only_get(scope)
                _json(proto, 200, self._clients.report())
            case snippet.PATH:
                _only_get(scope)
                _script(proto, scope)
            case problems.PATH:
                # Also while no query service is up: that refusal has a code as well.
                _only_get(scope)
                proto.response_bytes(200, problems.HEADERS, problems.page())
            case "/metrics":
                self._clients.publish()
                proto.response_bytes(200, METRICS_HEADERS, health.metrics(self._run_folder, self._instance))
            case _:
                # A header whose value cannot be read would not be passed on, and the question be taken for `main`'s.
                if not is_page(scope.path):
                    tenant_of(scope)
                await self._forward(scope, proto)

    async def _forward(self, scope: Scope, proto: Any) -> None:
        declared, limits = _declared(scope), self._reader.limits
        if not scope.path.startswith(TABLES) or not _exceeds(declared, limits.max_body_bytes):
            with Holding(self._budget) as held:
                content = await self._reader.read(proto, declared, held)
                await self._forwarder.forward(scope, proto, content)
            return
        # One at a time, and not out of the budget of events: they would be refused for the sake of a table.
        if self._is_taking_a_table:
            detail = "another large table is on its way; send it again in a moment"
            raise Problem(503, "overloaded", detail, headers={"retry-after": "2"})
        self._is_taking_a_table = True
        try:
            with Holding(self._tables) as held:
                content = await self._reader.read(proto, declared, held, LIMITS_OF_TABLES)
                await self._forwarder.forward(scope, proto, content)
        finally:
            self._is_taking_a_table = False


def _exceeds(declared: str | None, limit: int) -> bool:
    """Whether a body may be larger: it says so, or says nothing."""
    return declared is None or (declared.isdecimal() and int(declared) > limit)


def _declared(scope: Scope) -> str | None:
    """The declared size of the body; a request that says nothing of one has none."""
    declared: str | None = scope.headers.get("content-length")
    if declared is None and scope.headers.get("transfer-encoding") is None:
        return "0"
    return declared


def _only_get(scope: Scope) -> None:
    if scope.method not in ("GET", "HEAD"):
        raise Problem(405, "wrong_method", f"{scope.method} {scope.path}; use GET", headers={"allow": "GET, HEAD"})


def _script(proto: Any, scope: Scope) -> None:
    script = snippet.snippet()
    if script.is_known(scope.headers.get("if-none-match")):
        proto.response_empty(304, script.headers)
    elif scope.method == "HEAD":
        proto.response_empty(200, script.headers)
    else:
        proto.response_bytes(200, script.headers, script.content)


def _json(proto: Any, status: int, content: Mapping[str, Any]) -> None:
    proto.response_bytes(status, JSON_HEADERS, msgspec.json.encode(content))
