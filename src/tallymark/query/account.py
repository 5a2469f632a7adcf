"""The account of events: accepted, refused and in flight, from the store and from how far the log has come."""

from collections.abc import Mapping
from dataclasses import dataclass

from tallymark.log.protocol import Positions
from tallymark.query.sources import LogView
from tallymark.store.model import Ledger
from tallymark.store.protocol import Store, StoreUnreachable, WrongLog

# A keeper that takes letters in moves its position and the counts between two looks; one look at rest is enough.
LOOKS = 5


@dataclass(frozen=True, slots=True)
class Intake:
    """What the log has taken and what of it waits; None where the log does not answer, so that nobody can tell."""

    accepted: int | None
    in_flight: int | None


def intake(ledger: Ledger, applied: Mapping[int, int], events: LogView) -> Intake:
    """`ledger` and `applied` must be of one snapshot, and taken before: then what is counted was accepted."""
    positions = events.positions()
    if positions is None:
        # No log yet is an empty one; a log from which events were counted and which is now silent may hold more.
        unknown = events.is_away or any(applied.values())
        return Intake(None, None) if unknown else Intake(ledger.accepted, 0)
    told = [each.events for each in positions.values() if each.events is not None]
    if len(told) == len(positions):
        accepted = max(ledger.accepted, sum(told))
        return Intake(accepted, accepted - ledger.accepted)
    waiting = _waiting(applied, positions, events)
    return Intake(None, None) if waiting is None else Intake(ledger.accepted + waiting, waiting)


def _waiting(applied: Mapping[int, int], positions: Mapping[int, Positions], events: LogView) -> int | None:
    """Events between what is applied and the log's end: exactly 0 if nothing waits, whatever the log can tell."""
    waiting = 0
    for partition, standing in positions.items():
        start = max(applied.get(partition, 0), standing.first)
        if start < standing.synced:
            found = events.events_in(partition, start, standing.synced)
            if found is None:
                return None
            waiting += found
    return waiting


def refused(store: Store, dead: LogView) -> int | None:
    """Events that collectors refused, since the log was made; None if nobody can tell now."""
    positions = dead.positions()
    if positions is None:
        return None
    told = [each.events for each in positions.values() if each.events is not None]
    return sum(told) if len(told) == len(positions) else _refused_in_part(store, dead)


def _refused_in_part(store: Store, dead: LogView) -> int | None:
    """What the keeper has taken in, and what still waits in the stream."""
    identity = dead.identity
    if identity is None:
        return None
    try:
        position = store.letters_position(identity)
        for _ in range(LOOKS):
            counts = store.dead_letter_counts()
            before, position = position, store.letters_position(identity)
            if before == position:
                break
    except (WrongLog, StoreUnreachable):
        return None
    # Read again: the stream's end must not lie before the keeper's position.
    waiting = _waiting({0: position}, dead.positions() or {}, dead)
    taken = sum(events for (hop, _), events in counts.items() if hop == "collector")
    return None if waiting is None else taken + waiting
