"""Everything that is not the collector's own goes on to the query service: one public port, two processes."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallymark import telemetry
from tallymark.http import Problem, Scope

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
MAX_IDLE = 32
CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 60.0
MAX_HEADER_BYTES = 65_536
CHUNK_BYTES = 65_536


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: bool = False

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
    """Hands requests on over a few kept connections; the address is in the query service's ready file."""

    def __init__(self, place: Path, *, stop: asyncio.Event) -> None:
        self._place = place
        self._stop = stop
        self._idle: list[_Connection] = []
        self._address: tuple[str, int] | None = None

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a small question of our own; raises OSError or EOFError."""
        request = f"GET {path} HTTP/1.1\r\nhost: query\r\n\r\n".encode()
        connection, head = await self._exchange(request, again=True)
        content = b"".join([piece async for piece in _content(connection, head, "GET")])
        self._put_back(connection, head)
        return head.status, content

    async def forward(self, scope: Scope, proto: Any, body: bytes) -> None:
        """Ask the query service and pass its answer on as it comes; raises Problem when it is away."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                # A request that changes something is not sent again: it may have been done.
                connection, head = await self._exchange(_request(scope, body), again=scope.method in ("GET", "HEAD"))
                content = await self._small_content(connection, head, scope.method)
        except TimeoutError:
            telemetry.COLLECTOR_FORWARDED.labels("timeout").inc()
            raise Problem(504, "query_slow", f"the query service did not answer in {ANSWER_TIMEOUT_S:g} s") from None
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            telemetry.COLLECTOR_FORWARDED.labels("away").inc()
            if isinstance(error, FileNotFoundError | ConnectionRefusedError):
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
        try:
            content = b"".join([piece async for piece in _content(connection, head, method)])
        except BaseException:
            connection.close()
            raise
        self._put_back(connection, head)
        return content

    async def _pass_on(self, connection: _Connection, head: _Head, scope: Scope, proto: Any) -> None:
        """A long or endless answer, piece by piece, until it ends, the client leaves or the collector stops."""
        # With the length stated, an answer that breaks off does not look whole.
        length = [] if head.length is None else [("content-length", str(head.length))]
        transport = proto.response_stream(head.status, [*head.headers, *length])
        left = asyncio.create_task(_left(proto))
        stopped = asyncio.create_task(self._stop.wait())
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

    async def _exchange(self, request: bytes, *, again: bool) -> tuple[_Connection, _Head]:
        """Send the request and read the answer's head, over a kept connection if one still lives."""
        while True:
            connection = await self._connect()
            try:
                connection.writer.write(request)
                await connection.writer.drain()
                return connection, await _read_head(connection.reader)
            except (OSError, EOFError) as error:
                connection.close()
                # The query service closes idle connections and restarts: then the kept one is dead, a new one is not.
                if not connection.used or not (again or isinstance(error, BrokenPipeError)):
                    raise
            except BaseException:
                connection.close()
                raise

    async def _connect(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            connection.close()
        for attempt in (1, 2):
            if self._address is None:
                self._address = _read_address(self._place)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    reader, writer = await asyncio.open_connection(*self._address, limit=MAX_HEADER_BYTES)
                return _Connection(reader, writer)
            except (OSError, TimeoutError):
                # It may have come back at another port.
                self._address = None
                if attempt == 2:
                    raise ConnectionRefusedError("the query service does not take connections") from None
        raise AssertionError("unreachable")

    def _put_back(self, connection: _Connection, head: _Head) -> None:
        if head.keep and len(self._idle) < MAX_IDLE:
            connection.used = True
            self._idle.append(connection)
        else:
            connection.close()


def _read_address(place: Path) -> tuple[str, int]:
    address = json.loads(place.read_bytes())["address"]
    host, _, port = str(address).rpartition(":")
    return host, int(port)


def _request(scope: Scope, body: bytes) -> bytes:
    target = scope.path + (f"?{scope.query_string}" if scope.query_string else "")
    lines = [f"{scope.method} {target} HTTP/1.1"]
    for name, value in scope.headers.items():
        if name not in HOP_BY_HOP and name not in ("content-length", "expect"):
            lines.append(f"{name}: {value}")
    if body or scope.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {len(body)}")
    # Granian has parsed and checked the request; a line break can no longer be in it.
    return "\r\n".join([*lines, "", ""]).encode("utf-8") + body


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
