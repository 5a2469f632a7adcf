"""What a meter is: which events it counts, under which labels, and what it computes of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meter:
    """One definition, already checked (see `meters.definition`)."""

    name: str
    events: tuple[str, ...]
    """names of events; empty means every event (only the built-in meter `events`)"""
    by: tuple[str, ...] = ()
    """properties that become labels; `event` is the event's name"""
    compute: tuple[str, ...] = ("count",)
    value: str | None = None
    """property that holds the number; None takes the event's own `value`"""
    each: str | None = None
    """`values`: every named number of the event is counted, under the added label `metric`"""
    where: str | None = None
    decimals: int | None = None
    """sums are exact integers in units of 10^-decimals"""

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.by, "metric") if self.each else self.by


EVENTS = Meter("events", events=(), by=("event",))
METRICS = Meter(
    "metrics", events=("metrics",), by=("server",), compute=("count", "sum", "min", "max", "avg"), each="values"
)

BUILT_IN = {meter.name: meter for meter in (EVENTS, METRICS)}
"""Every store has them. The name `events` is nobody else's; a meter `metrics` that a user made before there was one
built in stays that user's (see `RegisteredMeter.built_in`)."""
