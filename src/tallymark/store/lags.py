"""Lag from receipt to store as percentiles: of one batch, and of many batches together."""

import math
from collections.abc import Iterable, Mapping

from tallymark.store.model import Lag


def lag_of(received: Iterable[Mapping[int, int]], *, now_ms: int) -> Lag | None:
    """The lag of events received at these times (ms -> events) and applied now."""
    weights: dict[float, float] = {}
    for counts in received:
        for received_ms, events in counts.items():
            lag_ms = float(max(0, now_ms - received_ms))
            weights[lag_ms] = weights.get(lag_ms, 0.0) + events
    return _percentiles(weights, at_ms=now_ms)


def lag_of_all(lags: Iterable[Lag]) -> Lag | None:
    """Many batches as one.

    Of a batch four steps are known: half its events took p50 at most, the next 45 % p95 at most, and so on. So the
    percentiles of many are never too low, and those of one are its own.
    """
    weights: dict[float, float] = {}
    latest = 0
    for lag in lags:
        latest = max(latest, lag.at_ms)
        for value, share in ((lag.p50, 0.50), (lag.p95, 0.45), (lag.p99, 0.04), (lag.highest, 0.01)):
            weights[value] = weights.get(value, 0.0) + share * lag.events
    return _percentiles(weights, at_ms=latest)


def _percentiles(weights: Mapping[float, float], *, at_ms: int) -> Lag | None:
    total = sum(weights.values())
    if total <= 0:
        return None
    ordered = sorted(weights.items())

    def percentile(share: float) -> float:
        reached = 0.0
        for value, weight in ordered:
            reached += weight
            if reached >= share * total or math.isclose(reached, share * total):
                return value
        return ordered[-1][0]

    return Lag(at_ms, round(total), percentile(0.50), percentile(0.95), percentile(0.99), ordered[-1][0])
