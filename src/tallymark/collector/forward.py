"""Everything that is not the collector's own goes on to the query service: one public port, two processes."""

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tallymark import telemetry
from tallymark.collector.nodes import Address, QueryNodes
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
# What a caller says there is not passed on: it is said anew, or only ours to say.
OURS = {"content-length", "expect", APPLIED}
MAX_IDLE = 32
CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 60.0
# A node that hangs takes connections and says nothing: after this long another one is asked as well, if there is one.
FIRST_TRY_S = 3.0
# After the stop, an answer of a known length may take this long to be passed on whole.
LAST_ANSWER_S = 5.0
MAX_HEADER_BYTES = 65_536
CHUNK_BYTES = 65_536
# RFC 3986: what may stand in a path as it is.
PATH_CHARACTERS = "/:@!$&'()*+,;=~-._"

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LINE_END = re.compile(r"[\r\n\x00]")


@dataclass(slots=True)
class _Connection:
    node: Address
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: bool = False

    @property
    def reusable(self) -> bool:
        """Whether the next answer on it will be that to the next request: nothing is left of an earlier one."""
        left = self.reader._buffer  # type: ignore[attr-defined]
        return not left and not self.reader.at_eof() and not self.writer.is_closing()

    def close(self) -> None:
        self.writer.close()


@dataclass(slots=True)
class _Head:
    status: int
    headers: list[tuple[str, str]]
    length: int | None
    chunked: bool
    keep: bool


