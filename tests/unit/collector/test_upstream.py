"""A kept connection: what counts as an answer, where it ends, and whether the next request may follow."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from tallymark.collector import upstream
from tallymark.collector.upstream import Connection, Connections

DEADLINE_S = 20.0
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Use = Callable[[Connections, tuple[str, int]], Awaitable[None]]


def play(serve: Serve, use: Use) -> None:
    """Let `use` ask a server that does what `serve` says, on the loop that a collector has."""

    async def both() -> None:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            finally:
                writer.close()

        async with asyncio.timeout(DEADLINE_S), await asyncio.start_server(served, "127.0.0.1", 0) as server:
            connections = Connections()
            await use(connections, server.sockets[0].getsockname())
            connections.close()

    uvloop.run(both())


def saying(*answers: bytes) -> Serve:
    """A server that gives these answers, one a request, and then hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        await writer.drain()

    return serve


def sized(body: bytes, *, stated: int | None = None) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body) if stated is None else stated, body)


async def asked(connection: Connection, method: str = "GET") -> bytes:
    await connection.ask(f"{method} / HTTP/1.1\r\nhost: x\r\n\r\n".encode(), is_head=method == "HEAD")
    return await connection.content()


async def taken(connections: Connections, node: tuple[str, int]) -> Connection:
    return await connections.take(node, within_s=DEADLINE_S)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\ntrailer: t\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "body", "is_kept"),
    [
        (sized(b"abcde"), b"abcde", True),
        (sized(b""), b"", True),
        (CHUNKED, b"abcde", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", b"", True),
        (sized(b"abcde").replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), b"abcde", False),
        (sized(b"abcde").replace(b"1.1", b"1.0"), b"abcde", False),
        (b"HTTP/1.1 200 OK\r\n\r\nabcde", b"abcde", False),  # its end is that of the connection
        (sized(b"abcde") + b"x", b"abcde", False),
        (sized(b"abcde") + sized(b"another's"), b"abcde", False),
        (CHUNKED + CHUNKED, b"abcde", False),
        (sized(b"abcde") + b"HTTP/1.1 304 Not Modified\r\n\r\n", b"abcde", False),
    ],
)
def test_where_an_answer_ends_and_whether_another_may_follow(answer: bytes, body: bytes, is_kept: bool) -> None:
    async def use(connections: Connections, node: tuple[str, int]) -> None:
        connection = await taken(connections, node)
        assert await asked(connection) == body
        connections.put_back(connection)
        assert (await taken(connections, node) is connection) == is_kept

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if answer != b"HTTP/1.1 200 OK\r\n\r\nabcde":
            await reader.read()

    play(serve, use)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_an_answer_that_has_no_body_says_so_in_its_head(status: bytes) -> None:
    async def use(connections: Connections, node: tuple[str, int]) -> None:
        head = await (await taken(connections, node)).ask(b"GET / HTTP/1.1\r\n\r\n", is_head=False)
        assert (head.status, head.length, head.has_body) == (int(status[:3]), None, False)

    play(saying(b"HTTP/1.1 %b\r\n\r\n" % status), use)


def test_trailers_are_not_taken_for_headers() -> None:
    async def use(connections: Connections, node: tuple[str, int]) -> None:
        connection = await taken(connections, node)
        head = await connection.ask(b"GET / HTTP/1.1\r\n\r\n", is_head=False)
        assert await connection.content() == b"abcde"
        assert head.headers == [("transfer-encoding", "chunked")]

    play(saying(CHUNKED), use)


def test_a_connection_is_not_used_again_before_its_answer_was_read() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sized(b"abcde"))
        await reader.read()

    async def use(connections: Connections, node: tuple[str, int]) -> None:
        connection = await taken(connections, node)
        await connection.ask(b"GET / HTTP/1.1\r\n\r\n", is_head=False)
        assert not connection.is_reusable
        assert await connection.content() == b"abcde"
        assert connection.is_reusable

    play(serve, use)


