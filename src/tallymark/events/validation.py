"""Request bodies -> accepted events and refusals. In bulk when all is well, one by one when something is not."""

from dataclasses import dataclass, field

import msgspec

from tallymark.events import bodies, clocks, ids, pieces
from tallymark.events.bodies import UNDECODABLE, BadBody, Delivery
from tallymark.events.clocks import Clocks, RawTime
from tallymark.events.model import MAX_KEY_CHARS, MAX_TEXT_BYTES, NAME, Event, WideEvent
from tallymark.events.names import Names
from tallymark.events.refusals import Refused, check, check_name, check_text, check_time, check_value_names
from tallymark.events.tenants import MAIN

_event = msgspec.json.Decoder(Event)
_wide_event = msgspec.json.Decoder(WideEvent)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that was not taken: where it stood, why, and its text as sent."""

    index: int
    code: str
    detail: str
    raw: bytes
    retryable: bool = False
    id: str | None = None
    """under which to send it again, where that is worth it"""


@dataclass(slots=True)
class Accepted:
    """The good events of one request, with corrected times and ids, and the refusals of the others."""

    events: list[Event]
    indexes: list[int]
    """where each stood in the request"""
    times: list[int]
    shifts: list[int] | None
    """what each time was corrected by; None if nothing was"""
    received_ms: int
    keys: set[str]
    """of all their properties"""
    refusals: list[Refusal] = field(default_factory=list)
    random_ids: bool = False
    """some ids were made at random: a retry of those events cannot be recognised"""
    twins: list[list[int]] = field(default_factory=list)
    """groups of equal events whose ids were made from a key: only their number in a request tells them apart"""
    size_bytes: int = 0
    """of the request's body"""
    tenant: str = MAIN

    def add(self, event: Event, index: int, time: int, shift: int) -> None:
        self.events.append(event)
        self.indexes.append(index)
        self.times.append(time)
        if self.shifts is not None:
            self.shifts.append(shift)
        self.keys.update(event.props or ())


def validate(delivery: Delivery, believed: Clocks, *, max_events: int, names: Names | None = None) -> Accepted:
    """Every event of the body, either accepted or refused with its reason.

    Raises BadBody when nothing can be told apart, TooManyEvents over the limit.
    """
    quick = in_bulk(delivery, believed, max_events=max_events, names=names)
    return quick if quick is not None else one_by_one(delivery, believed, max_events=max_events, names=names)


def in_bulk(delivery: Delivery, believed: Clocks, *, max_events: int, names: Names | None = None) -> Accepted | None:
    """The events of a body in which all is well, None if something is not: then `one_by_one` says what."""
    if pieces.may_be_many(delivery.body, lines=delivery.lines, max_events=max_events):
        return None
    try:
        events, sent_at = bodies.decode(delivery)
        bodies.check_count(len(events), max_events)
        if not events:
            return None
        used = {event.event for event in events}
        keys = _check_in_bulk(events, used, delivery.body)
        times, shifts = _times(events, sent_at, delivery.received_ms, believed)
        if _any_outside(times, delivery.received_ms, believed):
            return None
        # Last: a name is remembered only for an event that is taken.
        if names is not None:
            names.admit(used)
    except (*UNDECODABLE, Refused):
        return None
    accepted = Accepted(events, list(range(len(events))), times, shifts, delivery.received_ms, keys)
    _finish(accepted, delivery)
    return accepted


def one_by_one(delivery: Delivery, believed: Clocks, *, max_events: int, names: Names | None = None) -> Accepted:
    """Like `in_bulk`, but each event is judged by itself; ten times slower."""
    raws, sent_at = bodies.split(delivery, max_events=max_events)
    if not raws:
        raise BadBody("no_events", "the body has no events")
    accepted = Accepted([], [], [], [], delivery.received_ms, set())
    new_names = 0
    for index, raw in enumerate(raws):
        try:
            event = _one(raw)
            (time,), shifts = _times([event], sent_at, delivery.received_ms, believed)
            if _any_outside([time], delivery.received_ms, believed):
                raise _outside(time, delivery.received_ms, believed)
            if names is not None:
                new_names += names.admit({event.event}, added=new_names)
        except Refused as refused:
            accepted.refusals.append(Refusal(index, refused.code, refused.detail, raw))
        else:
            accepted.add(event, index, time, shifts[0] if shifts else 0)
    if not accepted.events and all(refusal.code in _UNPARSABLE for refusal in accepted.refusals):
        raise BadBody(accepted.refusals[0].code, accepted.refusals[0].detail)
    _finish(accepted, delivery)
    return accepted


_UNPARSABLE = {"bad_json", "too_deep"}