class Forwarder:
    """Hands requests on over a few kept connections, to each query node in turn."""

    def __init__(self, nodes: QueryNodes, *, stop: asyncio.Event, answered: Callable[[], str] = lambda: "") -> None:
        """`answered` is what callers were told is in the counts, in the form of the header that says so."""
        self._nodes = nodes
        self._stop = stop
        self._answered = answered
        for outcome in ("answered", "away", "timeout"):
            telemetry.COLLECTOR_FORWARDED.labels(outcome)
        self._idle: defaultdict[Address, list[_Connection]] = defaultdict(list)

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def get(self, path: str, *, within_s: float) -> tuple[int, bytes]:
        """Status and body of a small question of our own; raises OSError (TimeoutError is one) or EOFError."""
        request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        until = _now() + within_s
        connection, head = await self._exchange(request, again=True, until=until)
        async with self._in_time(connection, until):
            return head.status, await self._whole_content(connection, head, "GET")

    async def forward(self, scope: Scope, proto: Any, body: bytes) -> None:
        """Ask the query service and pass its answer on as it comes; raises Problem when it is away."""
        request = _request(scope, body, self._answered())
        try:
            until = _now() + ANSWER_TIMEOUT_S
            # A request that changes something is not sent again: it may have been done.
            connection, head = await self._exchange(request, again=scope.method in ("GET", "HEAD"), until=until)
            async with self._in_time(connection, until):
                content = await self._small_content(connection, head, scope.method)
        except TimeoutError:
            telemetry.COLLECTOR_FORWARDED.labels("timeout").inc()
            raise Problem(504, "query_slow", f"the query service did not answer in {ANSWER_TIMEOUT_S:g} s") from None
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            telemetry.COLLECTOR_FORWARDED.labels("away").inc()
            if isinstance(error, ConnectionRefusedError):
                detail = "the query service is not up; events are still taken. Try again in a moment"
                raise Problem(503, "query_away", detail, headers={"retry-after": "1"}) from None
            raise Problem(502, "query_failed", f"the query service broke off: {error or 'no answer'}") from None
        telemetry.COLLECTOR_FORWARDED.labels("answered").inc()
        if content is not None:
            proto.response_bytes(head.status, head.headers, content)
        else:
            await self._pass_on(connection, head, scope, proto)

    async def _small_content(self, connection: _Connection, head: _Head, method: str) -> bytes | None:
        """The whole body of an answer of known, small size, None for others."""
        if head.length is None and method != "HEAD" and head.status not in (204, 304):
            return None
        if head.length is not None and head.length > CHUNK_BYTES:
            return None
        return await self._whole_content(connection, head, method)

    async def _whole_content(self, connection: _Connection, head: _Head, method: str) -> bytes:
        """All of the body; a connection on which it was not read to its end is closed."""
        try:
            content = b"".join([piece async for piece in _content(connection, head, method)])
        except BaseException:
            connection.close()
            raise
        self._put_back(connection, head)
        return content

    async def _pass_on(self, connection: _Connection, head: _Head, scope: Scope, proto: Any) -> None:
        """A long or endless answer, piece by piece, until it ends or the client leaves.

        When the collector stops, an endless one ends at once and one of a known length soon, whole if it can be.
        """
        # With the length stated, an answer that breaks off does not look whole.
        length = [] if head.length is None else [("content-length", str(head.length))]
        transport = proto.response_stream(head.status, [*head.headers, *length])
        left = asyncio.create_task(_left(proto))
        stopped = asyncio.create_task(self._stopped(0.0 if head.length is None else LAST_ANSWER_S))
        sending = asyncio.create_task(_send(_content(connection, head, scope.method), transport))
        try:
            await asyncio.wait({left, stopped, sending}, return_when=asyncio.FIRST_COMPLETED)
            complete = sending.done() and sending.exception() is None
        finally:
            for task in (left, stopped, sending):
                task.cancel()
            await asyncio.gather(left, stopped, sending, return_exceptions=True)
        if complete:
            self._put_back(connection, head)
        else:
            connection.close()

    async def _stopped(self, grace_s: float) -> None:
        await self._stop.wait()
        await asyncio.sleep(grace_s)

    async def _exchange(self, request: bytes, *, again: bool, until: float) -> tuple[_Connection, _Head]:
        """Send the request and read the answer's head, over a kept connection if one still lives.

        A node that takes no connection is passed over; one that breaks off is, if the request may be sent `again`. Then
        also another is asked beside one that is slow, and the first to answer is heard. TimeoutError at `until`.
        """
        tried: set[Address] = set()
        asked: dict[asyncio.Task[_Head], _Connection] = {}
        failure: OSError | EOFError | None = None
        try:
            while True:
                alone = False
                try:
                    connection = await self._connect(tried)
                except ConnectionRefusedError as error:
                    if not asked:
                        raise failure or error from None
                    alone = True
                else:
                    tried.add(connection.node)
                    asked[asyncio.create_task(_ask(connection, request))] = connection
                alone = alone or not again or tried.issuperset(self._nodes.known())
                left_s = until - _now()
                patience_s = left_s if alone else min(FIRST_TRY_S, left_s / 2)
                done, _ = await asyncio.wait(asked, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    for connection in asked.values():
                        self._nodes.failed(connection.node)
                    if alone:
                        raise TimeoutError
                for task in done:
                    connection = asked[task]
                    try:
                        head = task.result()
                    except (OSError, EOFError) as error:
                        failure = error
                        self._broke_off(connection, tried)
                        if not (again or (connection.used and isinstance(error, BrokenPipeError))):
                            raise
                        del asked[task]
                        continue
                    self._nodes.answered(connection.node)
                    del asked[task]
                    return connection, head
        finally:
            for task, connection in asked.items():
                task.cancel()
                connection.close()
            await asyncio.gather(*asked, return_exceptions=True)

    def _broke_off(self, connection: _Connection, tried: set[Address]) -> None:
        """Nodes close idle connections and restart: then a kept one is dead, a new one to the same node is not."""
        connection.close()
        if connection.used:
            tried.discard(connection.node)
        else:
            self._nodes.failed(connection.node)

    @asynccontextmanager
    async def _in_time(self, connection: _Connection, until: float) -> AsyncIterator[None]:
        """What is left of an answer; a node that does not finish it in time is taken for one that hangs."""
        try:
            async with asyncio.timeout(until - _now()):
                yield
        except TimeoutError:
            self._nodes.failed(connection.node)
            raise

    async def _connect(self, tried: Set[Address]) -> _Connection:
        """A connection to the first node in turn that takes one, those that were tried apart."""
        refused = set(tried)
        # Twice: a node of this data folder may have come back at another port.
        for node in (node for _ in range(2) for node in self._nodes.in_turn()):
            if node in refused:
                continue
            idle = self._idle[node]
            while idle:
                connection = idle.pop()
                if connection.reusable:
                    return connection
                connection.close()
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    reader, writer = await asyncio.open_connection(*node, limit=MAX_HEADER_BYTES)
                return _Connection(node, reader, writer)
            except (OSError, TimeoutError):
                refused.add(node)
                self._nodes.failed(node)
        raise ConnectionRefusedError("no query service takes connections")

    def _put_back(self, connection: _Connection, head: _Head) -> None:
        idle = self._idle[connection.node]
        if head.keep and connection.reusable and len(idle) < MAX_IDLE:
            connection.used = True
            idle.append(connection)
        else:
            connection.close()


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


async def _ask(connection: _Connection, request: bytes) -> _Head:
    connection.writer.write(request)
    await connection.writer.drain()
    return await _read_head(connection.reader)


async def _read_head(reader: asyncio.StreamReader) -> _Head:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text[:-4].split("\r\n")
    version, status, *_ = first.split(" ", 2)
    headers, length, chunked = [], None, False
    keep = version == "HTTP/1.1"
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip()
        if name == "content-length":
            length = int(value)
        elif name == "transfer-encoding":
            chunked = value.lower() == "chunked"
        elif name == "connection":
            keep = keep and value.lower() != "close"
        # Granian states its own length, date and name.
        if name not in HOP_BY_HOP and name not in ("content-length", "date", "server"):
            headers.append((name, value))
    if length is None and not chunked and int(status) not in (204, 304):
        keep = False
    return _Head(int(status), headers, length, chunked, keep)


async def _content(connection: _Connection, head: _Head, method: str) -> AsyncIterator[bytes]:
    """The answer's body in pieces; raises EOFError if it breaks off."""
    reader = connection.reader
    if method == "HEAD" or head.status in (204, 304):
        return
    if head.chunked:
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return
    left = head.length
    while left is None or left > 0:
        piece = await reader.read(CHUNK_BYTES if left is None else min(left, CHUNK_BYTES))
        if not piece:
            if left is None:
                return
            raise EOFError("the answer broke off")
        left = None if left is None else left - len(piece)
        yield piece


async def _left(proto: Any) -> None:
    """Returns when the client is gone. Granian's awaitable is no asyncio future: waiting for it needs a task."""
    await proto.client_disconnect()


async def _send(pieces: AsyncIterator[bytes], transport: Any) -> None:
    async for piece in pieces:
        await transport.send_bytes(piece)
