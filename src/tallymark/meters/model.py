"""What a meter is: which events it counts, under which labels, and what it computes of them."""

from dataclasses import dataclass, replace
from typing import Literal

Then = Literal["count", "aside", "drop"]


@dataclass(frozen=True, slots=True)
class Late:
    """What becomes of events that arrive long after they happened."""

    after_s: int
    """late is an event that was received more than so many seconds after its time"""
    then: Then
    """`count` it like any other, count it `aside` in a set of its own, or `drop` it; either way it is seen"""


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
    distinct: str | None = None
    """property whose different values are counted; `compute` then has the function `distinct`"""
    grain_s: int = 60
    """the finest bucket that is kept: 1, 10 or 60 seconds"""
    weights: tuple[tuple[str, float], ...] = ()
    """(event, its number) in the order of `events`: each event counts as so much, instead of a `value`"""
    late: Late | None = None
    max_series: int | None = None
    """beyond so many, new series count under `OTHER`"""
    keep: str | None = None
    """`queried`: of the named numbers only those are stored that a saved query selects; None is all of them"""

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.by, "metric") if self.each else self.by

    def continues(self, before: "Meter") -> bool:
        """Whether a version that counts like this goes on with the numbers of the one before it."""
        return replace(before, compute=self.compute, keep=self.keep) == self

    def differs_in_keep_alone(self, other: "Meter") -> bool:
        """So much may be changed of a built-in meter. Also true if they are equal."""
        return replace(other, keep=self.keep) == self


QUERIED = "queried"
"""the one value of `keep` beside `all`, which is None"""


OTHER = "__other__"
"""value of every label of the series that takes what `max_series` does not admit"""

EVENTS = Meter("events", events=(), by=("event",))
METRICS = Meter(
    "metrics", events=("metrics",), by=("server",), compute=("count", "sum", "min", "max", "avg"), each="values"
)

BUILT_IN = {meter.name: meter for meter in (EVENTS, METRICS)}
"""Every store has them. The name `events` is nobody else's; a meter `metrics` that a user made before there was one
built in stays that user's (see `RegisteredMeter.built_in`)."""
