"""The three clocks of an event: when it happened and when it was sent (the client's), when it was received (ours)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, cast

import msgspec
import pyarrow as pa

RawTime = str | int | float | None

# Beyond it (the year 287,396) sums of times could leave int64, and no clock means it.
FURTHEST_MS = 2**53


class BadTime(ValueError):
    """Not a time: neither RFC 3339 with a zone nor epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """What is believed of clients' clocks."""

    accept_past_ms: int
    accept_future_ms: int
    tolerance_ms: int

    def shift(self, sent_ms: int, received_ms: int) -> int:
        """How far the client's clock is behind ours; small differences are network, not clock."""
        difference = received_ms - sent_ms
        return difference if abs(difference) > self.tolerance_ms else 0


def milliseconds(time: RawTime) -> int:
    """Epoch milliseconds of one time as sent; raises BadTime."""
    if isinstance(time, str):
        return _parsed(time)
    if time is None or isinstance(time, bool) or not -FURTHEST_MS < time < FURTHEST_MS:
        raise BadTime(f"{time} is not a time: give RFC 3339 with a zone, or epoch milliseconds")
    return int(time // 1)


def column(times: Sequence[RawTime], *, missing: int) -> list[int]:
    """Epoch milliseconds of many times at once, `missing` where there is none; raises BadTime if one is bad."""
    kinds = set(map(type, times))
    if kinds == {int}:
        numbers = cast(list[int], times)
        if not -FURTHEST_MS < min(numbers) <= max(numbers) < FURTHEST_MS:
            raise BadTime("a time is out of range")
        return numbers
    if kinds == {str} and len(times) >= WORTH_A_COLUMN:
        try:
            return _arrow(cast(list[str], times))
        except pa.ArrowInvalid:
            pass  # another spelling, or a bad one: one by one says which
    return [missing if time is None else milliseconds(time) for time in times]


# Fewer than this are read faster one by one.
WORTH_A_COLUMN = 32
# The common spelling, which all the parsers below read as the same moment.
_COMMON = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_NS = pa.timestamp("ns", "UTC")
_ZONED = Annotated[datetime, msgspec.Meta(tz=True)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def _parsed(text: str) -> int:
    try:
        if _COMMON.fullmatch(text):
            return (datetime.fromisoformat(text) - _EPOCH) // _MILLISECOND
    except ValueError:
        pass
    # Arrow before msgspec, as for a whole column, so that an event is judged the same alone and in company.
    try:
        return _arrow([text])[0]
    except pa.ArrowInvalid:
        pass
    try:
        return (msgspec.convert(text, _ZONED) - _EPOCH) // _MILLISECOND
    except (msgspec.ValidationError, OverflowError):
        raise BadTime(f"{_shown(text)} is not a time: give RFC 3339 with a zone, or epoch milliseconds") from None


def _arrow(texts: list[str]) -> list[int]:
    nanoseconds = pa.array(texts, pa.string()).cast(_NS).view(pa.int64()).to_numpy()
    milliseconds_: list[int] = (nanoseconds // 1_000_000).tolist()
    return milliseconds_


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
