"""How many events a body has, found out before any of them takes memory."""

import re
from itertools import islice

import numpy as np

# Decoded, a piece takes 100 to 150 bytes, however short it is: this many may be made without being counted first.
MAX_UNCOUNTED = 100_000
# The shortest event is `{"event":"a"}`; a shorter body than this needs no look at all.
_NEVER_MANY_BYTES = MAX_UNCOUNTED * len(b'{"event":"a"}')
_CHUNK_BYTES = 1 << 18
_LINE = re.compile(rb"\S[^\n]*")
_COMMA, _QUOTE = ord(","), ord('"')
# Square and curly brackets differ by this one bit.
_CURLY, _OPENING, _CLOSING = 0x20, ord("{"), ord("}")


def may_be_many(body: bytes, *, lines: bool, max_events: int) -> bool:
    """Whether decoding all events of the body at once could make far more of them than are allowed."""
    if len(body) <= _NEVER_MANY_BYTES:
        return False
    most = body.count(b"\n") + 1 if lines else min(body.count(b"{"), body.count(b",") + 1)
    return most > max(MAX_UNCOUNTED, max_events)


def first_lines(body: bytes, count: int) -> list[bytes]:
    """The first so many lines that are not blank; the others are not even looked at."""
    return [match.group().rstrip() for match in islice(_LINE.finditer(body), count)]


def elements(body: bytes, *, level: int) -> int:
    """At least as many elements as the list that is opened as the `level`-th bracket has, if the body is JSON.

    Counted by the commas at that depth, a stretch at a time, without cutting anything.
    """
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # then every quote begins or ends a text
    commas = depth = quotes = 0
    for start in range(0, len(body), _CHUNK_BYTES):
        text = np.frombuffer(body, np.uint8, min(_CHUNK_BYTES, len(body) - start), start)
        before = quotes + np.cumsum(text == _QUOTE)
        outside = before % 2 == 0
        brackets = text | _CURLY
        steps = (brackets == _OPENING).astype(np.int8) - (brackets == _CLOSING)
        depths = depth + np.cumsum(steps * outside, dtype=np.int64)
        commas += int(np.count_nonzero((text == _COMMA) & outside & (depths == level)))
        quotes, depth = int(before[-1]), int(depths[-1])
    return commas + 1
