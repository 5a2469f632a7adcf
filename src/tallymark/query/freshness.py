"""How fresh an answer is: through when it is complete, through when it is final, and what is missing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallymark.log.protocol import Positions
from tallymark.query.moments import spoken_ms
from tallymark.query.sources import LogView
from tallymark.store.protocol import Snapshot


@dataclass(frozen=True, slots=True)
class Freshness:
    """Of one snapshot of the store."""

    now_ms: int
    complete_through_ms: int | None
    """everything durable in the log before it is counted; None if nobody can tell"""
    final_through_ms: int | None
    """no event older than this is still accepted, and all that were are counted"""
    loss: int | None
    """events that the ledger cannot account for, and in an answer those that its meter missed while it was broken;
    None once records are gone that nobody has read"""
    applied: Mapping[int, int]
    """partition -> the next offset to apply, at that moment"""

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


def freshness(
    snapshot: Snapshot, events: LogView, *, clock_ms: Callable[[], int], accept_past_s: int, records_lost: bool
) -> Freshness:
    """The snapshot must have been taken before; then the clock is read, and then the log's ends.

    So whatever was acknowledged before `now_ms` lies below the ends that are compared with the snapshot.
    """
    applied, now_ms = snapshot.applied(), clock_ms()
    complete = complete_through(applied, events, now_ms=now_ms, clock_ms=clock_ms)
    final = None if complete is None else complete - accept_past_s * 1000
    loss = None if records_lost else sum(ledger.missing for ledger in snapshot.ledger().values())
    return Freshness(now_ms, complete, final, loss, applied)


def complete_through(
    applied: Mapping[int, int], events: LogView, *, now_ms: int, clock_ms: Callable[[], int]
) -> int | None:
    """The least over the partitions of: now, or the append time of the first record that is not applied.

    A record that is written and not yet durable is among them: it will be part of the log under its old append time.
    """
    positions = events.positions()
    if positions is None:
        # No log yet, so nothing can be missing from the counts; but counts without a log are of an unknown age.
        return None if events.is_away or any(applied.values()) else now_ms
    complete = now_ms
    for partition, standing in positions.items():
        following = applied.get(partition, 0)
        if following < standing.end:
            appended_ms = events.append_ms(partition, following)
            if appended_ms is None:
                return None
            came_ms = standing.to_wall_ms(appended_ms)
            # Append times go on when the clock is set back, and until the next append nobody says by how much: then
            # they do not tell when something came. Those of several machines may be ahead of ours by as much as their
            # clocks differ.
            if came_ms > clock_ms() + events.slack_ms:
                return None
            complete = min(complete, came_ms)
    return complete


def ahead_ms(positions: Mapping[int, Positions], events: LogView, *, now_ms: int) -> int:
    """How far append time is ahead of the clock, below 0 behind it, where they differ most: after the clock was set."""
    found = [0]
    for partition, standing in positions.items():
        newest_ms = events.append_ms(partition, standing.synced - 1) if standing.synced > standing.first else None
        set_back_since = 0 if newest_ms is None else max(0, standing.to_wall_ms(newest_ms) - now_ms)
        found.append(standing.clock_ahead_ms + set_back_since)
    return max(found, key=abs)


def _spoken(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else spoken_ms(max(0, moment_ms))
