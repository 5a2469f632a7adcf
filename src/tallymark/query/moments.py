"""Moments of time as users write them."""

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as clock_time

from tallymark.evaluation.lengths import UNITS_S
from tallymark.http import Problem

EARLIEST_MS = 0
LATEST_MS = int(datetime(9900, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""far enough from what `datetime` can hold that a bucket may be added"""

_RELATIVE = re.compile(r"(?:now)?-([0-9]{1,9})([smhdw])")
_EPOCH_MS = re.compile(r"[0-9]{1,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
# A plus sign that nobody encoded arrives as a space.
_LOST_PLUS = re.compile(r"(?<=[0-9]) (?=[0-9]{2}:[0-9]{2}$)")


def parse(name: str, text: str, *, now_ms: int, zone: tzinfo) -> int:
    """Epoch milliseconds; a date alone is its midnight in `zone`."""
    moment_ms = _parse(text, now_ms=now_ms, zone=zone)
    if moment_ms is None:
        raise Problem(
            400,
            "bad_time",
            f"{name} = {text!r} is not a time; write RFC 3339 (2026-11-15T12:00:00Z), epoch ms, or relative (-1h)",
            parameter=name,
        )
    if not EARLIEST_MS <= moment_ms <= LATEST_MS:
        raise Problem(400, "bad_time", f"{name} = {text!r} lies outside 1970 to 9900", parameter=name)
    return moment_ms


def _parse(text: str, *, now_ms: int, zone: tzinfo) -> int | None:
    if text == "now":
        return now_ms
    if relative := _RELATIVE.fullmatch(text):
        return now_ms - int(relative[1]) * UNITS_S[relative[2]] * 1000
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    try:
        if _DATE.fullmatch(text):
            return to_ms(datetime.combine(date.fromisoformat(text), clock_time(), tzinfo=zone))
        restored = _LOST_PLUS.sub("+", text)
        return to_ms(datetime.fromisoformat(restored.upper())) if _MOMENT.fullmatch(restored) else None
    except (ValueError, OverflowError):
        return None


def to_ms(moment: datetime) -> int:
    """Whole milliseconds, rounded down; without a detour over floats."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
