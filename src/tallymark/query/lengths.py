"""Lengths of time as users write them: `90s`, `5m`, `1d`, `1mo`; and moments that lie such a length apart."""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime, tzinfo

from tallymark.http import Problem
from tallymark.query.moments import UNITS_S

DAY_S = 86_400
LONGEST_DAYS, LONGEST_MONTHS = 3660, 120

_LENGTH = re.compile(r"([0-9]{1,9})(s|m|h|d|w|mo)")


@dataclass(frozen=True, slots=True)
class Length:
    """A number of seconds, minutes, hours, days, weeks or months. The last three follow a calendar."""

    count: int
    unit: str

    @property
    def seconds(self) -> int:
        """Of days and weeks as UTC has them; months have no fixed length."""
        return self.count * UNITS_S[self.unit]

    @property
    def months(self) -> int:
        return self.count if self.unit == "mo" else 0

    @property
    def days(self) -> int:
        return {"d": self.count, "w": 7 * self.count}.get(self.unit, 0)


def parse(name: str, text: str, *, code: str) -> Length:
    """The value of the parameter `name`; a Problem with this code if it is none, or too long."""
    found = _LENGTH.fullmatch(text)
    if not found or int(found[1]) == 0:
        detail = f"{name} = {text[:60]!r} is not a length of time; write 1m, 5m, 15m, 1h, 1d, 1mo …"
        raise Problem(400, code, detail, parameter=name)
    length = Length(int(found[1]), found[2])
    longest = LONGEST_MONTHS if length.months else LONGEST_DAYS * DAY_S // UNITS_S[length.unit]
    if length.count > longest:
        raise Problem(400, code, f"{name} = {text!r} is longer than {longest}{length.unit}", parameter=name)
    return length


def on_the_grain(name: str, text: str, seconds: int, grain_s: int, *, code: str) -> int:
    """The seconds, if they are a multiple of what the meter keeps."""
    if seconds % grain_s == 0:
        return seconds
    below = seconds // grain_s * grain_s
    nearest = [to_text(each) for each in (below, below + grain_s) if each]
    raise Problem(
        400,
        code,
        f"{name} = {text!r} is not a multiple of this meter's grain, {to_text(grain_s)};"
        f" the nearest {'is' if len(nearest) == 1 else 'are'} {' and '.join(nearest)}",
        parameter=name,
        grain=to_text(grain_s),
        nearest=nearest,
    )


def to_text(seconds: int) -> str:
    """The shortest way to write it: `90s`, `2m`, `1h`."""
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % UNITS_S[unit] == 0)
    return f"{seconds // UNITS_S[unit]}{unit}"


def earlier(moment_s: int, length: Length, zone: tzinfo) -> int:
    return later(moment_s, Length(-length.count, length.unit), zone)


def later(moment_s: int, length: Length, zone: tzinfo) -> int:
    """The moment so much later (or earlier, if the count is negative).

    Days, weeks and months keep the time of day in the zone; a day that the month does not have is its last one.
    """
    if length.unit in ("s", "m", "h"):
        return moment_s + length.seconds
    local = datetime.fromtimestamp(moment_s, zone)
    if length.unit == "mo":
        years, month = divmod(local.year * 12 + local.month - 1 + length.months, 12)
        day = min(local.day, monthrange(years, month + 1)[1])
        local = local.replace(year=years, month=month + 1, day=day, fold=0)
    else:
        local = datetime.fromordinal(local.toordinal() + length.days).replace(
            hour=local.hour, minute=local.minute, second=local.second, tzinfo=zone
        )
    return _moment_of(local, zone)


def _moment_of(local: datetime, zone: tzinfo) -> int:
    """Of a time of day that clocks skipped, the moment when they did: what is before and after it is then whole."""
    moment_s = int(local.timestamp())
    if datetime.fromtimestamp(moment_s, zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return moment_s
    # Read with the offset from after the change it lies before the change, and the other way round.
    before_s, after_s = sorted(int(local.replace(fold=fold).timestamp()) for fold in (0, 1))
    offset = datetime.fromtimestamp(before_s, zone).utcoffset()
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        if datetime.fromtimestamp(middle_s, zone).utcoffset() == offset:
            before_s = middle_s
        else:
            after_s = middle_s
    return after_s
