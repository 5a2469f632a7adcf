"""Agent: the share of a core that it takes for 2,000 metrics a second, and whether all of them arrive."""

import socket
import threading
import time
from collections.abc import Iterator

from bench.client import receiving
from bench.figure import Conditions, Figure, at_most
from bench.processes import tallymark, wait_until
from tallymark.http import free_port

REACH = at_most(5)
METRICS = 2_000
LINES_A_DATAGRAM = 20


def measure(conditions: Conditions) -> Iterator[Figure]:
    seconds = conditions.choose(full=30, quick=5)
    port = free_port("127.0.0.1")
    stop = threading.Event()
    with receiving() as receiver:
        arguments = ("--url", f"http://127.0.0.1:{receiver.port}", "--statsd", f"127.0.0.1:{port}", "--server", "web-1")
        with tallymark(conditions.folder / "agent", "agent", *arguments) as tree:
            application = threading.Thread(target=_emit, args=(port, stop))
            application.start()
            try:
                # A few seconds in, so that imports and the first connections are over.
                wait_until(lambda: receiver.tell("report")["events"] >= 5, "five snapshots", deadline_s=60, poll_s=0.2)
                before, cpu, begun = receiver.tell("report"), tree.cpu_s(), time.monotonic()
                time.sleep(seconds)
                after, used, passed = receiver.tell("report"), tree.cpu_s() - cpu, time.monotonic() - begun
            finally:
                stop.set()
                application.join()
    snapshots = after["events"] - before["events"]
    yield Figure(
        "agent",
        f"{METRICS:,} StatsD metrics a second and the machine's own, share of one core",
        used / passed * 100,
        "%",
        REACH,
        f"{snapshots / passed:.2f} a second of {(after['values'] - before['values']) / max(1, snapshots):,.0f} values",
    )


def _emit(port: int, stop: threading.Event) -> None:
    """An application with 2,000 timers, each measured once a second."""
    lines = [f"app.timer{number}:{number % 97}|ms" for number in range(METRICS)]
    datagrams = [
        "\n".join(lines[start : start + LINES_A_DATAGRAM]).encode() for start in range(0, METRICS, LINES_A_DATAGRAM)
    ]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        begun, number = time.monotonic(), 0
        while not stop.is_set():
            sender.sendto(datagrams[number % len(datagrams)], ("127.0.0.1", port))
            number += 1
            stop.wait(max(0.0, begun + number / len(datagrams) - time.monotonic()))
