"""What can happen to an event other than delivery, as the callbacks `on_refused` and `on_dropped` get it."""

import msgspec

FULL = "full"
CLOSED = "closed"
SPILL_FULL = "spill_full"
SPILL_FAILED = "spill_failed"
DAMAGED = "damaged"
TOO_LARGE = "too_large"


class Refused(msgspec.Struct, frozen=True):
    """An event that the collector refused for good: sending it again changes nothing."""

    event: bytes
    """as it was sent: a JSON object"""
    id: str
    code: str
    detail: str


class Dropped(msgspec.Struct, frozen=True):
    """An event that the client gave up.

    `reason`: full, closed, spill_full, spill_failed (its file could not be written or read), damaged (its file does
    not have what was written; then `event` and `id` are empty, one Dropped for each event that the file had).
    """

    event: bytes
    id: str
    reason: str
