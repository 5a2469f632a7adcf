"""What a stored window holds: for each series its labels, and a number for each function."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import msgspec

from tallymark.aggregates.functions import Value

VERSION = 1

# Exact sums are texts, digit by digit.
_Packed = tuple[int, list[list[str]], list[list[int | float | str | None]]]
_decoder = msgspec.msgpack.Decoder(_Packed)


@dataclass(frozen=True, slots=True)
class Content:
    """By columns: one for each label of BY, one for each function. Without BY it has one row; none if nothing came."""

    labels: Sequence[Sequence[str]]
    values: Sequence[Sequence[Value]]


def encode(content: Content) -> bytes:
    return msgspec.msgpack.encode((VERSION, content.labels, content.values))


def decode(body: bytes) -> Content:
    version, labels, values = _decoder.decode(body)
    if version != VERSION:
        raise ValueError(f"a stored window has format {version}, but this version of Tallymark reads {VERSION}")
    return Content(labels, [[Decimal(each) if isinstance(each, str) else each for each in column] for column in values])
