"""The RSGI application: finds the route, answers in a thread, and gives every refusal one shape."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tallymark import telemetry
from tallymark.events.tenants import MAIN
from tallymark.http import App, Callers, Problem, Scope
from tallymark.query import streams
from tallymark.query.parameters import read_pairs
from tallymark.query.response import NOT_STORED, Response
from tallymark.query.retrying import MOST_TRIES
from tallymark.query.routes import Make, Open, Request, Route, Routes
from tallymark.query.sources import Sources
from tallymark.query.streams import Feed
from tallymark.store.protocol import SnapshotOutdated, StoreError, StoreUnreachable
from tallymark.store.sqlite.failures import FileAway
from tallymark.tenants import is_page, tenant_of

THREADS = 4
MOST_WAITING = 256
SAFE = ("x-content-type-options", "nosniff")

logger = logging.getLogger(__name__)


class Dispatcher:
    """Takes requests in the event loop and lets a few threads answer them."""

    def __init__(self, sources: Sources, routes: Routes) -> None:
        self.routes = routes
        self._sources = sources
        allowed = sources.settings.collector
        self._callers = Callers(hosts=allowed.hosts, origins=allowed.cors_origins)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="answer")
        self._waiting = 0
        self._feeds: dict[str, Feed[Any]] = {}
        self._is_ending = False

    async def app(self, scope: Scope, proto: Any) -> None:
        """One request."""
        started = time.perf_counter()
        label = "none"
        try:
            self._callers.check(scope)
            route, arguments = self.routes.find(scope.method, scope.path)
            label = route.path
            request = await self._request(scope, proto, route, arguments)
            if route.answer is None:
                assert route.opens is not None
                await self._stream(route.opens, request, proto)
                return
            answer = await self._answered(route.answer, request)
        except Exception as error:  # noqa: BLE001
            problem = _problem(error, scope)
            answer = Response(problem.status, [*problem.headers, NOT_STORED], problem.body())
        took_s = time.perf_counter() - started
        timing = ("server-timing", f"total;dur={took_s * 1000:.3f}")
        proto.response_bytes(answer.status, [*answer.headers, timing, SAFE], answer.body)
        telemetry.QUERY_SECONDS.labels(label).observe(took_s)
        telemetry.QUERY_ANSWERS.labels(label, str(answer.status)).inc()

    @property
    def listeners(self) -> int:
        """To all feeds."""
        return sum(feed.listeners for feed in self._feeds.values())

    def end_streams(self) -> None:
        """Call it before the server stops: it waits for open ones."""
        self._is_ending = True
        for feed in self._feeds.values():
            feed.close()

    def close(self) -> None:
        """Finish what is being answered; call it after the server has stopped."""
        self._pool.shutdown()

    async def _request(self, scope: Scope, proto: Any, route: Route, arguments: tuple[str, ...]) -> Request:
        return Request(
            scope.method,
            scope.path,
            read_pairs(scope.query_string),
            await _body(proto, route.most_body_bytes) if route.body else b"",
            dict(zip(route.names, arguments, strict=True)),
            scope.headers.get,
            MAIN if is_page(scope.path) else tenant_of(scope),
        )

    async def _answered(self, make: Make, request: Request) -> Response:
        if self._waiting >= MOST_WAITING:
            detail = f"{self._waiting} questions are waiting (at most {MOST_WAITING}); ask again in a second"
            raise Problem(503, "overloaded", detail, headers={"retry-after": "1"})
        self._waiting += 1
        try:
            answer: Response | Future[Response] = await self._in_thread(lambda: make(request))
            # Another thread computes it; this one is free meanwhile.
            return await asyncio.wrap_future(answer) if isinstance(answer, Future) else answer
        finally:
            self._waiting -= 1

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _stream(self, opens: Open, request: Request, proto: Any) -> None:
        opening = await self._in_thread(lambda: opens(request))
        source = opening.source
        if self._is_ending:
            raise Problem(503, "stopping", "the service is stopping", headers={"retry-after": "1"})
        feed = self._feeds.setdefault(source.name, Feed(source, self._in_thread))
        with feed.listen(opening.topic) as listener:
            telemetry.QUERY_LISTENERS.set(self.listeners)
            headers = [
                ("content-type", "text/event-stream; charset=utf-8"),
                NOT_STORED,
                ("x-accel-buffering", "no"),
                SAFE,
            ]
            transport = proto.response_stream(200, headers)
            gone = asyncio.ensure_future(proto.client_disconnect())
            try:
                await streams.stream(transport, listener, hello=opening.hello, gone=gone)
            except RuntimeError:
                # granian: the connection is closed
                logger.debug("a listener to %s of %s left", source.name, request.tenant)
            finally:
                gone.cancel()
        telemetry.QUERY_LISTENERS.set(self.listeners)


def make_app(sources: Sources, routes: Routes) -> tuple[Dispatcher, App]:
    dispatcher = Dispatcher(sources, routes)

    async def app(scope: Scope, proto: Any) -> None:
        await dispatcher.app(scope, proto)

    return dispatcher, app


async def _body(proto: Any, most_bytes: int) -> bytes:
    """The body, read only until it exceeds the limit: a longer one is refused anyway."""
    body = bytearray()
    async for chunk in proto:
        body += chunk
        if len(body) > most_bytes:
            break
    return bytes(body)


def _problem(error: Exception, scope: Scope) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, StoreUnreachable):
        logger.warning("%s %s: %s", scope.method, scope.path, error)
        return Problem(503, "store_unreachable", f"the store does not answer: {error}", headers={"retry-after": "1"})
    if isinstance(error, SnapshotOutdated):
        detail = f"the store moved on {MOST_TRIES} times while this was being answered: {error}; ask again, or for less"
        return Problem(503, "busy", detail, headers={"retry-after": "1"})
    if isinstance(error, StoreError):
        return Problem(400, "refused", str(error))
    if isinstance(error, FileAway):
        logger.warning("%s %s: %s", scope.method, scope.path, error)
        return Problem(503, "store_away", f"the store does not answer: {error}", headers={"retry-after": "1"})
    logger.exception("%s %s?%s", scope.method, scope.path, scope.query_string)
    return Problem(
        500, "internal", "this is a bug in Tallymark; please report it with the log file of the query service"
    )
