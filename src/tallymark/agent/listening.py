"""StatsD's UDP socket: hands datagrams to the aggregator, and knows what the system dropped before we read it."""

import errno
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MAX_DATAGRAM_BYTES = 65_536
WANTED_BUFFER_BYTES = 4_000_000
# After the socket is empty we wait before we look again: a wake-up for each datagram costs more than all its parsing.
# As long as the buffer holds what comes meanwhile at this rate; a small datagram takes 768 bytes of it.
BURST_PER_S = 50_000
BUFFERED_BYTES = 768
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.05
LOOK_S = 0.5
MAX_AT_ONCE = 20_000
"""datagrams; a buffer of the size that we ask for, which Linux doubles, holds some 10,000"""
_SO_RCVBUFFORCE = 33  # Linux: beyond net.core.rmem_max, for those who may


class CannotListen(Exception):
    """Cannot receive there; says why, and what to do."""


def address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8125` or `[::1]:8125`; raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65_535:
        raise ValueError(f"{text!r} is not of the form HOST:PORT; write it like 127.0.0.1:8125")
    return host.removeprefix("[").removesuffix("]"), int(port)


def bind(where: str) -> socket.socket:
    """A bound socket; CannotListen says what is in the way."""
    host, port = address(where)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # the second: no name that could be asked for
        raise CannotListen(f"cannot listen for StatsD on {where!a}: {error}; choose another with --statsd") from error
    try:
        bound.bind(place)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise CannotListen(
                f"UDP port {port} on {host} is in use, perhaps by another agent or StatsD; stop it, choose another"
                " with --statsd HOST:PORT, or turn StatsD off with --statsd off"
            ) from error
        raise CannotListen(
            f"cannot listen for StatsD on {where}: {error.strerror}; choose another with --statsd"
        ) from error
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
        with suppress(OSError):
            bound.setsockopt(socket.SOL_SOCKET, option, WANTED_BUFFER_BYTES)
    return bound


def pause_s(buffer_bytes: int) -> float:
    """How long a buffer of this size may be left alone."""
    return min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, buffer_bytes / BUFFERED_BYTES / BURST_PER_S))


class Listener:
    """`with Listener(socket, feed):` hands every datagram to `feed`, from a thread, until it is left."""

    def __init__(self, bound: socket.socket, feed: Callable[[bytes], None]) -> None:
        self._socket, self._feed = bound, feed
        self._stopping = threading.Event()
        self._stopped = False
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="statsd", daemon=True)
        self._pause_s = pause_s(bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        self._inode = os.fstat(bound.fileno()).st_ino
        self._table = Path("/proc/net/udp6" if bound.family == socket.AF_INET6 else "/proc/net/udp")

    def __enter__(self) -> "Listener":
        self._socket.setblocking(False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """When this returns, all that arrived has been fed, and nothing more will be. Calling it twice is harmless."""
        if self._stopped:
            return
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(4 * LOOK_S)
        self._drain()
        self._dropped = self.dropped()
        self._stopped = True
        self._socket.close()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def dropped(self) -> int:
        """Datagrams that the system dropped because they came faster than we read; 0 where it does not say."""
        if self._stopped:
            return self._dropped
        try:
            lines = self._table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            return 0
        for line in lines:
            words = line.split()
            if int(words[9]) == self._inode:
                return int(words[12])
        return 0

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        while not self._stopping.is_set():
            if poller.poll(LOOK_S * 1000):
                self._drain()
                self._stopping.wait(self._pause_s)

    def _drain(self) -> None:
        """Until the socket is empty, or long enough that we should check whether to stop."""
        receive, feed = self._socket.recv, self._feed
        for _ in range(MAX_AT_ONCE):
            try:
                datagram = receive(MAX_DATAGRAM_BYTES)
            except OSError:  # empty, or an ICMP message about something else: the socket still works
                return
            feed(datagram)
