"""What the HTTP services share: the server, who may call it, and the one shape of errors (RFC 9457)."""

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from tallymark.problems import reference

JSON_HEADERS = [("content-type", "application/json")]
PROBLEM_HEADERS = [("content-type", "application/problem+json")]
CHANGES_NOTHING = ("GET", "HEAD", "OPTIONS")
# From a collector to a query node: what `?wait=applied` has answered for, so that no answer from before is given. A
# collector does not pass on what callers say there; at a query node it can only make an answer be computed anew.
APPLIED = "tallymark-applied"
MOST_TABLE_BYTES = 32_000_000
"""of the body of a table; other bodies have smaller limits"""

_POSITIONS = re.compile(r"[0-9]{1,9}:[0-9]{1,18}(,[0-9]{1,9}:[0-9]{1,18})*")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d*)?", re.IGNORECASE)


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
                "type": reference(self.code),
                "title": self.code.replace("_", " "),
                "status": self.status,
                "code": self.code,
                "detail": self.detail,
                **self.extra,
            }
        )


class Callers:
    """Who may call, as long as there are no API keys: whoever is on this machine, but no foreign page in its browser.

    A page can make its own name lead to 127.0.0.1 (DNS rebinding) and then reads our answers as its own: so the name it
    asks for must be ours. And browsers send simple requests across origins without asking first: so the origin of what
    changes something must be ours, or listed.
    """

    def __init__(self, *, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = {host.lower() for host in hosts}
        self._origins = set(origins)

    def check(self, scope: Scope) -> None:
        """Raises the Problem that a foreign caller is answered with."""
        host: str | None = scope.headers.get("host")
        if host is not None and not self._is_ours(host):
            raise Problem(
                421,
                "wrong_host",
                f"{host[:100]!r} is not a name of this service; use a loopback one, or list it in collector.hosts",
            )
        origin: str | None = scope.headers.get("origin")
        if origin is None or scope.method in CHANGES_NOTHING or self._origins & {"*", origin}:
            return
        if origin.partition("://")[2] != host:
            raise Problem(
                403,
                "foreign_origin",
                f"pages from {origin[:100]!r} may not send requests here; list the origin in collector.cors_origins",
            )

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        name = found[1].strip("[]").lower() if found else ""
        return is_loopback(name) or name in self._hosts


def encode_positions(positions: Mapping[int, int]) -> str:
    """partition -> offset as the text of a header."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def decode_positions(text: str) -> dict[int, int] | None:
    """What `encode_positions` was given; None if the text is not from there."""
    if not _POSITIONS.fullmatch(text):
        return None
    return {int(partition): int(offset) for partition, _, offset in (each.partition(":") for each in text.split(","))}


def is_loopback(host: str) -> bool:
    """Whether this name or address leads to this machine and nowhere else."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
    with socket.create_server((host, 0), family=family(host)) as probe:
        return int(probe.getsockname()[1])


def family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
