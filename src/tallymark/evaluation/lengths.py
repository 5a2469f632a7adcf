"""Lengths of time, and moments that lie such a length apart."""

from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime, tzinfo

DAY_S = 86_400
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": DAY_S, "w": 7 * DAY_S}


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
