"""Prometheus' text format without sockets: samples out of an exposition, and increases out of counters."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tallymark.agent.refusals import Refusals

# Possessive (++, *+), so that a hostile line costs no more than its length.
_PAIR = r'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]|\\.)*+)"'
_LABEL = re.compile(_PAIR)
_LABELS = rf"\{{[ \t]*+(?:{_PAIR}[ \t]*+,?[ \t]*+)*+\}}"
_SAMPLE = re.compile(
    rf"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*+)(?:[ \t]*+(?P<labels>{_LABELS})[ \t]*+|[ \t]++)"
    # ASCII and no underscore, or float() would take 1_000; a time; an exemplar of OpenMetrics; nothing else.
    r"(?P<value>[0-9A-Za-z.+-]++)(?:[ \t]++[+-]?[0-9]++(?:\.[0-9]*+)?+(?:[eE][+-]?[0-9]++)?+)?+(?:[ \t]++\#.*+)?+"
)
_COUNTED = ("histogram", "summary")
REMEMBERED_SCRAPES = 60
"""scrapes that a counter may be missing from and still continue where it was"""


@dataclass
class Exposition:
    """What one scrape found, by full name: `http_requests_total{code="200"}`."""

    counters: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)


def parse(text: str, refusals: Refusals) -> Exposition:
    """Every line is a sample, a comment, left out by rule (`_bucket`, `_created`, NaN), or refused and counted."""
    found = Exposition()
    types: dict[str, str] = {}
    places: dict[str, dict[str, float] | None] = {}
    for raw in text.split("\n"):
        line = raw.strip()
        if not line:
            continue
        if line[0] == "#":
            words = line.split(None, 3)
            if len(words) == 4 and words[1] == "TYPE":
                types[words[2]] = words[3]
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            refusals.count("malformed", line)
            continue
        name, labels, number = match.group("name", "labels", "value")
        if name not in places:
            places[name] = _place(name, types, found)
        place = places[name]
        if place is not None:
            _put(place, name + _canonical(labels) if labels else name, number, refusals)
    return found


def _put(place: dict[str, float], name: str, number: str, refusals: Refusals) -> None:
    try:
        value = float(number)
    except ValueError:
        refusals.count("malformed", f"{name} {number}")
        return
    if math.isnan(value):
        return  # Prometheus' word for "no value now", as a summary without observations has
    if math.isinf(value):
        refusals.count("not_finite", f"{name} {number}")
    elif name in place:
        refusals.count("name_taken", name)
    else:
        place[name] = value


def _place(name: str, types: Mapping[str, str], found: Exposition) -> dict[str, float] | None:
    """Where the samples of this name belong; None for those that are left out."""
    stem, _, suffix = name.rpartition("_")
    kind = types.get(stem)
    if suffix == "bucket" and kind in ("histogram", "gaugehistogram"):
        return None
    if suffix == "created" and (kind in ("counter", *_COUNTED) or types.get(f"{stem}_total") == "counter"):
        return None
    if suffix in ("count", "sum") and kind in _COUNTED:
        return found.counters
    if types.get(name) == "counter" or (suffix == "total" and kind == "counter"):  # the second is OpenMetrics
        return found.counters
    return found.gauges


def _canonical(labels: str) -> str:
    """Labels in the order given, without the spaces and the last comma that some writers leave."""
    pairs = ",".join(f'{name}="{value}"' for name, value in _LABEL.findall(labels))
    return "{" + pairs + "}" if pairs else ""


class Increases:
    """By how much each counter has grown since the last look.

    A value lower than before means that the program began anew: then all of it is new. A counter that appears later
    began at 0 in between: so it is after a restart, and with labels that are used for the first time. At the first look
    of all nothing is known, so nothing is said.
    """

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._seen: dict[str, int] = {}  # the last look that found it
        self._looks = 0

    def of(self, counters: Mapping[str, float]) -> dict[str, float]:
        last = self._last
        self._looks += 1
        self._seen.update(dict.fromkeys(counters, self._looks))
        if self._looks == 1:
            last.update(counters)
            return {}
        grown = {}
        for name, value in counters.items():
            before = last.get(name, 0.0)
            grown[name] = value - before if value >= before else value
        last.update(counters)
        if len(last) > len(counters):
            oldest = self._looks - REMEMBERED_SCRAPES
            for name in [name for name, seen in self._seen.items() if seen < oldest]:
                del last[name], self._seen[name]
        return grown
