"""A server that does what its script says, request by request, over real HTTP."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Step = Callable[["_Handler"], None]


@dataclass
class Asked:
    """One request that the server got."""

    method: str
    path: str
    pairs: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """`script` has what the next requests meet; the last entry stays."""

    script: list[Step] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def answers(self, *steps: Step) -> None:
        self.script = list(steps)


def says(data: Any, status: int = 200, **headers: str) -> Step:
    """A JSON answer; `Retry_After="1"` makes a header."""
    body = data if isinstance(data, bytes) else json.dumps(data).encode()

    def step(handler: "_Handler") -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return step


def hangs_up(handler: "_Handler") -> None:
    handler.close_connection = True


def streams(*parts: bytes, then: Callable[[], object] | None = None) -> Step:
    """Server-sent events, each part in a chunk of its own; `then` runs before the connection ends."""

    def step(handler: "_Handler") -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            handler.wfile.flush()
        if then is not None:
            then()
        handler.close_connection = True

    return step


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    scripted: Scripted

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        self.scripted.asked.append(Asked(self.command, parts.path, pairs, headers, body))
        script = self.scripted.script
        (script.pop(0) if len(script) > 1 else script[0])(self)

    do_GET = do_POST = _handle

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def running() -> Iterator[Scripted]:
    """Serves until the block is left."""
    scripted = Scripted()
    served = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"scripted": scripted}))
    served.daemon_threads = True
    threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    scripted.url = f"http://127.0.0.1:{served.server_port}"
    yield scripted
    served.shutdown()
    served.server_close()
