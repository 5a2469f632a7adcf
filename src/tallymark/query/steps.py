"""Steps: how a range is cut into buckets. Fixed ones count from the epoch, days and months follow a calendar."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from itertools import pairwise
from typing import Protocol

from tallymark.http import Problem
from tallymark.query.moments import UNITS_S

MINUTE_S = 60
DAY_S = 86_400
LONGEST = {"mo": 120, "d": 3660}

_STEP = re.compile(r"([0-9]{1,7})(s|m|h|d|mo)")
# Steps to read in, coarsest first: the coarsest one that all edges fall on is read. The store keeps days, hours and
# minutes; quarters of an hour, on which midnights of some zones fall (Kathmandu: 18:15 UTC), it puts together.
_GRAINS_S = (DAY_S, 3600, 900, MINUTE_S)


class Step(Protocol):
    """A rule that cuts time into buckets without gaps."""

    @property
    def shortest_s(self) -> int:
        """No bucket is shorter."""
        ...

    def edges(self, start_s: int, end_s: int) -> "Edges":
        """The whole buckets that cover [start_s, end_s)."""
        ...


@dataclass(frozen=True, slots=True)
class Edges:
    """Starts of consecutive buckets, and the end of the last one."""

    seconds: tuple[int, ...]
    read_s: int
    """the step to ask the store for: every edge is a multiple of it"""

    @property
    def start_s(self) -> int:
        return self.seconds[0]

    @property
    def end_s(self) -> int:
        return self.seconds[-1]

    @property
    def are_even(self) -> bool:
        """Whether every bucket is one step of what is read."""
        return (len(self.seconds) - 1) * self.read_s == self.end_s - self.start_s

    def buckets(self) -> list[tuple[int, int]]:
        return list(pairwise(self.seconds))


@dataclass(frozen=True, slots=True)
class Fixed:
    """Buckets of so many seconds (whole minutes), counted from the epoch."""

    seconds: int

    @property
    def shortest_s(self) -> int:
        return self.seconds

    def edges(self, start_s: int, end_s: int) -> Edges:
        first = start_s // self.seconds * self.seconds
        last = -(-end_s // self.seconds) * self.seconds
        return Edges(tuple(range(first, max(last, first + self.seconds) + 1, self.seconds)), self.seconds)


@dataclass(frozen=True, slots=True)
class Days:
    """So many days of a zone, counted from 1 January 1970 there; a day may have 23 or 25 hours."""

    count: int
    zone: tzinfo

    @property
    def shortest_s(self) -> int:
        return self.count * DAY_S - 7200

    def edges(self, start_s: int, end_s: int) -> Edges:
        return _calendar_edges(self, start_s, end_s)

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

    def edges(self, start_s: int, end_s: int) -> Edges:
        return _calendar_edges(self, start_s, end_s)

    def number(self, day: date) -> int:
        return ((day.year - 1970) * 12 + day.month - 1) // self.count

    def first_day(self, number: int) -> date:
        years, month = divmod(number * self.count, 12)
        return date(1970 + years, month + 1, 1)


def parse(text: str, zone: tzinfo) -> Step:
    """`1m`, `90m`, `1h`, `1d`, `1mo` …"""
    found = _STEP.fullmatch(text)
    if not found or int(found[1]) == 0:
        raise Problem(
            400, "bad_step", f"step = {text!r} is not a step; write 1m, 5m, 15m, 1h, 1d, 1mo …", parameter="step"
        )
    count, unit = int(found[1]), found[2]
    longest = LONGEST["mo"] if unit == "mo" else LONGEST["d"] * DAY_S // UNITS_S[unit]
    if count > longest:
        raise Problem(400, "bad_step", f"step = {text!r} is longer than {longest}{unit}", parameter="step")
    if unit == "mo":
        return Months(count, zone)
    if unit == "d" and zone is not UTC:
        return Days(count, zone)
    seconds = count * UNITS_S[unit]
    if seconds % MINUTE_S:
        raise Problem(
            400,
            "bad_step",
            f"step = {text!r} is not a whole number of minutes, the finest resolution kept",
            parameter="step",
        )
    return Fixed(seconds)


def _calendar_edges(step: Days | Months, start_s: int, end_s: int) -> Edges:
    number = step.number(datetime.fromtimestamp(start_s, step.zone).date())
    seconds = [_midnight(step, number)]
    while seconds[-1] < end_s or len(seconds) == 1:
        number += 1
        seconds.append(_midnight(step, number))
    return Edges(tuple(seconds), next(grain for grain in _GRAINS_S if not any(edge % grain for edge in seconds)))


def _midnight(step: Days | Months, number: int) -> int:
    day = step.first_day(number)
    midnight = int(datetime(day.year, day.month, day.day, tzinfo=step.zone).timestamp())
    # Before standard time zones kept offsets with seconds; the store keeps minutes.
    return max(0, midnight // MINUTE_S * MINUTE_S)
