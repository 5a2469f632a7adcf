"""One HTTP exchange with a Tallymark server: the seam below the client and the commands."""

import select
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, urlsplit

import msgspec

from tallymark.events import tenants

if TYPE_CHECKING:
    import http.client
    import socket


class BadUrl(ValueError):
    """Not a possible address of a Tallymark server."""


class NoAnswer(Exception):
    """Nothing came back, so the outcome is unknown: what was asked may or may not have been done.

    NoAnswer
    ├── NotConnected    nothing was even sent
    └── TimedOut        not within the time given
    """


class NotConnected(NoAnswer):
    """No connection was made, so certainly nothing was done."""


class TimedOut(NoAnswer):
    """All or part of it was sent, and the time ran out."""


class Request(msgspec.Struct, frozen=True):
    """A request. `path` begins with a slash and includes the query string."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    max_answer_bytes: int | None = None
    """a larger body counts as no answer; None: no limit"""


class Answer(msgspec.Struct, frozen=True):
    """What came back, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def worth_a_retry(self) -> bool:
        return self.status in (408, 429, 500, 502, 503, 504)

    @property
    def retry_after_s(self) -> float | None:
        told = self.headers.get("retry-after")
        if told is None:
            return None
        try:
            return max(0.0, float(told))
        except ValueError:
            return _seconds_until(told, self.headers.get("date"))

    def json(self) -> Any:
        """The body as JSON; None if it is not."""
        import json

        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Transport(Protocol):
    """Anything that can carry a request: HTTP here, scripted failures in tests."""

    def exchange(self, request: Request, *, timeout_s: float | None = None) -> Answer:
        """The answer of any status; raises NoAnswer if none came."""
        ...

    def close(self) -> None: ...


