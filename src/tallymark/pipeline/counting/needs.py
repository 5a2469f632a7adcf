"""What the live meters look at of each event, so that the rest stays compressed."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from tallymark.meters.expression import parse
from tallymark.meters.model import Meter
from tallymark.store.model import RegisteredMeter

EVERY = "*"
"""stands for the name of any event, and for any tenant"""

Key = tuple[str, str]
"""(tenant, name of the event)"""


@dataclass(frozen=True)
class Needs:
    """By tenant and the event's name: most stretches hold few of the events that meters name, and one tenant's."""

    properties: Mapping[Key, frozenset[str]]
    values: frozenset[Key] = frozenset()
    """events of which some meter counts the named numbers"""

    @classmethod
    def of_every_event(cls, properties: Collection[str]) -> "Needs":
        return cls({(EVERY, EVERY): frozenset(properties)})

    def of_all(self) -> frozenset[str]:
        """The properties that matter of any event."""
        return frozenset().union(*self.properties.values())

    def of(self, tenants: Collection[str], names: Collection[str]) -> frozenset[str]:
        """The properties that matter of these tenants' events with these names."""
        return frozenset().union(*(self.properties.get(key, frozenset()) for key in _keys(tenants, names)))

    def values_of(self, tenants: Collection[str], names: Collection[str]) -> bool:
        return not self.values.isdisjoint(_keys(tenants, names))


def _keys(tenants: Collection[str], names: Collection[str]) -> Iterable[Key]:
    return product((EVERY, *tenants), (EVERY, *names))


def needs(meters: Iterable[RegisteredMeter]) -> Needs:
    """The properties that some meter looks at, and the events whose `values` one counts."""
    properties: dict[Key, frozenset[str]] = {}
    values: set[Key] = set()
    for registered in meters:
        meter = registered.meter
        for event in meter.events or (EVERY,):
            key = (registered.tenant, event)
            properties[key] = properties.get(key, frozenset()) | _properties(meter)
            values |= {key} if meter.each else set()
    return Needs(properties, frozenset(values))


def _properties(meter: Meter) -> set[str]:
    names = {*meter.by, *filter(None, (meter.value, meter.distinct))} - {"event"}
    return names | (set(parse(meter.where).properties()) if meter.where else set())
