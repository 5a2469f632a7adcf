"""From a call to bytes, and from bytes to the body of a request."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from time import time_ns
from typing import Any

import msgspec

from tallymark.events.model import (
    MAX_ID_CHARS,
    MAX_KEY_CHARS,
    MAX_PROPS,
    MAX_TEXT_BYTES,
    MAX_VALUE_NAMES_BYTES,
    MAX_VALUES,
    NAME,
    NAME_RULE,
    WIDEST_INT,
)

Scalar = str | int | float | bool | None
Time = int | float | str | datetime

_PLAIN = frozenset((bool, type(None)))
_known_names: set[str] = set()
_MOST_KNOWN_NAMES = 10_000
BACKSLASH = ord("\\")


class _Event(msgspec.Struct, omit_defaults=True, gc=False):
    event: str
    id: str
    time: int | str
    value: float | None = None
    values: Mapping[str, float] | None = None
    props: Mapping[str, Scalar] | None = None


class _Identified(msgspec.Struct, gc=False):
    id: str = ""


_encode = msgspec.json.Encoder().encode
_identified = msgspec.json.Decoder(_Identified)


def encode_count(name: str, id: str, props: dict[str, Scalar]) -> bytes:
    """The cheapest event: a name and properties, now."""
    if name not in _known_names:
        check_name(name)
    return _encoded(_Event(name, id, time_ns() // 1_000_000, None, None, plain(props) if props else None))


def encode_event(
    name: str,
    id: str,
    *,
    time: Time | None = None,
    value: float | None = None,
    values: Mapping[str, float] | None = None,
    props: Mapping[str, Scalar] | None = None,
) -> bytes:
    """An event as JSON; raises TypeError or ValueError that says what is wrong."""
    if name not in _known_names:
        check_name(name)
    if not isinstance(id, str):
        raise TypeError(f"id is {id!r}; it must be a string")
    if not 1 <= len(id) <= MAX_ID_CHARS or "\0" in id:
        raise ValueError(f"id has {len(id):,} characters; 1 to {MAX_ID_CHARS} are allowed, and no U+0000")
    return _encoded(
        _Event(
            name,
            id,
            time_ns() // 1_000_000 if time is None else _moment(time),
            None if value is None else _number("value", value),
            _numbers(_named("value", values)) if values else None,
            plain(_named("property", props)) if props else None,
        )
    )


def id_of(event: bytes) -> str:
    return _identified.decode(event).id


def body(events: Sequence[bytes], *, resent_ms: int = 0) -> bytes:
    """A JSON array; with `resent_ms`, each event says that it may already have arrived, and when it was first sent."""
    if not resent_ms:
        return b"[%b]" % b",".join(events)
    tail = b',"resent":%d}' % resent_ms
    return b"[%b%b]" % ((tail + b",").join(event[:-1] for event in events), tail)


def check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the event's name is {name!r}; it must be a string")
    if not NAME.fullmatch(name):
        raise ValueError(f"the event's name is {name[:200]!r}; it must match {NAME_RULE}")
    if len(_known_names) < _MOST_KNOWN_NAMES:
        _known_names.add(name)


def plain(props: Mapping[str, Any]) -> Mapping[str, Scalar]:
    """The properties, if they are such; numbers of other kinds (numpy's) become Python's."""
    if len(props) > MAX_PROPS:
        raise ValueError(f"{len(props):,} properties; at most {MAX_PROPS} are allowed")
    for value in props.values():
        kind = type(value)
        if kind is str or (kind is int and -WIDEST_INT <= value <= WIDEST_INT):
            continue
        # NaN and infinity are the floats for which x - x is not 0.
        if kind not in _PLAIN and not (kind is float and value - value == 0.0):
            return {key: _scalar(key, value) for key, value in props.items()}
    return props


def _named(what: str, named: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in named:
        if type(key) is not str:
            raise TypeError(f"a {what} is named {key!r}; names must be strings")
    return named


def _scalar(key: str, value: object) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if abs(value) > WIDEST_INT:
            raise ValueError(f"property {key!r} is a whole number beyond ±2**64; send it as text")
        return int(value)
    if isinstance(value, float):
        return _number(f"property {key!r}", value)
    raise TypeError(f"property {key!r} is {value!r:.80}; it must be a string, a number, a boolean or None")


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{where} is {value!r:.80}; it must be a finite number")
    try:
        if isfinite(value):
            return value if type(value) in (int, float) else float(value)
    except OverflowError:
        pass
    raise ValueError(f"{where} is {str(value)[:80]}; it must be a finite number")


def _numbers(values: Mapping[str, float]) -> dict[str, float]:
    if len(values) > MAX_VALUES:
        raise ValueError(f"{len(values):,} values; at most {MAX_VALUES:,} are allowed in one event")
    checked = {}
    for key, value in values.items():
        checked[key] = value if type(value) is float and value - value == 0.0 else _number(f"value {key!r}", value)
    return checked


def _moment(time: Time) -> int | str:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"time is {time.isoformat()} without a zone; give it one, as in datetime.now(UTC)")
        return int(time.timestamp() * 1000)
    if isinstance(time, str):
        try:
            if datetime.fromisoformat(time).tzinfo is not None and "T" in time:
                return time
        except ValueError:
            pass
        raise ValueError(f"time is {time[:80]!r}; give RFC 3339 with a zone, epoch milliseconds, or a datetime")
    return int(_number("time", time))


def _encoded(event: _Event) -> bytes:
    encoded = _encode(event)
    # What is this short has no text or name that is too long, and U+0000 is written with a backslash: so most events
    # need no look at each of their texts, which takes longer than all the rest.
    if len(encoded) > MAX_KEY_CHARS or BACKSLASH in encoded or ((props := event.props) and "" in props) or event.values:
        _check_texts(event)
    return encoded


def _check_texts(event: _Event) -> None:
    for where, named in (("property", event.props or {}), ("value", event.values or {})):
        for key, value in named.items():
            if not 1 <= len(key) <= MAX_KEY_CHARS or "\0" in key:
                raise ValueError(
                    f"a {where} is named {key[:40]!r}; names have 1 to {MAX_KEY_CHARS} characters and no U+0000"
                )
            if not isinstance(value, str):
                continue
            if "\0" in value:
                raise ValueError(f"property {key!r} contains U+0000")
            if len(value) * 4 > MAX_TEXT_BYTES and (size := len(value.encode())) > MAX_TEXT_BYTES:
                raise ValueError(f"property {key!r} has {size:,} bytes; at most {MAX_TEXT_BYTES:,} are allowed")
    if event.values and (size := sum(len(key.encode()) for key in event.values)) > MAX_VALUE_NAMES_BYTES:
        raise ValueError(f"the names of the values have {size:,} bytes; at most {MAX_VALUE_NAMES_BYTES:,}")
