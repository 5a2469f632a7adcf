"""Taking in dead letters: the collector's refused events, from the stream `dead` into the store, each once."""

import logging
import time
from collections.abc import Iterator

import msgspec

from tallymark import telemetry
from tallymark.keeper.streams import Stream
from tallymark.log.protocol import LogDamaged, LogReader, Record
from tallymark.store.model import DeadLetter, Stretch
from tallymark.store.protocol import DeadLetters

logger = logging.getLogger(__name__)

MAX_EVENTS = 2_000
MAX_BYTES = 4_000_000

_decoder = msgspec.msgpack.Decoder(list[DeadLetter])


def take_in_letters(dead_letters: DeadLetters, stream: Stream) -> bool:
    """Takes in one stretch; True if more waits."""
    with stream.opened() as reader:
        return False if reader is None else _take_in(dead_letters, reader)


def _take_in(dead_letters: DeadLetters, reader: LogReader) -> bool:
    start = _start(dead_letters, reader)
    synced = reader.positions()[0].synced
    if start >= synced:
        return False
    end = reader.bounded_end(0, start, max_events=MAX_EVENTS, max_bytes=MAX_BYTES)
    letters = list(_letters(reader, start, end))
    if dead_letters.take_in(reader.identity, Stretch(0, start, end), letters):
        telemetry.KEEPER_LETTERS.inc(sum(letter.events for letter in letters))
    return end < synced


def _start(dead_letters: DeadLetters, reader: LogReader) -> int:
    start, first = dead_letters.position(reader.identity), reader.positions()[0].first
    if start >= first:
        return start
    logger.error(
        "%d records of dead letters, [%d, %d), were dropped before they were taken in: log.dead_bytes is too small"
        " for what is refused",
        first - start,
        start,
        first,
    )
    telemetry.KEEPER_LETTERS_LOST.inc(first - start)
    dead_letters.take_in(reader.identity, Stretch(0, start, first), [])
    return first


def _letters(reader: LogReader, start: int, end: int) -> Iterator[DeadLetter]:
    while start < end:
        try:
            for record in reader.read(0, start, end):
                yield from _decoded(record)
                start += 1
        except LogDamaged as error:
            logger.error("record %d of the dead letters cannot be read, and is passed over: %s", start, error)
            events = reader.events_in(0, start, start + 1)
            yield DeadLetter(
                "collector", "letter_unreadable", str(error)[-500:], events, b"", time.time_ns() // 1_000_000
            )
            start += 1


def _decoded(record: Record) -> list[DeadLetter]:
    try:
        return _decoder.decode(record.payload)
    except msgspec.DecodeError as error:
        # Still someone's events: kept as they are, so that the way on is not barred.
        return [
            DeadLetter("collector", "letter_unreadable", str(error), record.events, record.payload, record.append_ms)
        ]
