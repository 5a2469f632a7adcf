"""How long a stretch may be: Kafka knows neither its events nor its bytes, so some of its records are looked at."""

from collections.abc import Callable
from typing import Any

from tallymark.log.kafka.counts import events_of

# A stretch of so few records is taken whole: looking into them would cost more than it bounds.
FEW = 8
SAMPLE = 16
MOST_RECORDS = 4_096
# Shorter by less than this is not worth another look.
_NEAR = 0.8

Peek = Callable[[int, int], list[Any]]
"""The messages in start <= offset < end that can be read."""


def fitting_end(peek: Peek, start: int, end: int, *, max_events: int, max_bytes: int) -> int:
    """Where a stretch from `start`, at most to `end`, stays within both limits; it has a record if there is one.

    Up to 8 records are taken whole. Of more, the first 16 are looked at, and the stretch is as long as if all were
    like them, up to 4,096 records. Then 16 before its end and 16 in its middle are looked at, and it is shortened until
    it would fit if all were like the largest of these. Only larger frames between these places are not seen.
    """

    def room(events: int, size: int, records: int) -> int:
        return int(records * min(max_events / max(events, 1), max_bytes / max(size, 1)))

    def room_at(place: int) -> int:
        sample = peek(place - SAMPLE, place)
        return room(sum(map(events_of, sample)), sum(map(len, sample)), SAMPLE)

    if end - start <= FEW:
        return end
    events = size = 0
    looked_to = min(end, start + SAMPLE)
    for message in peek(start, looked_to):
        events, size = events + events_of(message), size + len(message)
        if events > max_events or size > max_bytes:
            return int(max(message.offset(), start + 1))
    end = min(end, start + min(room(events, size, looked_to - start), MOST_RECORDS))
    while end - start > 2 * SAMPLE:
        fits = min(room_at(end), room_at((start + end) // 2))
        if fits >= _NEAR * (end - start):
            return end
        # The first 16 are known to fit.
        end = start + max(fits, SAMPLE)
    return end
