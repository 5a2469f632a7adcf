"""The three clocks of an event: when it happened and when it was sent (the client's), when it was received (ours)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

RawTime = str | int | float | None
Milliseconds = npt.NDArray[np.int64]

# Beyond it (the year 287,396) sums of times could leave int64, and no clock means it.
FURTHEST_MS = 2**53
_NS = pa.timestamp("ns", "UTC")
_ZONED = Annotated[datetime, msgspec.Meta(tz=True)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def column(times: Sequence[RawTime], *, missing: int) -> Milliseconds:
    """Epoch milliseconds of many times at once, `missing` where there is none; raises BadTime if one is bad."""
    kinds = set(map(type, times))
    if kinds == {int}:
        numbers: Milliseconds = np.array(times, dtype=np.int64)
        if numbers.size and max(-int(numbers.min()), int(numbers.max())) >= FURTHEST_MS:
            raise BadTime("a time is out of range")
        return numbers
    if kinds == {str}:
        try:
            parsed: Milliseconds = pa.array(times, pa.string()).cast(_NS).view(pa.int64()).to_numpy() // 1_000_000
            return parsed
        except pa.ArrowInvalid:
            pass  # another spelling, or a bad one: one by one says which
    return np.array([missing if time is None else milliseconds(time) for time in times], dtype=np.int64)


def _parsed(text: str) -> int:
    # Arrow first, as for a whole column, so that an event is judged the same alone and in company.
    try:
        return int(pa.array([text], pa.string()).cast(_NS).view(pa.int64())[0].as_py() // 1_000_000)
    except pa.ArrowInvalid:
        pass
    try:
        return (msgspec.convert(text, _ZONED) - _EPOCH) // _MILLISECOND
    except (msgspec.ValidationError, OverflowError):
        raise BadTime(f"{_shown(text)} is not a time: give RFC 3339 with a zone, or epoch milliseconds") from None


_MILLISECOND = datetime(1970, 1, 1, 0, 0, 0, 1000) - datetime(1970, 1, 1)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