class HttpTransport:
    """One kept-alive connection, for one thread at a time."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        tenant: str | None = None,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
    ) -> None:
        parts, port = split_url(url)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._prefix = parts.path.rstrip("/")
        self._headers = {
            "accept": "application/json",
            **({"authorization": f"Bearer {checked_key(key)}"} if key else {}),
            **({"tallymark-tenant": tenants.check(tenant)} if tenant is not None else {}),
        }
        self._timeout_s, self._connect_timeout_s = timeout_s, connect_timeout_s
        self._connection = _connection(parts, port)

    def exchange(self, request: Request, *, timeout_s: float | None = None) -> Answer:
        from http.client import HTTPException

        self._drop_if_stale()
        reused = self._connection.sock is not None
        try:
            return self._exchange(request, timeout_s or self._timeout_s)
        except (OSError, HTTPException) as error:
            self.close()
            # A server may close an idle connection at the very moment it is used again. Asking twice is harmless for
            # a GET; anything else has an unknown outcome, which only the caller can judge.
            if not (reused and request.method == "GET" and isinstance(error, ConnectionError)):
                raise self._no_answer(error) from error
        try:
            return self._exchange(request, timeout_s or self._timeout_s)
        except (OSError, HTTPException) as error:
            self.close()
            raise self._no_answer(error) from error

    def open(self, request: Request, *, timeout_s: float, silent_s: float) -> "Stream":
        """An answer whose body is read line by line; the connection is its own from then on.

        Its head has `timeout_s`, and each part of its body may be `silent_s` away.
        """
        from http.client import HTTPException, HTTPResponse

        self.close()
        self._connect(timeout_s)
        sock, self._connection.response_class = self._connection.sock, HTTPResponse
        try:
            sock.settimeout(timeout_s)
            self._send(request)
            response = self._connection.getresponse()
            sock.settimeout(silent_s)
        except (OSError, HTTPException) as error:
            self.close()
            raise self._no_answer(error) from error
        return Stream(response, sock, self._no_answer)

    def _exchange(self, request: Request, timeout_s: float) -> Answer:
        if self._connection.sock is None:
            self._connect(timeout_s)
        deadline = time.monotonic() + timeout_s
        self._connection.sock.settimeout(timeout_s)
        self._send(request)
        # The time left is for the whole answer: see DeadlineResponse.
        self._connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
        response = self._connection.getresponse()
        body = self._body(response, request.max_answer_bytes)
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)

    def _send(self, request: Request) -> None:
        headers = {**self._headers, **request.headers}
        self._connection.request(request.method, self._prefix + request.path, body=request.body, headers=headers)

    def _body(self, response: "http.client.HTTPResponse", max_bytes: int | None) -> bytes:
        if max_bytes is None:
            return response.read()
        if response.length is not None and response.length <= max_bytes:
            return response.read()
        body = response.read(max_bytes + 1) if response.length is None else b""
        if response.length is None and len(body) <= max_bytes:
            return body
        self.close()
        raise NoAnswer(
            f"no answer from {self.url}: response larger than {max_bytes:,} bytes; is this really a Tallymark server?"
        )

    def _connect(self, timeout_s: float) -> None:
        self._connection.timeout = min(timeout_s, self._connect_timeout_s or timeout_s)
        try:
            self._connection.connect()
        except OSError as error:
            self.close()
            raise NotConnected(f"no answer from {self.url}: {_reason(error, connecting=True)}") from error

    def _drop_if_stale(self) -> None:
        """Most closed idle connections can be recognised before they are used again: there is something to read."""
        if self._connection.sock is not None and _is_readable(self._connection.sock):
            self.close()

    def _no_answer(self, error: Exception) -> NoAnswer:
        kind = TimedOut if isinstance(error, TimeoutError) else NoAnswer
        return kind(f"no answer from {self.url}: {_reason(error)}")

    def close(self) -> None:
        self._connection.close()


class Stream:
    """An answer whose body keeps coming. One thread reads, any thread may stop it."""

    def __init__(
        self, response: "http.client.HTTPResponse", sock: "socket.socket", no_answer: Callable[[Exception], NoAnswer]
    ) -> None:
        self._response, self._sock, self._no_answer = response, sock, no_answer
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def line(self) -> str | None:
        """The next line without its end; None once the body has ended; raises NoAnswer if the connection broke."""
        found = self._read(self._response.readline)
        return found.decode(errors="replace").rstrip("\r\n") if found else None

    def rest(self) -> bytes:
        return self._read(self._response.read)

    def _read(self, read: Callable[[], bytes]) -> bytes:
        from http.client import HTTPException

        try:
            return read()
        except (OSError, HTTPException, ValueError) as error:  # ValueError: closed in the meantime
            raise self._no_answer(error) from error

    def stop(self) -> None:
        """Wake whoever reads: for them the body has ended."""
        import socket

        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._response.close()
        with suppress(OSError):
            self._sock.close()


def split_url(url: str) -> tuple[SplitResult, int | None]:
    """The parts of an address, and its port; raises BadUrl."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        raise BadUrl(f"{url} has no usable port; use the form http://127.0.0.1:8080") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadUrl(f"{url} is not the address of a Tallymark server; use the form http://127.0.0.1:8080")
    return parts, port


def _connection(parts: SplitResult, port: int | None) -> "http.client.HTTPConnection":
    # Here and not above: `http.client` brings ssl and email, which a program that only imports the client never needs.
    from tallymark.client.deadline_response import DeadlineResponse

    assert parts.hostname
    # With a port always: without one, http.client looks for it in the host, and finds one in an IPv6 address.
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        from tallymark.client.tls import TlsConnection

        connection = TlsConnection(parts.hostname, 443 if port is None else port)
    else:
        from http.client import HTTPConnection

        connection = HTTPConnection(parts.hostname, 80 if port is None else port)
    connection.response_class = DeadlineResponse
    return connection


def checked_key(key: str) -> str:
    """The key, if a header can hold it; the ValueError otherwise does not reveal it."""
    if not key.isprintable() or any(ord(letter) > 255 for letter in key):
        raise ValueError("key contains a character that a header cannot hold (a line break?); use printable ASCII")
    return key


def _seconds_until(date: str, now: str | None) -> float | None:
    """Relative to the sender's own `now` if known, so that our clocks need not agree."""
    from email.utils import parsedate_to_datetime

    try:
        end = parsedate_to_datetime(date).timestamp()
        begin = time.time() if now is None else parsedate_to_datetime(now).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, end - begin)


def _is_readable(sock: "socket.socket") -> bool:
    # `select` cannot take descriptors above 1,023, `poll` is not on Windows.
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _reason(error: Exception, *, connecting: bool = False) -> str:
    if isinstance(error, TimeoutError):
        return "connecting timed out" if connecting else "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__
