"""One HTTP exchange with a Tallymark: the seam under the client and the commands."""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit


class BadUrl(ValueError):
    """An address that cannot be one of a Tallymark."""


class NoAnswer(Exception):
    """Nothing came back, so the outcome is unknown: what was asked may or may not have been done."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `path` begins with a slash and holds the query string."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def worth_a_retry(self) -> bool:
        return self.status in (408, 429, 500, 502, 503, 504)

    @property
    def retry_after_s(self) -> float | None:
        try:
            return max(0.0, float(self.headers["retry-after"]))
        except (KeyError, ValueError):
            return None

    def json(self) -> Any:
        """The body as JSON; None if it is not."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Transport(Protocol):
    """Whatever can carry a request: HTTP here, a script of failures in tests."""

    def exchange(self, request: Request, *, timeout_s: float | None = None) -> Answer:
        """The answer of any status; raises NoAnswer if none came."""
        ...

    def close(self) -> None: ...


class HttpTransport:
    """One kept-alive connection, for one thread at a time."""

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = 30.0) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            raise BadUrl(f"{url} has no usable port; use the form http://127.0.0.1:8080") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadUrl(f"{url} is no address of a Tallymark; use the form http://127.0.0.1:8080")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._prefix = parts.path.rstrip("/")
        self._headers = {"accept": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
        self._timeout_s = timeout_s
        if parts.scheme == "https":
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, port, timeout=timeout_s, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=timeout_s)

    def exchange(self, request: Request, *, timeout_s: float | None = None) -> Answer:
        reused = self._connection.sock is not None
        try:
            return self._exchange(request, timeout_s or self._timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # A server may close an idle connection at the very moment it is used again. Asking twice is harmless for
            # a GET; anything else has an unknown outcome, which only the caller can judge.
            if not (reused and request.method == "GET" and isinstance(error, ConnectionError)):
                raise NoAnswer(f"no answer from {self.url}: {_reason(error)}") from error
        try:
            return self._exchange(request, timeout_s or self._timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswer(f"no answer from {self.url}: {_reason(error)}") from error

    def _exchange(self, request: Request, timeout_s: float) -> Answer:
        self._connection.timeout = timeout_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        headers = {**self._headers, **request.headers}
        self._connection.request(request.method, self._prefix + request.path, body=request.body, headers=headers)
        response = self._connection.getresponse()
        body = response.read()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)

    def close(self) -> None:
        self._connection.close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__
