"""Kept connections to query nodes. Each carries one request at a time; its answer can be read while it comes."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import httptools

from tallymark.collector.nodes import Address

MAX_IDLE = 32
MAX_HEADER_BYTES = 65_536
READ_BYTES = 65_536
# Above this, reading pauses until a client that reads slowly has taken half of it.
MAX_BUFFERED_BYTES = 2 * READ_BYTES
WITHOUT_BODY = (204, 304)


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer; `length` is None where only its end will tell."""

    status: int
    headers: list[tuple[str, str]]
    length: int | None
    has_body: bool


class Connection(asyncio.BufferedProtocol):
    """`await ask(…)` gives the head of the answer, `pieces()` its body; both raise OSError, EOFError or ValueError.

    The parser calls the `on_…` methods. It knows no request, so it waits for the body of an answer to HEAD: such an
    answer is over with its head, and the next one gets a parser of its own.
    """

    _transport: asyncio.Transport

    def __init__(self, node: Address, buffer: memoryview) -> None:
        """Bytes are read into `buffer`, which connections share: the parser copies them before the next one reads."""
        self.node = node
        self._buffer = buffer
        self.is_reused = False
        self._is_broken = False
        self._waiter: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._expect_nothing()

    def _expect_nothing(self) -> None:
        self._headers: list[tuple[str, str]] = []
        self._head: Head | None = None
        self._pieces: deque[bytes] = deque()
        self._failure: Exception | None = None
        self._buffered = self._header_bytes = 0
        self._is_begun = self._is_paused = self._is_chunked = self._is_kept = self._is_head = False
        self._is_complete = True

    async def ask(self, request: bytes, *, is_head: bool) -> Head:
        if self._is_broken:
            raise BrokenPipeError("the connection was closed before anything was sent")
        self._expect_nothing()
        self._is_complete, self._is_head = False, is_head
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        while self._head is None:
            await self._news()
        return self._head

    async def pieces(self) -> AsyncIterator[bytes]:
        while self._pieces or not self._is_complete:
            if self._pieces:
                yield self._taken()
            else:
                await self._news()

    async def content(self) -> bytes:
        """The whole body at once."""
        return b"".join([piece async for piece in self.pieces()])

    @property
    def is_reusable(self) -> bool:
        """Whether the next answer on it will be that to the next request: nothing is left of an earlier one."""
        is_read = self._is_complete and not self._pieces
        return is_read and self._is_kept and not self._is_broken and not self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    async def _news(self) -> None:
        if self._failure is not None:
            # A copy: the trace of one that is kept would hold on to the client's stream, which would not end.
            raise type(self._failure)(*self._failure.args)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _taken(self) -> bytes:
        piece = self._pieces.popleft()
        self._buffered -= len(piece)
        if self._is_paused and self._buffered <= MAX_BUFFERED_BYTES // 2 and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()
        return piece

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_complete:
            self._break()  # nobody asked, so it would be taken for the answer to the next request
            return
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(ValueError(f"not HTTP: {error}"))
        if self._head is None:
            self._header_bytes += nbytes
            self._check_size(self._header_bytes)
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        ends_by_closing = self._head is not None and self._head.length is None and not self._is_chunked
        if error is None and ends_by_closing:
            self._is_complete = True
        self._break(error or EOFError("the answer ended early"))
        del self._parser  # it refers to us, and the collector of cycles hardly runs here
        self._wake()

    def _check_size(self, header_bytes: int) -> None:
        if header_bytes > MAX_HEADER_BYTES:
            self._break(ValueError(f"its headers exceed {MAX_HEADER_BYTES:,} bytes"))

    def _break(self, failure: Exception | None = None) -> None:
        """An answer that was whole by then stays so; the connection is not used again."""
        self._is_broken = True
        if not self._is_complete:
            self._failure = self._failure or failure
        self._transport.close()

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._is_begun:
            self._break()
        self._is_begun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # else it is a trailer, or of another answer
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self._check_size(sum(len(name) + len(value) for name, value in self._headers))
        if self._head is not None or self._is_broken:
            return
        stated = dict(self._headers)
        length = stated.get("content-length")
        self._is_chunked = "transfer-encoding" in stated
        self._is_kept = self._parser.should_keep_alive()
        status = self._parser.get_status_code()
        if status < 200:  # nothing here asks for one, and the answer behind it would be taken for the next one
            self._break(ValueError(f"an interim answer, {status}"))
            return
        has_body = not self._is_head and status not in WITHOUT_BODY
        self._head = Head(status, self._headers, None if length is None else int(length), has_body)
        self._is_complete = not has_body

    def on_body(self, piece: bytes) -> None:
        if self._is_complete or self._is_broken:
            self._break()
            return
        self._pieces.append(piece)
        self._buffered += len(piece)
        if self._buffered > MAX_BUFFERED_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._is_complete = True


class Connections:
    """Those that wait for the next request, and new ones."""

    def __init__(self) -> None:
        self._idle: defaultdict[Address, list[Connection]] = defaultdict(list)
        # Read into a buffer of our own, half a megabyte costs a third less CPU than in objects that asyncio makes.
        # There is one for all, because with one each a thousand live streams would hold 64 MB.
        self._buffer = memoryview(bytearray(READ_BYTES))

    async def take(self, node: Address, *, within_s: float) -> Connection:
        """A kept connection if one still lives; raises OSError, of which TimeoutError is one."""
        idle = self._idle[node]
        while idle:
            connection = idle.pop()
            if connection.is_reusable:
                return connection
            connection.close()
        async with asyncio.timeout(within_s):
            _, made = await asyncio.get_running_loop().create_connection(lambda: Connection(node, self._buffer), *node)
        return made

    def put_back(self, connection: Connection) -> None:
        """For the next request if the answer was read to its end; else it is closed."""
        idle = self._idle[connection.node]
        if connection.is_reusable and len(idle) < MAX_IDLE:
            connection.is_reused = True
            idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
