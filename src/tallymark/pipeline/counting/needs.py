"""What the live meters look at of each event, so that the rest stays compressed."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tallymark.meters.expression import parse
from tallymark.meters.model import Meter
from tallymark.store.model import RegisteredMeter

EVERY = "*"
"""stands for the name of any event"""


@dataclass(frozen=True)
class Needs:
    """By the event's name: most stretches hold few of the events that meters name."""

    properties: Mapping[str, frozenset[str]]
    values: frozenset[str] = frozenset()
    """events of which some meter counts the named numbers"""

    @classmethod
    def of_every_event(cls, properties: Collection[str]) -> "Needs":
        return cls({EVERY: frozenset(properties)})

    def of(self, names: Collection[str] | None = None) -> frozenset[str]:
        """The properties that matter of events with these names; None: with any name."""
        asked = self.properties if names is None else (EVERY, *names)
        return frozenset().union(*(self.properties.get(name, frozenset()) for name in asked))

    def values_of(self, names: Collection[str]) -> bool:
        return not self.values.isdisjoint((EVERY, *names))


def needs(meters: Iterable[RegisteredMeter]) -> Needs:
    """The properties that some meter looks at, and the events whose `values` one counts."""
    properties: dict[str, frozenset[str]] = {}
    values: set[str] = set()
    for registered in meters:
        meter = registered.meter
        for event in meter.events or (EVERY,):
            properties[event] = properties.get(event, frozenset()) | _properties(meter)
            values |= {event} if meter.each else set()
    return Needs(properties, frozenset(values))


def _properties(meter: Meter) -> set[str]:
    names = set(meter.by) - {"event"}
    names |= {meter.value} if meter.value else set()
    return names | (set(parse(meter.where).properties()) if meter.where else set())
