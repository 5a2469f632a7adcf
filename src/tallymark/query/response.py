"""What goes back over HTTP: status, headers and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tallymark.http import JSON_HEADERS

# Decimals are printed digit by digit, as numbers: 0.30, never 0.30000000000000004.
_ENCODER = msgspec.json.Encoder(decimal_format="number")
NOT_STORED = ("cache-control", "no-store")


def encode(data: Any) -> bytes:
    return _ENCODER.encode(data)


@dataclass(frozen=True, slots=True)
class Response:
    """A complete HTTP response."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    made_ms: int | None = None
    """when it was computed, if that may have been a while ago"""


def json_response(data: Any, *, status: int = 200) -> Response:
    return Response(status, [*JSON_HEADERS, NOT_STORED], encode(data))
