"""One interval's values as events: names checked, sources merged, too many split over several."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tallymark.agent.refusals import Refusals
from tallymark.events.model import MAX_KEY_CHARS, MAX_VALUE_NAMES_BYTES, MAX_VALUES

OWN = "agent_"
"""how the agent's figures about itself begin; nobody else may use it"""


@dataclass(frozen=True)
class MetricsEvent:
    id: str
    time_ms: int
    values: dict[str, float]


def merge(sources: Iterable[Mapping[str, float]], refusals: Refusals) -> dict[str, float]:
    """All values by name; earlier sources win. What cannot be sent is refused and counted, never dropped silently."""
    merged: dict[str, float] = {}
    for source in sources:
        for name, value in source.items():
            if name in merged or name[: len(OWN)] == OWN:
                refusals.count("name_taken", name)
            elif len(name) > MAX_KEY_CHARS:
                refusals.count("name_too_long", name)
            elif not name or "\0" in name or not is_text(name):
                refusals.count("bad_name", name)
            elif not math.isfinite(value):
                refusals.count("not_finite", f"{name} {value}")
            else:
                merged[name] = value
    return merged


def is_text(name: str) -> bool:
    """True if it can be sent. A name from the command line or a file system may contain bytes that are not UTF-8."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def events(values: Mapping[str, float], *, id: str, time_ms: int) -> Iterator[MetricsEvent]:
    """Events within the limits: `web-1/1763208000`, then `web-1/1763208000.2` and so on."""
    for number, part in enumerate(_parts(values), 1):
        yield MetricsEvent(id if number == 1 else f"{id}.{number}", time_ms, part)


def _parts(values: Mapping[str, float]) -> Iterator[dict[str, float]]:
    left = list(values.items())
    while left:
        part = dict(left[:MAX_VALUES])
        # Only names in scripts of several bytes a character can be too long together.
        while len("".join(part).encode()) > MAX_VALUE_NAMES_BYTES:
            part = dict(left[: len(part) // 2])
        yield part
        del left[: len(part)]
