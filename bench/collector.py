"""Collector: events made durable per second of its CPU, over real HTTP into a real log, by events a request."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence

from bench.figure import Conditions, Figure, at_least
from bench.processes import Broken, Tree, tallymark, wait_until
from bench.traffic import Traffic, traffic
from tallymark.http import free_port

REACH = {100: at_least(120_000), 1_000: at_least(300_000)}
# Events a request -> requests: some seconds each.
REQUESTS = {1: 10_000, 10: 10_000, 100: 6_000, 1_000: 1_500}
QUICK_REQUESTS = {1: 2_000, 10: 2_000, 100: 1_500, 1_000: 300}
WARM_UP = 0.2
CONNECTIONS = 16
_HEAD = "POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def measure(conditions: Conditions) -> Iterator[Figure]:
    port = free_port("127.0.0.1")
    with tallymark(conditions.folder / "collector", "collector", "--port", str(port)) as tree:
        wait_until(lambda: is_open(port), "the collector serves", deadline_s=30)
        for size, requests in (QUICK_REQUESTS if conditions.quick else REQUESTS).items():
            yield _measure(tree, port, size, requests)


def _measure(tree: Tree, port: int, size: int, requests: int) -> Figure:
    events = traffic(size * requests, seed=size, start_ms=time.time_ns() // 1_000_000)
    bodies = encode(events, size)
    warm = int(requests * WARM_UP)
    send(port, bodies[:warm])
    cpu, begun = tree.cpu_s(), time.monotonic()
    send(port, bodies[warm:])
    cpu, wall = tree.cpu_s() - cpu, time.monotonic() - begun
    sent = (requests - warm) * size
    return Figure(
        "collector",
        f"{size:,} events a request",
        sent / cpu,
        "events/CPU-s",
        REACH.get(size),
        f"{sent / wall:,.0f} events/s, {CONNECTIONS} connections",
        {"events": sent, "cpu_s": cpu, "wall_s": wall, "body_bytes": len(bodies[-1]), "connections": CONNECTIONS},
    )


def encode(events: Traffic, size: int) -> list[bytes]:
    """Whole requests, head and body: the client must cost little beside what it measures."""
    lines = events.lines()
    bodies = ("[" + ",".join(lines[start : start + size]) + "]" for start in range(0, len(lines), size))
    return [(_HEAD % len(body) + body).encode() for body in bodies]


def send(port: int, requests: Sequence[bytes]) -> None:
    """All of them over kept-alive connections, each with one request under way; Broken if one is not taken whole."""
    todo = iter(requests)
    turn = threading.Lock()
    failures: list[str] = []

    def work() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not failures:
                with turn:
                    request = next(todo, None)
                if request is None:
                    return
                connection.sendall(request)
                answer = connection.recv(65_536)
                if not answer.startswith(b"HTTP/1.1 202") or b'"rejected":0' not in answer:
                    failures.append(answer[:300].decode(errors="replace"))

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Broken(f"the collector answered {failures[0]}")


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
