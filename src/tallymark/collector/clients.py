"""What clients say of themselves with every request, in the header `Tallymark-Client`: also what never got here.

A client counts its own events: called, delivered, refused, dropped, spilled, still queued. So what was lost before it
reached any collector is known here, as long as the client gets one more request through.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallymark import telemetry

OUTCOMES = ("called", "delivered", "refused", "dropped", "spilled", "queued")
MAX_CLIENTS = 10_000
SILENCE_S = 3_600.0
MAX_LISTED = 100

# 18 digits fit into 64 bits. What a newer client adds behind is passed over.
_COUNTS = "".join(rf";{name}=(\d{{1,18}})" for name in OUTCOMES)
_HEADER = re.compile(rf"instance=([0-9a-f]{{16}});seq=(\d{{1,18}}){_COUNTS}(?:;.{{0,200}})?", re.ASCII)


@dataclass(slots=True)
class Client:
    """One process that sends, as far as this collector knows it."""

    instance: str
    seq: int
    """the highest that came here"""
    first_seq: int
    requests: int
    """that came here"""
    counts: tuple[int, ...]
    """of OUTCOMES, as said by the request with the highest seq"""
    seen: float
    dropped_at: float | None = None
    """when it first told of the latest drop"""

    @property
    def dropped(self) -> int:
        return self.counts[OUTCOMES.index("dropped")]

    @property
    def elsewhere(self) -> int:
        """Requests between the first and the last seen here that did not come here: to another collector, or nowhere.

        A client spreads its requests over the collectors, so only all of them together can tell how many were lost:
        the highest seq of all, minus the lowest, plus one, minus the sum of `requests`.
        """
        return max(0, self.seq - self.first_seq + 1 - self.requests)


class Clients:
    """The clients of the last hour, at most 10,000 of them: whoever was silent longest goes first."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._by_instance: dict[str, Client] = {}
        """in the order in which they were last seen"""
        for outcome in OUTCOMES:
            telemetry.CLIENT_EVENTS.labels(outcome)

    def note(self, header: str) -> None:
        """Of one request; a header that cannot be read is counted and no reason to refuse the events."""
        found = _HEADER.fullmatch(header)
        if found is None:
            telemetry.COLLECTOR_BAD_CLIENT_HEADERS.inc()
            return
        now = self._clock()
        instance, *numbers = found.groups()
        seq, *counts = map(int, numbers)
        client = self._by_instance.pop(instance, None)
        if client is None:
            client = Client(instance, seq, seq, 1, tuple(counts), now)
            # Of a later request nobody can tell when: the collector may have started since.
            client.dropped_at = now if client.dropped and seq == 1 else None
        else:
            _add(client, seq, tuple(counts), now)
        self._by_instance[instance] = client
        if len(self._by_instance) > MAX_CLIENTS:
            del self._by_instance[next(iter(self._by_instance))]

    def known(self) -> list[Client]:
        """Those that were not silent for too long."""
        oldest = self._clock() - SILENCE_S
        for instance, client in list(self._by_instance.items()):
            if client.seen >= oldest:
                break
            del self._by_instance[instance]
        return list(self._by_instance.values())

    def report(self) -> dict[str, Any]:
        """`GET /v1/clients`."""
        clients = self.known()
        lately = [client for client in clients if (client.dropped_at or 0.0) > self._clock() - SILENCE_S]
        listed = sorted(clients, key=_latest_drop, reverse=True)[:MAX_LISTED]
        return {
            "known": len(clients),
            "totals": _totals(clients),
            "dropping": {"clients": len(lately), "dropped": sum(client.dropped for client in lately)},
            "clients": [_to_json(client) for client in listed],
        }

    def publish(self) -> None:
        """Bring the gauges up to date: for whoever reads the metrics now."""
        clients = self.known()
        telemetry.CLIENTS.set(len(clients))
        for outcome, events in _totals(clients).items():
            telemetry.CLIENT_EVENTS.labels(outcome).set(events)


def _add(client: Client, seq: int, counts: tuple[int, ...], now: float) -> None:
    client.requests += 1
    client.seen = now
    client.first_seq = min(client.first_seq, seq)
    if seq > client.seq:  # requests overtake each other, and what an earlier one says is older
        dropped = client.dropped
        client.seq, client.counts = seq, counts
        if client.dropped > dropped:
            client.dropped_at = now


def _latest_drop(client: Client) -> tuple[float, int, float]:
    return client.dropped_at or 0.0, client.dropped, client.seen


def _totals(clients: list[Client]) -> dict[str, int]:
    columns = zip(*(client.counts for client in clients), strict=True)
    return dict(zip(OUTCOMES, map(sum, columns), strict=True)) if clients else dict.fromkeys(OUTCOMES, 0)


def _to_json(client: Client) -> dict[str, Any]:
    return {
        "instance": client.instance,
        **dict(zip(OUTCOMES, client.counts, strict=True)),
        "seen_ms": int(client.seen * 1000),
        "dropped_ms": None if client.dropped_at is None else int(client.dropped_at * 1000),
        "first_seq": client.first_seq,
        "seq": client.seq,
        "requests": client.requests,
        "elsewhere": client.elsewhere,
    }
