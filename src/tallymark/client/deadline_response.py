"""Responses with one deadline for the whole, not a timeout for each piece."""

import http.client
import io
import socket
import time
from typing import Any


class DeadlineResponse(http.client.HTTPResponse):
    """The socket's timeout at the time of the request is the deadline for the entire response, head and body."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        whole_s = sock.gettimeout()
        if whole_s is not None:
            self.fp.close()
            self.fp = io.BufferedReader(_Bounded(sock, time.monotonic() + whole_s))


class _Bounded(io.RawIOBase):
    """Reads from a socket until the deadline, then raises TimeoutError, even if bytes keep trickling in."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end
        self._stream = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._stream.readinto(buffer)

    def close(self) -> None:
        # The socket itself is closed when the last of its streams is.
        self._stream.close()
        super().close()
