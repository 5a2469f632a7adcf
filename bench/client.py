"""Client: what a call costs its caller, what an event costs the process, and what becomes of events in an outage.

PostHog's and Segment's clients do the same beside it, each in a process of its own, into the same kind of receiver.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.figure import Conditions, Figure, at_least, at_most
from bench.processes import Broken, tallymark, wait_until
from bench.senders import RESTING
from tallymark.client.transport import HttpTransport, NoAnswer, Request
from tallymark.http import free_port

REACH_CALL_US = at_most(3)
REACH_DELIVERED = at_least(100_000)
PEERS = ("posthog", "segment")
# Fewer than the peers' queues hold (10,000): a call that finds a queue full is quick, and no figure of anything.
CALLS = 8_000
CALL_RUNS = 3
OUTAGE_EVENTS, OUTAGE_RATE = 100_000, 5_000
AWAY_FROM_S, AWAY_S = 5.0, 10.0
DEADLINE_S = 240


class Receiver:
    """The receiver in its own process."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.receiver", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def tell(self, command: str) -> dict[str, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        told: dict[str, int] = json.loads(self._read())
        return told

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Broken("the receiver ended")
        return line

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver(free_port("127.0.0.1"))
    try:
        yield receiver
    finally:
        receiver.close()


def measure(conditions: Conditions) -> Iterator[Figure]:
    yield from _calls(conditions)
    yield _into_a_collector(conditions)
    yield from _outage(conditions)


def _calls(conditions: Conditions) -> Iterator[Figure]:
    """As many calls in a row as every client takes; of some runs the one in the middle.

    While a client sends, its threads take turns with the caller: that is in the figures of all three. The call alone
    is measured on a client that sends afterwards.
    """
    resting = sorted(_called("tallymark", RESTING)["us_a_call"] for _ in range(CALL_RUNS))[CALL_RUNS // 2]
    yield Figure("client", "tallymark: one call, in the caller", resting, "us", REACH_CALL_US, "while nothing is sent")
    cost: dict[str, float] = {}
    for who in ("tallymark", *PEERS):
        runs = sorted(
            (_called(who) for _ in range(conditions.choose(full=CALL_RUNS, quick=1))),
            key=lambda sent: sent["us_a_call"],
        )
        sent = runs[len(runs) // 2]
        cost[who] = sent["cpu_us"]
        remark = f"{sent['delivered']:,} of {CALLS:,} delivered, {sent['memory_mb']:.0f} MB"
        yield Figure("client", f"{who}: one call while it sends", sent["us_a_call"], "us", None, remark, sent)
        yield Figure("client", f"{who}: CPU of the process an event", sent["cpu_us"], "us")
    for peer in PEERS:
        yield Figure("client", f"{peer} against tallymark, CPU an event", cost[peer] / cost["tallymark"], "times")


def _called(who: str, folder: str = "") -> dict[str, Any]:
    with receiving() as receiver:
        sent = _send(who, receiver.port, CALLS, 0, folder)
        return {**sent, "delivered": receiver.tell("report")["ids"]}


def _into_a_collector(conditions: Conditions) -> Figure:
    """As fast as one process can, into a real collector, until everything is durable."""
    events = conditions.choose(full=500_000, quick=50_000)
    port = free_port("127.0.0.1")
    with tallymark(conditions.folder / "client-collector", "collector", "--port", str(port)):
        wait_until(lambda: _is_ready(port), "the collector is ready", deadline_s=30)
        sent = _send("tallymark-spill", port, events, 0, str(conditions.folder / "spill-fast"))
    told = sent["told"]
    if told["delivered"] != events:
        raise Broken(f"{told['delivered']:,} of {events:,} delivered: {told}")
    return Figure(
        "client",
        "events/s of one process into a collector, durable",
        events / sent["seconds"],
        "events/s",
        remark=f"{sent['us_a_call']:.2f} us in the caller, {sent['cpu_us']:.2f} us of CPU an event",
        details=sent,
    )


def _outage(conditions: Conditions) -> Iterator[Figure]:
    """The receiver is away for ten seconds of a steady stream; how many events has it when all is over?"""
    events = conditions.choose(full=OUTAGE_EVENTS, quick=OUTAGE_EVENTS // 5)
    away_from_s, away_s = (AWAY_FROM_S, AWAY_S) if not conditions.quick else (1.0, 2.0)
    for who in ("tallymark", "tallymark-spill", *PEERS):
        with receiving() as receiver:
            outage = threading.Thread(target=_be_away, args=(receiver, away_from_s, away_s))
            outage.start()
            folder = str(conditions.folder / "spill-outage") if who == "tallymark-spill" else ""
            sent = _send(who, receiver.port, events, OUTAGE_RATE, folder)
            outage.join()
            told = receiver.tell("report")
        is_ours = who.startswith("tallymark")
        yield Figure(
            "client",
            f"{who}: delivered of {events:,}, server away {away_s:g} s",
            told["ids"],
            "events",
            REACH_DELIVERED if is_ours and not conditions.quick else None,
            f"{told['events'] - told['ids']:,} sent twice, 50 calls took {sent['longest_step_ms']:.0f} ms at most",
            {**sent, "receiver": told},
        )


def _be_away(receiver: Receiver, from_s: float, for_s: float) -> None:
    time.sleep(from_s + 1.0)  # the sender's own start
    receiver.tell("away")
    time.sleep(for_s)
    receiver.tell("back")


def _send(who: str, port: int, events: int, rate: int, folder: str = "") -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.senders", who, str(port), str(events), str(rate)]
    if folder and who.startswith("tallymark"):
        command.append(folder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        raise Broken(f"{who} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    sent: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return sent


def _is_ready(port: int) -> bool:
    transport = HttpTransport(f"http://127.0.0.1:{port}", timeout_s=2.0)
    try:
        return transport.exchange(Request("GET", "/readyz")).status == 200
    except NoAnswer:
        return False
    finally:
        transport.close()
