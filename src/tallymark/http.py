"""What the HTTP services share: the server, and the one shape of errors (RFC 9457)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

JSON_HEADERS = [("content-type", "application/json")]
PROBLEM_HEADERS = [("content-type", "application/problem+json")]


class Scope(Protocol):
    """The part of granian's RSGI scope that is used."""

    method: str
    path: str
    query_string: str
    headers: Any


App = Callable[[Scope, Any], Awaitable[None]]


class Problem(Exception):
    """A refusal as users see it: status, a stable code, what is wrong and the way out."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **extra: Any
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.extra = status, code, detail, extra
        self.headers = [*PROBLEM_HEADERS, *(headers or {}).items()]

    def body(self) -> bytes:
        return msgspec.json.encode(
            {
                "type": f"https://tallymark.dev/problems/{self.code}",
                "title": self.code.replace("_", " "),
                "status": self.status,
                "code": self.code,
                "detail": self.detail,
                **self.extra,
            }
        )


async def serve(
    app: App,
    *,
    host: str,
    port: int,
    stop: asyncio.Event,
    header_timeout_s: float = 5.0,
    max_connections: int = 16_384,
) -> None:
    """Serve an RSGI application in this process' event loop until `stop` is set."""
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.log import LogLevels
    from granian.server.embed import Server

    logging.getLogger("_granian").setLevel(logging.ERROR)
    server = Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=4096,
        backpressure=max_connections,
        http1_settings=HTTP1Settings(header_read_timeout=int(header_timeout_s * 1000)),
        log_level=LogLevels.error,
    )
    serving = asyncio.create_task(server.serve())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        server.stop()
    stopped.cancel()
    await serving


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody uses at this moment."""
    import socket

    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
