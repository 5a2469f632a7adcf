"""Lengths of time as users write them: `90s`, `5m`, `1d`, `1mo`."""

import re

from tallymark.evaluation.lengths import DAY_S, UNITS_S, Length
from tallymark.http import Problem

LONGEST_DAYS, LONGEST_MONTHS = 3660, 120

_LENGTH = re.compile(r"([0-9]{1,9})(s|m|h|d|w|mo)")


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
