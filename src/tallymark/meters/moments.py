"""SINCE and UNTIL: how long ago, a moment or a date, each in the one form that questions take."""

import re
from datetime import UTC, date, datetime

from tallymark.meters import durations
from tallymark.meters.errors import shown

NOW = "now"
FORM = "write how long ago (1h), a moment (2026-11-15T12:00:00Z) or a date (2026-11-15)"

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
    r"(?P<zone>[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9900, 1, 1, tzinfo=UTC)


class BadMoment(ValueError):
    """Not a moment; the message says why and the way out."""


def canonical(text: str) -> str:
    """The one form of a moment; raises BadMoment."""
    if text.lower() == NOW:
        return NOW
    if (ago_s := durations.seconds(text.removeprefix("-"))) is not None:
        return _ago(text, ago_s)
    try:
        if _DATE.fullmatch(text):
            return _inside(datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)).date().isoformat()
        if found := _MOMENT.fullmatch(text):
            return _utc(_inside(datetime.fromisoformat(_zoned(text, found["zone"])).astimezone(UTC)))
    except BadMoment:
        raise
    except (ValueError, OverflowError):
        raise BadMoment(f"{text!r} is not in the calendar") from None
    raise BadMoment(f"{shown(text)} is not a time; {FORM}")


def is_before(earlier: str, later: str) -> bool | None:
    """Of two canonical forms; None if only the clock can tell."""
    ago = [0 if each == NOW else durations.seconds(each.removeprefix("-")) for each in (earlier, later)]
    if ago[0] is not None and ago[1] is not None:
        return ago[0] > ago[1]
    if ago == [None, None] and ("T" in earlier) == ("T" in later):
        return datetime.fromisoformat(earlier) < datetime.fromisoformat(later)
    return None


def _ago(text: str, ago_s: int) -> str:
    if ago_s > durations.LONGEST_S:
        most = durations.spelled(durations.LONGEST_S)
        raise BadMoment(f"{text!r} is longer ago than {most}; write a date")
    return f"-{durations.spelled(ago_s)}" if ago_s else NOW


def _zoned(text: str, zone: str | None) -> str:
    if zone is None:
        raise BadMoment(f"{text!r} has no time zone; write {text}Z for UTC, or add one like +01:00")
    return text.upper()


def _inside(moment: datetime) -> datetime:
    if not _EARLIEST <= moment <= _LATEST:
        raise BadMoment(f"{moment.isoformat()} lies outside 1970 to 9900")
    return moment


def _utc(moment: datetime) -> str:
    """Whole milliseconds, none if they are zero: questions round down to them."""
    rest = moment.microsecond // 1000
    return f"{moment.replace(tzinfo=None, microsecond=0).isoformat()}{f'.{rest:03d}' if rest else ''}Z"
