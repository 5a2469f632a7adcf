"""Everything that is not the collector's own goes on to the query service: one public port, two processes."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Set
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from tallymark import telemetry
from tallymark.collector.nodes import Address, QueryNodes
from tallymark.collector.upstream import Connection, Connections, Head
from tallymark.http import APPLIED, Problem, Scope

# RFC 9110, 7.6.1: these concern one connection, not the message.
HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
# Of an answer, besides: granian states its own length, date and name.
DROPPED = HOP_BY_HOP | {"content-length", "date", "server"}
# What a caller says there is not passed on: it is said anew, or only ours to say.
OURS = {"content-length", "expect", APPLIED}
CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 60.0
# A node that hangs takes connections and says nothing: after this long another one is asked as well, if there is one.
FIRST_TRY_S = 3.0
# After the stop, an answer of a known length may take this long to be passed on whole.
LAST_ANSWER_S = 5.0
CHUNK_BYTES = 65_536
# RFC 3986: what may stand in a path as it is.
PATH_CHARACTERS = "/:@!$&'()*+,;=~-._"

Asked = dict[asyncio.Task[Head], Connection]

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LINE_END = re.compile(r"[\r\n\x00]")


class Forwarder:
    """Hands requests on over a few kept connections, to each query node in turn."""

    def __init__(self, nodes: QueryNodes, *, stop: asyncio.Event, answered: Callable[[], str] = lambda: "") -> None:
        """`answered` is what callers were told is in the counts, in the form of the header that says so."""
        self._nodes = nodes
        self._stop = stop
        self._answered = answered
        for outcome in ("answered", "away", "timeout"):
            telemetry.COLLECTOR_FORWARDED.labels(outcome)
        self._connections = Connections()

    def close(self) -> None:
        self._connections.close()

    async def get(self, path: str, *, within_s: float) -> tuple[int, bytes]:
        """Status and body of a small question of our own; raises OSError (TimeoutError is one) or EOFError."""
        request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        until = _now() + within_s
        connection, head = await self._exchange(request, "GET", until=until)
        async with self._in_time(connection, until):
            return head.status, await self._content(connection)

    async def forward(self, scope: Scope, proto: Any, body: bytes) -> None:
        """Ask the query service and pass its answer on as it comes; raises Problem when it is away."""
        request = _request(scope, body, self._answered())
        try:
            until = _now() + ANSWER_TIMEOUT_S
            connection, head = await self._exchange(request, scope.method, until=until)
            async with self._in_time(connection, until):
                content = await self._content(connection) if _is_small(head) else None
        except TimeoutError:
            telemetry.COLLECTOR_FORWARDED.labels("timeout").inc()
            raise Problem(504, "query_slow", f"the query service did not answer in {ANSWER_TIMEOUT_S:g} s") from None
        except (OSError, EOFError, ValueError) as error:
            telemetry.COLLECTOR_FORWARDED.labels("away").inc()
            if isinstance(error, ConnectionRefusedError):
                detail = "the query service is down; events are still accepted. Try again in a moment"
                raise Problem(503, "query_away", detail, headers={"retry-after": "1"}) from None
            raise Problem(502, "query_failed", f"the query service broke off: {error or 'no answer'}") from None
        telemetry.COLLECTOR_FORWARDED.labels("answered").inc()
        headers = [each for each in head.headers if each[0] not in DROPPED]
        if content is not None:
            proto.response_bytes(head.status, headers, content)
        else:
            await self._pass_on(connection, head.length, proto, status=head.status, headers=headers)

    async def _content(self, connection: Connection) -> bytes:
        """All of the body; a connection on which it was not read to its end is closed."""
        try:
            return await connection.content()
        finally:
            self._connections.put_back(connection)

    async def _pass_on(
        self, connection: Connection, length: int | None, proto: Any, *, status: int, headers: list[tuple[str, str]]
    ) -> None:
        """A long or endless answer, piece by piece, until it ends or the client leaves.

        When the collector stops, an endless one ends at once and one of a known length soon, whole if it can be.
        """
        # With the length stated, an answer that breaks off does not look whole.
        stated = [] if length is None else [("content-length", str(length))]
        transport = proto.response_stream(status, [*headers, *stated])
        left = asyncio.create_task(_left(proto))
        stopped = asyncio.create_task(self._stopped(0.0 if length is None else LAST_ANSWER_S))
        sending = asyncio.create_task(_send(connection.pieces(), transport))
        try:
            await asyncio.wait({left, stopped, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (left, stopped, sending):
                task.cancel()
            await asyncio.gather(left, stopped, sending, return_exceptions=True)
            self._connections.put_back(connection)

    async def _stopped(self, grace_s: float) -> None:
        await self._stop.wait()
        await asyncio.sleep(grace_s)

    async def _exchange(self, request: bytes, method: str, *, until: float) -> tuple[Connection, Head]:
        """Send the request and read the answer's head, over a kept connection if one still lives.

        A node that takes no connection is passed over; one that breaks off is, if the request may be sent again. Then
        also another is asked beside one that is slow, and the first to answer is heard. TimeoutError at `until`.
        """
        # A request that changes something is not sent again: it may have been done.
        again = method in ("GET", "HEAD")
        tried: set[Address] = set()
        asked: Asked = {}
        failure: BaseException | None = None
        try:
            while True:
                found = await self._ask_another(request, method, asked, tried)
                if not asked:
                    raise failure or ConnectionRefusedError("no query service takes connections")
                is_last = not found or not again or tried.issuperset(self._nodes.known())
                for task in await self._heard(asked, is_last=is_last, until=until):
                    connection = asked.pop(task)
                    failure = task.exception()
                    if failure is None:
                        self._nodes.answered(connection.node)
                        return connection, task.result()
                    self._broke_off(connection, tried)
                    if not _may_be_repeated(failure, connection, again=again):
                        raise failure
        finally:
            for task, connection in asked.items():
                task.cancel()
                connection.close()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _ask_another(self, request: bytes, method: str, asked: Asked, tried: set[Address]) -> bool:
        """Whether there was one that was not tried yet and took a connection."""
        try:
            connection = await self._connect(tried)
        except ConnectionRefusedError:
            return False
        tried.add(connection.node)
        asked[asyncio.create_task(connection.ask(request, is_head=method == "HEAD"))] = connection
        return True

    async def _heard(self, asked: Asked, *, is_last: bool, until: float) -> set[asyncio.Task[Head]]:
        """Those that answered or failed; none if it is time to ask another. TimeoutError if there is no other."""
        left_s = until - _now()
        patience_s = left_s if is_last else min(FIRST_TRY_S, left_s / 2)
        done, _ = await asyncio.wait(asked, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            for connection in asked.values():
                self._nodes.failed(connection.node)
            if is_last:
                raise TimeoutError
        return done

    def _broke_off(self, connection: Connection, tried: set[Address]) -> None:
        """Nodes close idle connections and restart: then a kept one is dead, a new one to the same node is not."""
        connection.close()
        if connection.is_reused:
            tried.discard(connection.node)
        else:
            self._nodes.failed(connection.node)

    @asynccontextmanager
    async def _in_time(self, connection: Connection, until: float) -> AsyncIterator[None]:
        """What is left of an answer; a node that does not finish it in time is taken for one that hangs."""
        try:
            async with asyncio.timeout(until - _now()):
                yield
        except TimeoutError:
            self._nodes.failed(connection.node)
            raise

    async def _connect(self, tried: Set[Address]) -> Connection:
        """A connection to the first node in turn that takes one, those that were tried apart."""
        refused = set(tried)
        # Twice: a node of this data folder may have come back at another port.
        for node in (node for _ in range(2) for node in self._nodes.in_turn()):
            if node in refused:
                continue
            try:
                return await self._connections.take(node, within_s=CONNECT_TIMEOUT_S)
            except OSError:
                refused.add(node)
                self._nodes.failed(node)
        raise ConnectionRefusedError("no query service takes connections")


def _may_be_repeated(failure: BaseException, connection: Connection, *, again: bool) -> bool:
    """Whether another node may be asked the same: nothing was sent, or it does no harm to ask twice."""
    if not isinstance(failure, OSError | EOFError):
        return False  # there was an answer, though none that can be read
    return again or (connection.is_reused and isinstance(failure, BrokenPipeError))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _request(scope: Scope, body: bytes, answered: str) -> bytes:
    """The request as it goes on; raises Problem for one that could be read as two."""
    lines = [f"{scope.method} {_target(scope)} HTTP/1.1"]
    if answered:
        lines.append(f"{APPLIED}: {answered}")
    for name, value in scope.headers.items():
        if name not in HOP_BY_HOP and name not in OURS:
            if _LINE_END.search(value):
                raise Problem(400, "bad_header", f"the header {name[:40]} contains a line break")
            lines.append(f"{name}: {value}")
    if body or scope.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8") + body


def _target(scope: Scope) -> str:
    """Path and query string as the client sent them. Granian has decoded the path, but not the query string."""
    if _CONTROL.search(scope.path) or not scope.path.startswith(("/", "*")):
        raise Problem(400, "bad_target", f"the path {scope.path[:80]!r} contains a control character, or no slash")
    if " " in scope.query_string or _CONTROL.search(scope.query_string):
        raise Problem(400, "bad_target", "the query string contains a space or a control character; encode it")
    return quote(scope.path, safe=PATH_CHARACTERS) + (f"?{scope.query_string}" if scope.query_string else "")


def _is_small(head: Head) -> bool:
    """Whether it is passed on in one piece."""
    return head.length <= CHUNK_BYTES if head.length is not None else not head.has_body


async def _left(proto: Any) -> None:
    """Returns when the client is gone. Granian's awaitable is no asyncio future: waiting for it needs a task."""
    await proto.client_disconnect()


async def _send(pieces: AsyncIterator[bytes], transport: Any) -> None:
    async for piece in pieces:
        await transport.send_bytes(piece)
