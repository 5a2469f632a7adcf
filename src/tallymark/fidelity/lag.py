"""Lag and rate of what was applied lately, as `/v1/status` shows them."""

from typing import Any

from tallymark.store.protocol import Snapshot

LAG_WINDOW_MS = 60_000
RATE_WINDOW_MS = 5_000


def recent_lag(snapshot: Snapshot, *, now_ms: int) -> dict[str, Any] | None:
    """Percentiles from receipt to count, over the last minute; None if nothing was counted in it."""
    lag = snapshot.lag(since_ms=now_ms - LAG_WINDOW_MS)
    if lag is None:
        return None
    return {
        "p50": lag.p50,
        "p95": lag.p95,
        "p99": lag.p99,
        "highest": lag.highest,
        "events": lag.events,
        "window_s": LAG_WINDOW_MS // 1000,
    }


def events_per_second(snapshot: Snapshot, *, now_ms: int) -> float:
    """Applied over the last few seconds."""
    lag = snapshot.lag(since_ms=now_ms - RATE_WINDOW_MS)
    return round((lag.events if lag else 0) * 1000 / RATE_WINDOW_MS, 1)