def test_a_node_that_says_something_unasked_is_hung_up_on() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sized(b"mine"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sized(b"mine, too") + sized(b"another's"))
        assert await reader.read() == b""
        ended.set()

    async def use(connections: Connections, node: tuple[str, int]) -> None:
        connection = await taken(connections, node)
        assert await asked(connection) == b"mine"
        assert await asked(connection) == b"mine, too"
        await ended.wait()

    play(serve, use)


def test_an_answer_to_head_is_over_with_its_headers_and_the_next_is_read_as_usual() -> None:
    async def use(connections: Connections, node: tuple[str, int]) -> None:
        connection = await taken(connections, node)
        head = await connection.ask(b"HEAD / HTTP/1.1\r\n\r\n", is_head=True)
        assert (head.length, head.has_body, await connection.content()) == (100_000, False, b"")
        connections.put_back(connection)
        assert await taken(connections, node) is connection
        assert await asked(connection) == b"mine"

    play(saying(sized(b"", stated=100_000), sized(b"mine")), use)


@pytest.mark.parametrize(
    ("answer", "failure", "said"),
    [
        (b"", EOFError, "ended early"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", EOFError, "ended early"),
        (sized(b"half", stated=8), EOFError, "ended early"),
        (CHUNKED[:-20], EOFError, "ended early"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ValueError, "not HTTP"),
        (CHUNKED.replace(b"2\r\nde", b"zz\r\nde"), ValueError, "not HTTP"),
        (sized(b"abc").replace(b"\r\n\r\n", b"\r\ncontent-length: 4\r\n\r\n"), ValueError, "not HTTP"),
        (sized(b"abc").replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n"), ValueError, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", ValueError, "65,536"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, ValueError, "65,536"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(answer: bytes, failure: type[Exception], said: str) -> None:
    async def use(connections: Connections, node: tuple[str, int]) -> None:
        connection = await taken(connections, node)
        with pytest.raises(failure, match=said):
            await asked(connection)
        connections.put_back(connection)
        assert await taken(connections, node) is not connection

    play(saying(answer), use)


def test_a_kept_connection_that_is_closed_meanwhile_is_not_used_and_what_is_sent_on_it_was_not_sent() -> None:
    async def use(connections: Connections, node: tuple[str, int]) -> None:
        connection = await taken(connections, node)
        assert await asked(connection) == b"once"
        connections.put_back(connection)
        while connection.is_reusable:
            await asyncio.sleep(0.01)
        with pytest.raises(BrokenPipeError):
            await asked(connection)
        assert await taken(connections, node) is not connection

    play(saying(sized(b"once")), use)


def test_one_who_reads_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "MAX_BUFFERED_BYTES", 1_000_000)
    size = 64_000_000
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while written < size:
            writer.write(b"x" * 1_000_000)
            await writer.drain()
            written += 1_000_000

    async def use(connections: Connections, node: tuple[str, int]) -> None:
        connection = await taken(connections, node)
        await connection.ask(b"GET / HTTP/1.1\r\n\r\n", is_head=False)
        before = -1
        while before != written:  # until the server can write no more
            before = written
            await asyncio.sleep(0.2)
        assert written < size / 2
        assert sum([len(piece) async for piece in connection.pieces()]) == size
        assert connection.is_reusable

    play(serve, use)


def test_answers_that_come_at_the_same_time_on_several_connections_do_not_mix() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        letter = (await reader.readuntil(b"\r\n\r\n")).split()[1][1:]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        for _ in range(100):
            writer.write(letter * 10_000)
            await writer.drain()

    async def use(connections: Connections, node: tuple[str, int]) -> None:
        async def body(letter: str) -> bytes:
            connection = await taken(connections, node)
            await connection.ask(f"GET /{letter} HTTP/1.1\r\n\r\n".encode(), is_head=False)
            return await connection.content()

        letters = "abcdefgh"
        for letter, answer in zip(letters, await asyncio.gather(*map(body, letters)), strict=True):
            assert answer == letter.encode() * 1_000_000

    play(serve, use)
