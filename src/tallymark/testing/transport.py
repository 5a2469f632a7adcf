"""A collector that does what a script says."""

import json
import threading
import zlib
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from tallymark.client.transport import Answer, NoAnswer, Request

Act = int | Answer | NoAnswer | Callable[[list[dict[str, Any]]], Answer]


class ScriptedTransport:
    """Give it to a `Client` as `connect=lambda url: transport`, with what the requests shall meet, one after another.

        transport = ScriptedTransport([503, NoAnswer("hung up"), taken_but(1, code="not_durable", retryable=True)])

    An act is a status, an Answer, a NoAnswer to be raised, or a function of the events. After the script everything is
    taken. `requests` has what was sent, `events` the events of each request, `taken` each accepted event by its id.
    Threads may share it.
    """

    def __init__(self, script: Iterable[Act] = ()) -> None:
        self.script: list[Act] = list(script)
        self.requests: list[Request] = []
        self.events: list[list[dict[str, Any]]] = []
        self.taken: dict[str, dict[str, Any]] = {}
        self.closed = False
        self._lock = threading.Lock()

    def exchange(self, request: Request, *, timeout_s: float | None = None) -> Answer:
        with self._lock:
            events = decoded(request)
            self.requests.append(request)
            self.events.append(events)
            act = self.script.pop(0) if self.script else 202
            if isinstance(act, NoAnswer):
                raise act
            if isinstance(act, int):
                answer = accepted(len(events)) if act == 202 else Answer(act, {}, b"{}")
            else:
                answer = act if isinstance(act, Answer) else act(events)
            self._take(answer, events)
            return answer

    def close(self) -> None:
        self.closed = True

    def _take(self, answer: Answer, events: list[dict[str, Any]]) -> None:
        if answer.status in (200, 202):
            out = {error["index"] for error in (answer.json() or {}).get("errors", [])}
            self.taken |= {event["id"]: event for index, event in enumerate(events) if index not in out}


def accepted(count: int) -> Answer:
    """All of them are taken."""
    return Answer(202, {}, b'{"accepted":%d,"rejected":0,"errors":[]}' % count)


def taken_but(*indices: int, code: str, retryable: bool) -> Callable[[list[dict[str, Any]]], Answer]:
    """The act of a collector that takes all events but these."""

    def act(events: list[dict[str, Any]]) -> Answer:
        errors = [{"index": index, "code": code, "detail": code, "retryable": retryable} for index in indices]
        told = {"accepted": len(events) - len(errors), "rejected": len(errors), "errors": errors}
        return Answer(202, {}, json.dumps(told).encode())

    return act


def decoded(request: Request) -> list[dict[str, Any]]:
    """The events in a request of the client."""
    body = request.body or b"[]"
    encoding = request.headers.get("content-encoding")
    if encoding == "gzip":
        body = zlib.decompress(body, zlib.MAX_WBITS | 16)
    elif encoding == "zstd":
        body = _unzstd(body)
    elif encoding is not None:
        raise ValueError(f"content-encoding {encoding!r} is not one of the client's")
    events: list[dict[str, Any]] = json.loads(body)
    return events


def _unzstd(body: bytes) -> bytes:
    # By the same module that the client compresses with.
    try:
        plain: bytes = import_module("zstandard").ZstdDecompressor().decompress(body)
    except ImportError:
        plain = import_module("compression.zstd").decompress(body)
    return plain
