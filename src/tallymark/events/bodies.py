"""The shapes a request body may have: one event, an array, an envelope, or lines."""

from dataclasses import dataclass

import msgspec

from tallymark.events import pieces
from tallymark.events.clocks import RawTime
from tallymark.events.model import Envelope, Event, Time
from tallymark.events.refusals import Refused, check_time, malformed

_events = msgspec.json.Decoder(list[Event])
_event = msgspec.json.Decoder(Event)
_envelope = msgspec.json.Decoder(Envelope)
_raws = msgspec.json.Decoder(list[msgspec.Raw])

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""what a decoder raises for a body that is not what it should be"""


class BadBody(ValueError):
    """Nothing in the body can be told apart as an event."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


class TooManyEvents(ValueError):
    """More events than one request may have."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: send smaller batches")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request as it arrived."""

    body: bytes
    received_ms: int
    lines: bool = False
    """NDJSON"""
    sent_at: RawTime = None
    idempotency_key: str | None = None


class _Shape(msgspec.Struct, gc=False):
    """Just enough of an object to see whether it is an envelope."""

    events: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    event: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _RawEnvelope(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    events: list[msgspec.Raw]
    sent_at: Time = None


_shape = msgspec.json.Decoder(_Shape)
_raw_envelope = msgspec.json.Decoder(_RawEnvelope)


def decode(delivery: Delivery) -> tuple[list[Event], RawTime]:
    """All events of the body at once, and when they were sent; raises UNDECODABLE."""
    body = delivery.body
    if delivery.lines:
        # `decode_lines` would also take two events on a line, or one on two; then nobody could say which line is which.
        return [_event.decode(line) for line in body.split(b"\n") if line], delivery.sent_at
    if _is_array(body):
        return _events.decode(body), delivery.sent_at
    if b'"events"' in body:
        envelope = _envelope.decode(body)
        return envelope.events, _sent_at(envelope.sent_at, delivery)
    return [_event.decode(body)], delivery.sent_at


def split(delivery: Delivery, *, max_events: int) -> tuple[list[bytes], RawTime]:
    """The body cut into the texts of its events, good or bad, and when they were sent.

    Raises BadBody, or TooManyEvents before it makes many pieces.
    """
    body = delivery.body
    if delivery.lines:
        lines = pieces.first_lines(body, max_events + 1)
        if len(lines) > max_events:
            raise TooManyEvents(f"more than {max_events:,} events in one request")
        return lines, delivery.sent_at
    try:
        texts, sent_at = _elements(delivery, max_events)
    except msgspec.ValidationError as error:
        raise BadBody(
            "bad_body", f"the body is neither an event, an array of events nor an envelope: {error}"
        ) from None
    except msgspec.DecodeError as error:
        raise BadBody("bad_json", f"the body is not JSON: {malformed(body, error)}") from None
    except UnicodeDecodeError as error:
        raise BadBody("bad_text", f"the body is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise BadBody("too_deep", "the body is nested too deeply") from None
    check_count(len(texts), max_events)
    return texts, sent_at


def check_count(count: int, max_events: int) -> None:
    if count > max_events:
        raise TooManyEvents(f"{count:,} events in one request; at most {max_events:,} are allowed")


def _elements(delivery: Delivery, max_events: int) -> tuple[list[bytes], RawTime]:
    body = delivery.body
    if _is_array(body):
        _check_commas(body, max_events, level=1)
        return [bytes(raw) for raw in _raws.decode(body)], delivery.sent_at
    shape = _shape.decode(body)
    if shape.events is msgspec.UNSET or shape.event is not msgspec.UNSET:
        return [body.strip()], delivery.sent_at
    _check_commas(body, max_events, level=2)
    envelope = _raw_envelope.decode(body)
    return [bytes(raw) for raw in envelope.events], _sent_at(envelope.sent_at, delivery)


def _check_commas(body: bytes, max_events: int, *, level: int) -> None:
    if body.count(b",") >= max(pieces.MAX_UNCOUNTED, max_events):
        check_count(pieces.elements(body, level=level), max_events)


def _is_array(body: bytes) -> bool:
    return body[:1] == b"[" or (body[:1].isspace() and body.lstrip()[:1] == b"[")


def _sent_at(inside: RawTime, delivery: Delivery) -> RawTime:
    if inside is None:
        return delivery.sent_at
    try:
        check_time("sent_at", inside)
    except Refused as refused:
        raise BadBody("bad_time", refused.detail) from None
    return inside
