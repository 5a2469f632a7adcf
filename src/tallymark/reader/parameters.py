"""Python values as the parameters of a question."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from tallymark.events.labels import label

Moment = str | int | datetime | date | timedelta
"""RFC 3339, epoch milliseconds, or relative to now: "-1h" or timedelta(hours=-1)"""
Duration = str | timedelta
LabelValue = str | int | float | bool | None
Labels = Mapping[str, LabelValue | Iterable[LabelValue]]

PARAMETERS = (
    "by", "compare", "consistency", "fn", "format", "from", "k", "late", "limit", "over", "q", "rank", "step", "tenant",
    "to", "tz", "window", "with",
)  # fmt: skip
"""names that HTTP gives a meaning, so that a keyword of such a name cannot be a label"""

_UNITS_S = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def path(meter: str, kind: str, parameters: Iterable[tuple[str, str]]) -> str:
    """The path of a question about a meter."""
    return f"/v1/meters/{quote(meter, safe='')}/{kind}?{urlencode(list(parameters))}"


def pairs(asked: Mapping[str, Any], *, where: Labels | None, labels: Labels, question: str) -> list[tuple[str, str]]:
    """The parameters that are not None, and the filters.

    Labels given as keywords go out under their plain names: if one is a typo of a parameter (`form` for `from_`), the
    server can say so.
    """
    for name in labels:
        if name in PARAMETERS:
            raise TypeError(f"{question}() takes no {name}; for a label of that name use where={{{name!r}: …}}")
    given = [(name, text) for name, value in asked.items() if value is not None for text in _texts(name, value)]
    given += [(name, text) for name, value in labels.items() for text in _label_texts(name, value)]
    return given + [
        (f"label.{name}", text) for name, value in (where or {}).items() for text in _label_texts(name, value)
    ]


def _texts(name: str, value: Any) -> list[str]:
    if name in ("from", "to"):
        return [moment_text(name, value)]
    if isinstance(value, timedelta):
        return [duration_text(name, value)]
    if isinstance(value, str | int) and not isinstance(value, bool):
        return [str(value)]
    if isinstance(value, Iterable):
        return [str(each) for each in value]
    raise TypeError(f"{name} = {value!r} is neither a text nor a list of texts")


def _label_texts(name: str, value: object) -> list[str]:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)
    values = list(value) if is_list else [value]  # type: ignore[call-overload]
    if not values:
        # Without this, an empty list would be no filter at all, and the answer that of every series.
        raise ValueError(f"{name} is an empty list, which no series matches; leave {name} out to ask for all of them")
    try:
        return [label(each) for each in values]
    except TypeError:
        raise TypeError(
            f"{name} = {value!r}: a label is a text, a number, a boolean, None, or a list of those"
        ) from None


def moment_text(name: str, value: Moment) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name} = {value!r} has no time zone; use datetime.now(UTC) or .astimezone()")
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        if value > timedelta(0):
            raise ValueError(f"{name} = {value!r} is in the future; for an hour ago use timedelta(hours=-1)")
        return f"-{duration_text(name, -value)}" if value else "now"
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"{name} = {value!r} is no time; use a datetime, a text such as '-1h', or epoch milliseconds")


def duration_text(name: str, value: timedelta) -> str:
    """`5m`: the largest unit that fits."""
    seconds, rest = divmod(value, timedelta(seconds=1))
    if rest or seconds < 1:
        raise ValueError(f"{name} = {value!r} is not a whole number of seconds from 1")
    unit, length_s = next((unit, length_s) for unit, length_s in _UNITS_S if seconds % length_s == 0)
    return f"{seconds // length_s}{unit}"
