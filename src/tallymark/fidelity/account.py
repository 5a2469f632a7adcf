"""The account of events: received = accepted + refused, accepted = the outcomes of the ledger + in flight."""

from collections.abc import Mapping
from dataclasses import dataclass

from tallymark.fidelity.evidence import Evidence
from tallymark.fidelity.log_view import LogView
from tallymark.ledger import NOTES, OUTCOMES, Ledger
from tallymark.log.protocol import Positions
from tallymark.store.protocol import Store, StoreUnreachable, WrongLog

# A keeper that is taking letters in moves its position and the counts between two reads; one read in peace is enough.
MOST_READS = 5
SUMMANDS = (
    *({"name": term.name, "label": term.label, "meaning": term.meaning} for term in OUTCOMES),
    {"name": "in_flight", "label": "in flight", "meaning": "durable in the log, waiting for the pipeline"},
    {"name": "missing", "label": "missing", "meaning": "unaccounted for; anything but 0 is a loss"},
)
"""what accepted is the sum of, in order, for whoever shows the account to people"""


@dataclass(frozen=True, slots=True)
class Intake:
    """What the log has accepted and how much of it waits to be counted; None while the log does not answer."""

    accepted: int | None
    in_flight: int | None


def account(ledger: Ledger, applied: Mapping[int, int], evidence: Evidence) -> dict[str, int | None]:
    """Every term by name; None if unknown. `ledger` and `applied` are as for `intake`."""
    taken = intake(ledger, applied, evidence.events)
    turned_away = refused(evidence.store, evidence.refused)
    return {
        "received": None if turned_away is None or taken.accepted is None else taken.accepted + turned_away,
        "accepted": taken.accepted,
        "refused": turned_away,
        **{term.name: getattr(ledger, term.name) for term in OUTCOMES},
        "in_flight": taken.in_flight,
        "missing": ledger.missing,
        **{term.name: getattr(ledger, term.name) for term in NOTES},
    }


def intake(ledger: Ledger, applied: Mapping[int, int], events: LogView) -> Intake:
    """Both must come from one snapshot that is older than this call: then everything counted was accepted before."""
    positions = events.positions()
    if positions is None:
        # A log that does not exist yet is empty. One that was read before and is now silent may hold more.
        unknown = events.is_away or any(applied.values())
        return Intake(None, None) if unknown else Intake(ledger.accepted, 0)
    known = [each.events for each in positions.values() if each.events is not None]
    if len(known) == len(positions):
        accepted = max(ledger.accepted, sum(known))
        return Intake(accepted, accepted - ledger.accepted)
    waiting = _waiting(applied, positions, events)
    return Intake(None, None) if waiting is None else Intake(ledger.accepted + waiting, waiting)


def _waiting(applied: Mapping[int, int], positions: Mapping[int, Positions], events: LogView) -> int | None:
    """Events between what is applied and the end of the log; 0 only if nothing waits."""
    waiting = 0
    for partition, standing in positions.items():
        start = max(applied.get(partition, 0), standing.first)
        if start < standing.synced:
            found = events.events_in(partition, start, standing.synced)
            if found is None:
                return None
            waiting += found
    return waiting


def refused(store: Store, dead_letters: LogView) -> int | None:
    """Events that collectors have refused since the log was made; None if unknown."""
    positions = dead_letters.positions()
    if positions is None:
        return None
    known = [each.events for each in positions.values() if each.events is not None]
    return sum(known) if len(known) == len(positions) else _refused_in_part(store, dead_letters)


def _refused_in_part(store: Store, dead_letters: LogView) -> int | None:
    """What the keeper has taken in, and what still waits in the stream."""
    identity = dead_letters.identity
    if identity is None:
        return None
    try:
        position = store.dead_letters.position(identity)
        for _ in range(MOST_READS):
            counts = store.dead_letters.counts(tenant=None)
            before, position = position, store.dead_letters.position(identity)
            if before == position:
                break
    except (WrongLog, StoreUnreachable):
        return None
    # Read again: the end of the stream must not lie before the keeper's position.
    waiting = _waiting({0: position}, dead_letters.positions() or {}, dead_letters)
    taken = sum(events for (hop, _), events in counts.items() if hop == "collector")
    return None if waiting is None else taken + waiting
