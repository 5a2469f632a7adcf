"""How fresh an answer is: through when it is complete, through when it is final, and what is missing."""

from dataclasses import dataclass
from typing import Any

from tallymark.query.moments import spoken_ms
from tallymark.query.sources import LogView
from tallymark.store.protocol import Snapshot


@dataclass(frozen=True, slots=True)
class Freshness:
    """Of one snapshot of the store."""

    now_ms: int
    complete_through_ms: int | None
    """everything durable in the log before it is counted; None if the log cannot be read"""
    final_through_ms: int | None
    """no event older than this is still accepted, and all that were are counted"""
    loss: int
    """events that the ledger cannot account for"""

    @property
    def lag_ms(self) -> int | None:
        return None if self.complete_through_ms is None else self.now_ms - self.complete_through_ms

    def spoken(self, *, meter_version: int | None = None) -> dict[str, Any]:
        answer = {
            "complete_through": _spoken(self.complete_through_ms),
            "final_through": _spoken(self.final_through_ms),
            "lag_ms": self.lag_ms,
            "loss": self.loss,
            "sources": ["hot"],
            "approximate": False,
        }
        return answer if meter_version is None else {**answer, "meter_version": meter_version}

    def is_complete(self, end_s: int) -> bool:
        """Whether a bucket that ends then can no longer grow, late events apart."""
        return self.complete_through_ms is not None and end_s * 1000 <= self.complete_through_ms


def freshness(snapshot: Snapshot, events: LogView, *, now_ms: int, accept_past_s: int) -> Freshness:
    """`now_ms` must have been taken before the log's ends are read here, and the snapshot before both.

    Then whatever was acknowledged before `now_ms` lies below the ends that are compared with the snapshot.
    """
    complete = complete_through(snapshot.applied(), events, now_ms=now_ms)
    final = None if complete is None else complete - accept_past_s * 1000
    loss = sum(ledger.missing for ledger in snapshot.ledger().values())
    return Freshness(now_ms, complete, final, loss)


def complete_through(applied: dict[int, int], events: LogView, *, now_ms: int) -> int | None:
    """The least over the partitions of: now, or the append time of the first record that is not applied."""
    positions = events.positions()
    if positions is None:
        # No log yet, so nothing can be missing from the counts; but counts without a log are of an unknown age.
        return None if any(applied.values()) else now_ms
    complete = now_ms
    for partition, standing in positions.items():
        following = applied.get(partition, 0)
        if following < standing.synced:
            appended_ms = events.append_ms(partition, following)
            if appended_ms is None:
                return None
            complete = min(complete, appended_ms)
    return complete


def _spoken(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else spoken_ms(max(0, moment_ms))
