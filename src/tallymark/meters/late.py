"""The key `late` of a definition: after how long an event is late, and what becomes of it then."""

from collections.abc import Mapping
from typing import get_args

from tallymark.meters import durations
from tallymark.meters.errors import Flaws, Path, shown
from tallymark.meters.model import Late, Then
from tallymark.suggest import suggest

KEYS = ("after", "then")
CHOICES: tuple[Then, ...] = get_args(Then)
EXAMPLE = "{after: 1h, then: count}"


def read(given: object, *, at: Path, flaws: Flaws, called: str) -> Late | None:
    """What `late: …` says, or None after adding what is wrong to `flaws`."""
    if not isinstance(given, Mapping):
        flaws.add("wrong_type", f"late is a mapping like {EXAMPLE}, not {shown(given)}", at)
        return None
    for key in given:
        if key not in KEYS:
            detail = f"unknown key {shown(key)} in late{called}{suggest(str(key), KEYS)}"
            flaws.add("unknown_key", detail, (*at, str(key)), key=True)
    for key in KEYS:
        if given.get(key) is None:
            flaws.add("missing_key", f"no {key!r} in late{called}; write it like {EXAMPLE}", at)
    after_s = _after(given.get("after"), (*at, "after"), flaws)
    then = _then(given.get("then"), (*at, "then"), flaws)
    return Late(after_s, then) if after_s is not None and then is not None else None


def to_mapping(late: Late) -> dict[str, object]:
    return {"after": durations.spelled(late.after_s), "then": late.then}


def _after(given: object, at: Path, flaws: Flaws) -> int | None:
    if given is None:
        return None
    after_s = durations.seconds(given) if isinstance(given, str) else None
    if after_s is None:
        flaws.add("bad_late", f"after is {durations.FORM}, not {shown(given)}", at)
    elif not 1 <= after_s <= durations.LONGEST_S:
        most = durations.spelled(durations.LONGEST_S)
        flaws.add("bad_late", f"after is at least 1s and at most {most}, not {shown(given)}", at)
    else:
        return after_s
    return None


def _then(given: object, at: Path, flaws: Flaws) -> Then | None:
    if given is None:
        return None
    for choice in CHOICES:
        if given == choice:
            return choice
    hint = suggest(given, CHOICES, otherwise="") if isinstance(given, str) else ""
    flaws.add("bad_late", f"then is {', '.join(CHOICES[:-1])} or {CHOICES[-1]}, not {shown(given)}{hint}", at)
    return None
