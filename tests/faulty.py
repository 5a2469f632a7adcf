"""A proxy before a real collector that fails on demand: late answers, 503, answers lost after the work was done."""

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Self

HEAD_END = b"\r\n\r\n"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"

Fault = Callable[[random.Random], str]


def nothing(chance: random.Random) -> str:
    return "pass"


def half_busy(chance: random.Random) -> str:
    return chance.choice(["pass", "busy"])


def late(chance: random.Random) -> str:
    return chance.choice(["pass", "late"])


def answers_lost(chance: random.Random) -> str:
    """The worst for a client: the events are taken, and nobody says so."""
    return chance.choice(["pass", "lose"])


def hanging(chance: random.Random) -> str:
    return "hang"


class FaultyProxy:
    """Forwards HTTP/1.1 requests with a declared length; `fault` decides what becomes of each."""

    def __init__(self, port: int, target: int, fault: Fault = nothing, *, late_s: float = 0.4, seed: int = 1) -> None:
        self.port, self.fault, self.taken = port, fault, 0
        self._target, self._late_s, self._chance = target, late_s, random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def listen(self) -> None:
        self._do(self._listen())

    def drop(self) -> None:
        """The port is closed and every connection torn."""
        self._do(self._drop())

    def _do(self, work: "asyncio.coroutines.Coroutine[None, None, None]") -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _drop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for each in list(self._open):
            each.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                request = await _message(reader)
                fault = self.fault(self._chance)
                self.taken += 1
                if fault == "hang":
                    await asyncio.sleep(3600)
                if fault == "busy":
                    writer.write(BUSY)
                    continue
                answer = await self._forward(request)
                if fault == "lose":
                    return
                if fault == "late":
                    await asyncio.sleep(self._late_s)
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self._open.discard(writer)
            writer.close()

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            writer.write(request)
            await writer.drain()
            return await _message(reader)
        finally:
            writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(HEAD_END)
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    return head + await reader.readexactly(int(fields.get(b"content-length", b"0")))
