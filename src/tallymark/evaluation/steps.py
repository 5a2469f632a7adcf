"""Steps: how a range is cut into buckets. Fixed ones count from the epoch, days and months follow a calendar."""

from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from typing import Protocol

from tallymark.evaluation.lengths import DAY_S, Length, later

MINUTE_S = 60

# Steps to read in, coarsest first: the coarsest one that all edges fall on is read. The store keeps days, hours and
# minutes; quarters of an hour, on which midnights of some zones fall (Kathmandu: 18:15 UTC), it puts together.
_GRAINS_S = (DAY_S, 3600, 900, MINUTE_S, 10, 1)


class Step(Protocol):
    """A rule that cuts time into buckets without gaps."""

    @property
    def shortest_s(self) -> int:
        """No bucket is shorter."""
        ...

    @property
    def length(self) -> Length: ...

    def edges(self, start_s: int, end_s: int) -> "Edges":
        """The whole buckets that cover [start_s, end_s)."""
        ...

    def edges_from(self, start_s: int, count: int) -> "Edges":
        """So many buckets from this moment on, whether or not one begins there otherwise."""
        ...


@dataclass(frozen=True, slots=True)
class Edges:
    """Starts of consecutive buckets, and the end of the last one."""

    seconds: tuple[int, ...]
    read_s: int
    """the step to ask the store for: every edge is a multiple of it"""

    @classmethod
    def at(cls, seconds: tuple[int, ...]) -> "Edges":
        return cls(seconds, next(grain for grain in _GRAINS_S if not any(edge % grain for edge in seconds)))

    @property
    def start_s(self) -> int:
        return self.seconds[0]

    @property
    def end_s(self) -> int:
        return self.seconds[-1]

    @property
    def are_even(self) -> bool:
        """Whether every bucket is one step of what is read."""
        return self.count * self.read_s == self.end_s - self.start_s

    @property
    def count(self) -> int:
        return len(self.seconds) - 1

    def windows(self, buckets: int) -> list[tuple[int, int]]:
        """(start, end) of every run of so many buckets."""
        return list(zip(self.seconds, self.seconds[buckets:], strict=False))


@dataclass(frozen=True, slots=True)
class Fixed:
    """Buckets of so many seconds, counted from the epoch."""

    seconds: int

    @property
    def shortest_s(self) -> int:
        return self.seconds

    @property
    def length(self) -> Length:
        return Length(self.seconds, "s")

    def edges(self, start_s: int, end_s: int) -> Edges:
        first = start_s // self.seconds * self.seconds
        last = -(-end_s // self.seconds) * self.seconds
        return Edges(tuple(range(first, max(last, first + self.seconds) + 1, self.seconds)), self.seconds)

    def edges_from(self, start_s: int, count: int) -> Edges:
        seconds = tuple(range(start_s, start_s + count * self.seconds + 1, self.seconds))
        return Edges(seconds, self.seconds) if start_s % self.seconds == 0 else Edges.at(seconds)


@dataclass(frozen=True, slots=True)
class Days:
    """So many days of a zone, counted from 1 January 1970 there; a day may have 23 or 25 hours."""

    count: int
    zone: tzinfo

    @property
    def shortest_s(self) -> int:
        return self.count * DAY_S - 7200

    @property
    def length(self) -> Length:
        return Length(self.count, "d")

    def edges(self, start_s: int, end_s: int) -> Edges:
        return _calendar_edges(self, start_s, end_s)

    def edges_from(self, start_s: int, count: int) -> Edges:
        return _shifted_edges(self, start_s, count)

    def number(self, day: date) -> int:
        return (day.toordinal() - date(1970, 1, 1).toordinal()) // self.count

    def first_day(self, number: int) -> date:
        return date.fromordinal(date(1970, 1, 1).toordinal() + number * self.count)


@dataclass(frozen=True, slots=True)
class Months:
    """So many months of a zone, counted from January 1970."""

    count: int
    zone: tzinfo

    @property
    def shortest_s(self) -> int:
        return self.count * 28 * DAY_S - 7200

    @property
    def length(self) -> Length:
        return Length(self.count, "mo")

    def edges(self, start_s: int, end_s: int) -> Edges:
        return _calendar_edges(self, start_s, end_s)

    def edges_from(self, start_s: int, count: int) -> Edges:
        return _shifted_edges(self, start_s, count)

    def number(self, day: date) -> int:
        return ((day.year - 1970) * 12 + day.month - 1) // self.count

    def first_day(self, number: int) -> date:
        years, month = divmod(number * self.count, 12)
        return date(1970 + years, month + 1, 1)


def _calendar_edges(step: Days | Months, start_s: int, end_s: int) -> Edges:
    number = step.number(datetime.fromtimestamp(start_s, step.zone).date())
    seconds = [_midnight(step, number)]
    while seconds[-1] < end_s or len(seconds) == 1:
        number += 1
        seconds.append(_midnight(step, number))
    return Edges.at(tuple(seconds))


def _shifted_edges(step: Days | Months, start_s: int, count: int) -> Edges:
    lengths_on = (Length(step.count * number, step.length.unit) for number in range(count + 1))
    return Edges.at(tuple(later(start_s, each, step.zone) for each in lengths_on))


def _midnight(step: Days | Months, number: int) -> int:
    day = step.first_day(number)
    midnight = int(datetime(day.year, day.month, day.day, tzinfo=step.zone).timestamp())
    # Before standard time zones kept offsets with seconds; the store keeps minutes.
    return max(0, midnight // MINUTE_S * MINUTE_S)
