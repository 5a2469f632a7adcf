"""Spans of time as users write them: `90s`, `5m`, `1h`, `7d`."""

import re

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
FORM = "a whole number and s, m, h, d or w, like 90s, 5m, 1h or 7d"
LONGEST_S = 3660 * UNITS_S["d"]
"""ten years: for windows, for `late`, and for how long ago"""

_DURATION = re.compile(r"([0-9]{1,9})([smhdw])")


def seconds(text: str) -> int | None:
    """So many seconds; None if this is not a duration."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * UNITS_S[found[2]] if found else None


def spelled(duration_s: int) -> str:
    """In the largest unit that needs no fraction, but in days rather than weeks: 3600 is `1h`, 90 is `90s`."""
    unit = next(unit for unit in "dhms" if duration_s % UNITS_S[unit] == 0)
    return f"{duration_s // UNITS_S[unit]}{unit}"