def _check_in_bulk(events: list[Event], used: set[str], body: bytes) -> set[str]:
    """The keys of their properties, once what the typed decoder cannot say holds for all; raises Refused if not."""
    for name in used:
        if not NAME.fullmatch(name):
            check_name(name)
    keys = _keys(events)
    names = {name for event in events if event.values for name in event.values}
    lengths = {*map(len, keys), *map(len, names)}
    if lengths and not 0 < min(lengths) <= max(lengths) <= MAX_KEY_CHARS:
        raise Refused("bad_props", "a key is empty or too long")
    # Searching for one byte is memchr; searching for the six of an escaped NUL costs 40 times that.
    escapes = b"\\" in body
    if escapes and b"\\u0000" in body:
        for event in events:
            _check_texts(event)
    elif len(body) > MAX_TEXT_BYTES and (escapes or not body.isascii()):
        # Only here can a text that is within the limit in characters be over it in bytes.
        for event in events:
            _check_sizes(event)
    for event in events:
        if event.resent is not None:
            check_time("resent", event.resent)
    return keys


def _keys(events: list[Event]) -> set[str]:
    return set().union(*[event.props for event in events if event.props])


def _check_texts(event: Event) -> None:
    for text in (event.id or "", *(event.props or ()), *(event.values or ())):
        if "\0" in text:
            raise Refused("bad_text", "a text contains U+0000")
    for value in (event.props or {}).values():
        if type(value) is str:
            check_text("a property", value)
    _check_sizes(event)


def _check_sizes(event: Event) -> None:
    for value in (event.props or {}).values():
        if type(value) is str and len(value) * 4 > MAX_TEXT_BYTES:
            check_text("a property", value)
    if event.values:
        check_value_names(list(event.values))


def _one(raw: bytes) -> Event:
    """One event, or Refused with the exact reason."""
    try:
        event = _event.decode(raw)
        _check_in_bulk([event], {event.event}, raw)
        return event
    except (*UNDECODABLE, Refused):
        check(raw)
    try:
        # Nothing is wrong with it but whole numbers that need more than 64 bits.
        return _wide_event.decode(raw)
    except msgspec.DecodeError as error:
        raise Refused("bad_json", str(error)) from None


def _times(
    events: list[Event], sent_at: RawTime, received_ms: int, believed: Clocks
) -> tuple[list[int], list[int] | None]:
    """Corrected times, and what they were corrected by; raises Refused if one of them is bad."""
    given = [event.time for event in events]
    try:
        times = clocks.column(given, missing=received_ms)
    except clocks.BadTime as error:
        raise Refused("bad_time", f"`time`: {error}") from None
    own = [event.sent_at for event in events]
    if sent_at is None and own.count(None) == len(own):
        return times, None
    for sent in own:
        check_time("sent_at", sent)
    shifts = _shifts(given, own, sent_at, received_ms, believed)
    return [time + shift for time, shift in zip(times, shifts, strict=True)], shifts


def _shifts(
    given: list[RawTime], own: list[RawTime], sent_at: RawTime, received_ms: int, believed: Clocks
) -> list[int]:
    """What corrects each time: by its own `sent_at` or the request's, and not at all if it is our own clock's."""
    common = 0 if sent_at is None else believed.shift(clocks.milliseconds(sent_at), received_ms)
    shifts = []
    for time, sent in zip(given, own, strict=True):
        if time is None:
            shifts.append(0)
        elif sent is None:
            shifts.append(common)
        else:
            shifts.append(believed.shift(clocks.milliseconds(sent), received_ms))
    return shifts


def _any_outside(times: list[int], received_ms: int, believed: Clocks) -> bool:
    return min(times) < received_ms - believed.accept_past_ms or max(times) > received_ms + believed.accept_future_ms


def _outside(time_ms: int, received_ms: int, believed: Clocks) -> Refused:
    if time_ms > received_ms:
        ahead, limit = (time_ms - received_ms) / 1000, believed.accept_future_ms / 1000
        return Refused("too_new", f"`time` is {ahead:,.1f} s ahead of now; events.accept_future_s = {limit:,.0f}")
    age, limit = (received_ms - time_ms) / 1000, believed.accept_past_ms / 1000
    hint = "; it looks like seconds, but epoch times are in milliseconds" if 10**8 <= time_ms < 10**10 else ""
    return Refused("too_old", f"`time` is {age:,.1f} s old; events.accept_past_s = {limit:,.0f}{hint}")


def _finish(accepted: Accepted, delivery: Delivery) -> None:
    """Give an id to every event without one, and turn `resent` into our clock's milliseconds."""
    accepted.size_bytes = len(delivery.body)
    without = [position for position, event in enumerate(accepted.events) if event.id is None]
    if delivery.idempotency_key is not None:
        _ids_from_key(accepted, without, delivery.idempotency_key)
    elif without:
        accepted.random_ids = True
        for position, made in zip(without, ids.random_ids(len(without)), strict=True):
            accepted.events[position].id = made
    for position, event in enumerate(accepted.events):
        if event.resent is not None:
            shift = accepted.shifts[position] if accepted.shifts is not None else 0
            event.resent = clocks.milliseconds(event.resent) + shift


def _ids_from_key(accepted: Accepted, without: list[int], key: str) -> None:
    equal: dict[bytes, list[int]] = {}
    for position in without:
        event = accepted.events[position]
        content = ids.content(event)
        places = equal.setdefault(content, [])
        event.id = ids.from_key(key, content, len(places))
        places.append(position)
    accepted.twins = [places for places in equal.values() if len(places) > 1]
