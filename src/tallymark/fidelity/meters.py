"""What is said of a meter beside its definition: what came late or was dropped, and how many series it has."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tallymark.events.tenants import MAIN
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import Snapshot
from tallymark.store.read_plan import Question

MANY_SERIES = 100_000
"""a meter with more and no `max_series` is warned about"""

_BECAME = {"count": "counted", "aside": "aside", "drop": "dropped"}


def beside(snapshot: Snapshot, registered: RegisteredMeter) -> dict[str, Any]:
    """What the meter met and did not count like the rest; empty if it counts all alike."""
    return {**late_events(snapshot, registered), **dropped_values(snapshot, registered)}


def dropped_values(snapshot: Snapshot, registered: RegisteredMeter) -> dict[str, int]:
    """`{"dropped_values": 1998}`: named numbers that no saved query selects; empty without `keep: queried`."""
    if registered.kept is None:
        return {}
    found = snapshot.read(Question(registered, functions=("count",), dropped=True))
    return {"dropped_values": int(found["n"].sum())}


def late_events(snapshot: Snapshot, registered: RegisteredMeter) -> dict[str, Any]:
    """`{"late_events": {"aside": 12}}`: how many came late, and what became of them; empty without `late`."""
    late = registered.meter.late
    if late is None:
        return {}
    found = snapshot.read(Question(registered, functions=("count",), late=True))
    return {"late_events": {_BECAME[late.then]: int(found["n"].sum())}}


def series_counts(roles: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Set -> how many series it has, as the keeper that counted most lately told of them."""
    told = [
        each["facts"]["series"]
        for each in roles
        if each["role"] == "keeper" and isinstance(each["facts"].get("series"), dict)
    ]
    return {int(set_id): int(count) for facts in told for set_id, count in facts.items()}


def series_of(registered: RegisteredMeter, counts: Mapping[int, int]) -> dict[str, int]:
    """`{"series": 1200}`; empty until the keeper has counted them."""
    return {"series": counts[registered.set_id]} if registered.set_id in counts else {}


def warnings(meters: Sequence[RegisteredMeter], counts: Mapping[int, int]) -> list[str]:
    """What is not wrong, but will be one day."""
    return [
        _many_series(each, counts[each.set_id])
        for each in meters
        if each.meter.max_series is None and counts.get(each.set_id, 0) > MANY_SERIES
    ]


def _many_series(registered: RegisteredMeter, count: int) -> str:
    whose = "" if registered.tenant == MAIN else f" of the tenant {registered.tenant}"
    return (
        f"meter {registered.meter.name}{whose} has {count:,} series and no max_series: each takes disk, and memory when"
        f" it is asked for; set max_series, or leave out the label that varies most ({', '.join(registered.labels)})"
    )
