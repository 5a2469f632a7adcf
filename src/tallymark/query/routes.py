"""The table of routes: it answers requests, and it is what the OpenAPI document is built from."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from tallymark.events.tenants import MAIN
from tallymark.http import Problem
from tallymark.query.parameters import Pairs, sort_out
from tallymark.query.response import Response
from tallymark.query.streams import Opening
from tallymark.suggest import suggest

MOST_BODY_BYTES = 64_000
"""unless a route says otherwise"""


@dataclass(frozen=True, slots=True)
class Request:
    """What an answer may depend on."""

    method: str
    path: str
    pairs: Pairs = ()
    body: bytes = b""
    arguments: dict[str, str] = field(default_factory=dict)
    """the parts of the path in braces"""
    headers: Callable[[str], str | None] = lambda _: None
    tenant: str = MAIN
    """whose meters, numbers and letters are meant; never one of `pairs`"""

    def no_parameters(self) -> None:
        """For routes that take none: whatever is given is a mistake."""
        sort_out(self.pairs, allowed=(), question=self.path)


Open = Callable[[Request], Opening]
"""runs in a thread: refuses, or says what is listened to"""
Make = Callable[[Request], Response | Future[Response]]
"""runs in a thread; a promise is an answer that another thread is computing"""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    summary: str
    answer: Make | None = None
    parameters: Sequence[str] = ()
    filters: bool = False
    """whether keys of the meter are parameters too"""
    keys: Mapping[str, str] = field(default_factory=dict)
    """filters that are no parameters of questions, with their meaning"""
    needed: Sequence[str] = ()
    """those of them that must be given, once"""
    body: str = ""
    """what the request carries, for the document"""
    body_types: Mapping[str, str] = field(default_factory=lambda: {"application/json": "object"})
    content: str = "application/json"
    opens: Open | None = None
    """instead of `answer`, for a stream of server-sent events"""
    most_body_bytes: int = MOST_BODY_BYTES
    """of the request; more is read no further"""
    ends_open: bool = False
    """the last part of the path may contain slashes"""

    @property
    def pattern(self) -> re.Pattern[str]:
        parts = ["([^/]+)" if part.startswith("{") else re.escape(part) for part in self.path.split("/")]
        return re.compile("/".join([*parts[:-1], "(.+)"] if self.ends_open else parts), re.DOTALL)

    @property
    def names(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.path)


class Routes:
    """Finds the route of a request, or says what is near."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.table = tuple(routes)
        self._patterns = [(route.pattern, route) for route in self.table]

    def find(self, method: str, path: str) -> tuple[Route, tuple[str, ...]]:
        """The route, and the parts of the path in its braces: decoded by the server, so `%2F` is a slash like any."""
        known_methods: list[str] = []
        for pattern, route in self._patterns:
            if found := pattern.fullmatch(path):
                if route.method == method or (method == "HEAD" and route.method == "GET"):
                    return route, found.groups()
                known_methods.append(route.method)
        if known_methods:
            allowed = ", ".join(known_methods)
            raise Problem(405, "wrong_method", f"{path} answers {allowed}, not {method}", headers={"allow": allowed})
        raise Problem(404, "unknown_path", f"there is no {path[:120]}{self._near(path)}")

    def _near(self, path: str) -> str:
        paths = list(dict.fromkeys(route.path for route in self.table))
        return suggest(path, paths, otherwise="/openapi.json lists every path")
