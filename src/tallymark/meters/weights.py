"""The key `weights` of a definition: the number that each event counts as, in place of a value it carries."""

import math
from collections.abc import Iterable, Mapping

from tallymark.meters.errors import Flaws, Path, shown
from tallymark.suggest import suggest

EXAMPLE = "{view: 1, like: 3}"
# What counting takes for a number: see `pipeline.counting`.
LARGEST = 1e280
LARGEST_UNITS = 2.0**53


def read(given: object, *, at: Path, flaws: Flaws, called: str, decimals: int | None) -> dict[str, float]:
    """A number for each event; without those that are flawed, after adding what is wrong with them to `flaws`."""
    if not isinstance(given, Mapping):
        flaws.add("wrong_type", f"weights is a mapping from events to numbers, like {EXAMPLE}, not {shown(given)}", at)
        return {}
    if not given:
        flaws.add("empty", f"weights{called} is empty; write it like {EXAMPLE}, or leave it out", at)
    weights: dict[str, float] = {}
    for event, number in given.items():
        if not isinstance(event, str):
            flaws.add("wrong_type", f"{shown(event)} is not the name of an event; a text is needed (quote it)", at)
            continue
        weight = _number(number)
        if weight is None or abs(weight) >= LARGEST:
            detail = f"the weight of {shown(event)}{called} is a finite number under 1e280, not {shown(number)}"
            flaws.add("bad_weight", detail, (*at, event))
        elif decimals is not None and abs(weight) * 10.0**decimals >= LARGEST_UNITS:
            detail = (
                f"the weight {shown(number)} of {shown(event)}{called} is too large for exact sums with {decimals}"
                " decimals; use fewer decimals or smaller weights"
            )
            flaws.add("bad_weight", detail, (*at, event))
        weights[event] = weight or 0.0
    return weights


def check_events(weights: Iterable[str], events: Iterable[str], *, at: Path, flaws: Flaws, called: str) -> None:
    """Every event needs a weight, and every weight an event."""
    weighed, listed = list(weights), list(events)
    bare = [event for event in listed if event not in weighed]
    for event in weighed:
        if event not in listed:
            hint = suggest(event, bare, otherwise="add it there, or leave event out")
            detail = f"{shown(event)} has a weight but is not in event{called}{hint}"
            flaws.add("conflict", detail, (*at, event), key=True)
    for event in bare:
        flaws.add("conflict", f"the event {shown(event)}{called} has no weight; every event needs one", at)


def to_mapping(weights: Iterable[tuple[str, float]]) -> dict[str, object]:
    """As users write them: 3, not 3.0."""
    return {event: int(weight) if _is_plain(weight) else weight for event, weight in weights}


def _is_plain(weight: float) -> bool:
    return float(weight).is_integer() and abs(weight) <= LARGEST_UNITS


def _number(given: object) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        number = float(given)
    except OverflowError:
        return None
    return number + 0.0 if math.isfinite(number) else None  # -0 is 0
