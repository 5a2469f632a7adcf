"""How fresh an answer is: through when it is complete, through when it is final, and what it lacks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallymark.events.moments import rfc3339_ms
from tallymark.fidelity.log_view import LogView
from tallymark.ledger import Ledger
from tallymark.log.protocol import Positions
from tallymark.store.protocol import Snapshot


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh one snapshot of the store is."""

    now_ms: int
    complete_through_ms: int | None
    """everything that was in the log before then is counted; None if unknown"""
    final_through_ms: int | None
    """events older than this are no longer accepted, and all that were accepted are counted"""
    loss: int | None
    """events that the ledger cannot account for, and in an answer those that its meter missed while it was broken;
    None if unknown, because records were deleted before they were read"""
    applied: Mapping[int, int]
    """partition -> the next offset to apply, at that moment"""

    @property
    def lag_ms(self) -> int | None:
        return None if self.complete_through_ms is None else self.now_ms - self.complete_through_ms

    def to_json(self, *, meter_version: int | None = None, errors: Mapping[str, float] | None = None) -> dict[str, Any]:
        """`errors` has, for each function of an answer that is approximate, how far off it may be."""
        answer = {
            "complete_through": _moment(self.complete_through_ms),
            "final_through": _moment(self.final_through_ms),
            "lag_ms": self.lag_ms,
            "loss": self.loss,
            "sources": ["hot"],
            "approximate": bool(errors),
            **({"error": dict(errors)} if errors else {}),
        }
        return answer if meter_version is None else {**answer, "meter_version": meter_version}


def freshness(
    snapshot: Snapshot,
    events: LogView,
    *,
    clock_ms: Callable[[], int],
    accept_past_s: int,
    records_lost: bool,
    tenant: str | None = None,
) -> Freshness:
    """How fresh the snapshot is. Read the snapshot first, then the clock, then the ends of the log.

    In that order, everything acknowledged before `now_ms` lies below the ends that are compared with the snapshot.
    The loss is that of one tenant, or of all. Records that are gone may have been anybody's.
    """
    applied, now_ms = snapshot.applied(), clock_ms()
    complete = complete_through(applied, events, now_ms=now_ms, clock_ms=clock_ms)
    final = None if complete is None else complete - accept_past_s * 1000
    loss = None if records_lost else _missing(snapshot, tenant)
    return Freshness(now_ms, complete, final, loss, applied)


def _missing(snapshot: Snapshot, tenant: str | None) -> int:
    if tenant is None:
        return sum(ledger.missing for ledger in snapshot.ledger().values())
    return snapshot.tenant_ledgers().get(tenant, Ledger()).missing


def complete_through(
    applied: Mapping[int, int], events: LogView, *, now_ms: int, clock_ms: Callable[[], int]
) -> int | None:
    """Now, or when the first record that is not applied was appended, in whichever partition that was earliest.

    That includes records that are written but not yet durable: they will be in the log under their old append time.
    """
    positions = events.positions()
    if positions is None:
        # Without a log nothing can be missing from the counts. But if something was counted, their age is unknown.
        return None if events.is_away or any(applied.values()) else now_ms
    complete = now_ms
    for partition, standing in positions.items():
        following = applied.get(partition, 0)
        if following < standing.end:
            appended_ms = events.append_ms(partition, following)
            if appended_ms is None:
                return None
            came_ms = standing.to_wall_ms(appended_ms)
            # When the clock is set back, append times go on, and until the next append the difference is unknown: then
            # they do not tell when something arrived. Those of other machines may be ahead of ours by as much as the
            # clocks differ.
            if came_ms > clock_ms() + events.slack_ms:
                return None
            complete = min(complete, came_ms)
    return complete


def ahead_ms(positions: Mapping[int, Positions], events: LogView, *, now_ms: int) -> int:
    """How far append time is ahead of the clock in the partition where they differ most; negative if it is behind."""
    found = [0]
    for partition, standing in positions.items():
        newest_ms = events.append_ms(partition, standing.synced - 1) if standing.synced > standing.first else None
        set_back_since = 0 if newest_ms is None else max(0, standing.to_wall_ms(newest_ms) - now_ms)
        found.append(standing.clock_ahead_ms + set_back_since)
    return max(found, key=abs)


def _moment(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else rfc3339_ms(max(0, moment_ms))
