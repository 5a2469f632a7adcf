"""Refused events on their way to the dead letters: kept with their reason, so that they can be put back."""

from collections.abc import Iterable, Iterator

import msgspec

from tallymark.events.frame import MAX_FRAME_BYTES
from tallymark.events.validation import Refusal
from tallymark.log.protocol import Outgoing
from tallymark.store.model import DeadLetter

STREAM = "dead"
HOP = "collector"


def outgoing(refusals: Iterable[tuple[int, Refusal]]) -> Iterator[Outgoing]:
    """(received_ms, refusal) pairs as records of the stream `dead`, each a msgpack list within a frame's size."""
    letters: list[DeadLetter] = []
    size = 0
    for received_ms, refusal in refusals:
        if letters and size + len(refusal.raw) > MAX_FRAME_BYTES:
            yield _record(letters)
            letters, size = [], 0
        letters.append(DeadLetter(HOP, refusal.code, refusal.detail, events=1, raw=refusal.raw, at_ms=received_ms))
        size += len(refusal.raw) + len(refusal.detail) + 64
    if letters:
        yield _record(letters)


def _record(letters: list[DeadLetter]) -> Outgoing:
    return Outgoing(0, msgspec.msgpack.encode(letters), len(letters))
