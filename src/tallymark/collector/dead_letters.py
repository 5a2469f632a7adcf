"""Refused events on their way to the dead letters: kept with their reason, so that they can be put back."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from tallymark.events.frame import MAX_FRAME_BYTES
from tallymark.events.validation import Accepted, Refusal
from tallymark.log.protocol import Outgoing
from tallymark.store.model import DeadLetter

STREAM = "dead"
HOP = "collector"
# 15 kB of gzip can be 16 MB of refused events: what is kept of them must not be what fills the disk.
MAX_RAW_BYTES = 16_000
MAX_REQUEST_BYTES = 1_000_000
# Around the text of an event: its reason, time and place.
ENVELOPE_BYTES = 100


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """One record of the stream `dead`."""

    record: Outgoing
    kept: int
    """of its events, those whose text is in it; the others are only counted"""


def dead_records(requests: Iterable[Accepted]) -> Iterator[DeadRecord]:
    """The refused events of these requests in records of a frame's size, each a msgpack list of letters."""
    letters: list[DeadLetter] = []
    size = 0
    for letter in (letter for request in requests for letter in _letters(request)):
        if letters and size + _size(letter) > MAX_FRAME_BYTES:
            yield _dead_record(letters)
            letters, size = [], 0
        letters.append(letter)
        size += _size(letter)
    if letters:
        yield _dead_record(letters)


def _letters(request: Accepted) -> Iterator[DeadLetter]:
    """A letter for each refused event while there is room, then one for each reason with the number of the rest."""
    size = 0
    rest: Counter[str] = Counter()
    for refusal in request.refusals:
        letter = _letter(refusal, request)
        size += _size(letter)
        if size <= MAX_REQUEST_BYTES:
            yield letter
        else:
            rest[refusal.code] += 1
    for code, events in rest.items():
        detail = f"{events:,} more from this request are only counted: its letters exceed {MAX_REQUEST_BYTES:,} bytes"
        yield DeadLetter(HOP, code, detail, events, b"", request.received_ms, tenant=request.tenant)


def _letter(refusal: Refusal, request: Accepted) -> DeadLetter:
    raw, detail = refusal.raw, refusal.detail
    if len(raw) > MAX_RAW_BYTES:
        detail = f"{detail} (the first {MAX_RAW_BYTES:,} of its {len(raw):,} bytes are kept)"
    kept, at_ms = raw[:MAX_RAW_BYTES], request.received_ms
    return DeadLetter(HOP, refusal.code, detail, events=1, raw=kept, at_ms=at_ms, tenant=request.tenant)


def _size(letter: DeadLetter) -> int:
    return len(letter.raw) + len(letter.detail) + ENVELOPE_BYTES


def _dead_record(letters: list[DeadLetter]) -> DeadRecord:
    record = Outgoing(0, msgspec.msgpack.encode(letters), sum(letter.events for letter in letters))
    return DeadRecord(record, sum(letter.events for letter in letters if letter.raw))
