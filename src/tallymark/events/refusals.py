"""Why an event is refused: a stable code, and words with the limit and the actual value."""

import math
from functools import lru_cache
from typing import Any

import msgspec

from tallymark.events import clocks
from tallymark.events.model import (
    FIELDS,
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
from tallymark.suggest import suggest

CODES = (
    "bad_json",
    "too_deep",
    "not_an_object",
    "unknown_field",
    "bad_event",
    "bad_id",
    "bad_time",
    "too_old",
    "too_new",
    "bad_value",
    "bad_values",
    "bad_props",
    "bad_number",
    "bad_text",
    "too_many_names",
    "too_large",
    "not_durable",
)


class Refused(ValueError):
    """An event that cannot be taken, ever: sending it again changes nothing."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


def check(raw: bytes) -> None:
    """Raise Refused for the first thing that is wrong with one event, given as JSON text."""
    fields = _decoded(raw)
    if not isinstance(fields, dict):
        raise Refused("not_an_object", f"an event is a JSON object, not {_kind(fields)}")
    for name in fields:
        if name not in FIELDS:
            raise Refused("unknown_field", f"unknown field {shown(name)}{_hint(name[:64])}")
    check_name(fields.get("event"))
    _check_id(fields.get("id"))
    for name in ("time", "sent_at", "resent"):
        check_time(name, fields.get(name))
    _check_number("bad_value", "value", fields.get("value"))
    _check_props(fields.get("props"))
    _check_values(fields.get("values"))


@lru_cache(maxsize=1024)
def _hint(name: str) -> str:
    return suggest(name, FIELDS, what="an event has")


def check_name(name: object) -> None:
    if name is None:
        raise Refused("bad_event", "`event` is required: the name of what happened")
    if isinstance(name, str) and "\0" in name:
        raise Refused("bad_text", "`event` contains U+0000")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Refused("bad_event", f"`event` is {shown(name)}; it must match {NAME_RULE}")


def check_time(name: str, time: object) -> None:
    if time is None:
        return
    try:
        if not isinstance(time, str | int | float):
            raise clocks.BadTime(f"it is {_kind(time)}; give RFC 3339 with a zone, or epoch milliseconds")
        clocks.milliseconds(time)
    except clocks.BadTime as error:
        raise Refused("bad_time", f"`{name}`: {error}") from None


def check_text(where: str, text: str) -> None:
    """No NUL (it separates labels further on), and no longer than a property may be."""
    if "\0" in text:
        raise Refused("bad_text", f"{where} contains U+0000")
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise Refused("bad_text", f"{where} has {size:,} bytes; at most {MAX_TEXT_BYTES:,} are allowed")


def check_value_names(names: list[str]) -> None:
    size = sum(len(name.encode()) for name in names)
    if size > MAX_VALUE_NAMES_BYTES:
        raise Refused("bad_values", f"the names in `values` have {size:,} bytes; at most {MAX_VALUE_NAMES_BYTES:,}")


def shown(value: object) -> str:
    """A value as it may stand in a message: short, whatever was sent."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else f"a number of {digits(value):,} digits"
    return text if len(text) <= 80 else text[:80] + "…"


def digits(number: int) -> int:
    # str() of a number over 4,300 digits raises.
    return int(abs(number).bit_length() * math.log10(2)) + 1


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        raise Refused("bad_text", f"not UTF-8: {error.reason}") from None
    except RecursionError:
        raise Refused("too_deep", "nested too deeply; only `props` and `values` may be objects") from None
    except msgspec.ValidationError as error:
        raise Refused("bad_number", f"a number is too large: {error}") from None
    except msgspec.DecodeError as error:
        raise Refused("bad_json", f"not JSON: {malformed(raw, error)}") from None


def malformed(raw: bytes, error: Exception) -> str:
    """What is wrong with a JSON text, also where the decoder's own words mislead."""
    if raw.startswith(b"\xef\xbb\xbf"):
        return "it starts with a byte order mark; send plain UTF-8"
    # msgspec calls a lone surrogate `truncated`.
    if "truncated" in str(error) and b"\\ud" in raw.lower():
        return "a surrogate (\\ud800 to \\udfff) without its other half, or cut short"
    if b"NaN" in raw or b"Infinity" in raw:
        return f"NaN and Infinity are not JSON numbers ({error})"
    return str(error)


def _check_id(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise Refused("bad_id", f"`id` is {_kind(value)}; it must be a text")
    if "\0" in value:
        raise Refused("bad_text", "`id` contains U+0000")
    if not 1 <= len(value) <= MAX_ID_CHARS:
        raise Refused("bad_id", f"`id` has {len(value):,} characters; 1 to {MAX_ID_CHARS} are allowed")


def _check_key(where: str, key: str) -> None:
    if "\0" in key:
        raise Refused("bad_text", f"a key in {where} contains U+0000")
    if not 1 <= len(key) <= MAX_KEY_CHARS:
        raise Refused(
            f"bad_{where}", f"a key in `{where}` has {len(key):,} characters; 1 to {MAX_KEY_CHARS} are allowed"
        )


def _check_number(code: str, where: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(code, f"`{where}` is {_kind(value)}; it must be a finite number")
    try:
        float(value)
    except OverflowError:
        raise Refused("bad_number", f"`{where}` is {shown(value)}, beyond a 64-bit float") from None


def _check_props(props: object) -> None:
    if props is None:
        return
    if not isinstance(props, dict):
        raise Refused("bad_props", f"`props` is {_kind(props)}; it must be a flat object")
    if len(props) > MAX_PROPS:
        raise Refused("bad_props", f"`props` has {len(props):,} entries; at most {MAX_PROPS} are allowed")
    for key, value in props.items():
        _check_key("props", key)
        if isinstance(value, str):
            check_text(f"property {shown(key)}", value)
        elif isinstance(value, dict | list):
            raise Refused("bad_props", f"property {shown(key)} is {_kind(value)}; `props` is flat")
        elif isinstance(value, int) and abs(value) > WIDEST_INT:
            raise Refused("bad_number", f"property {shown(key)} is {shown(value)}, beyond ±2**64; send it as text")


def _check_values(values: object) -> None:
    if values is None:
        return
    if not isinstance(values, dict):
        raise Refused("bad_values", f"`values` is {_kind(values)}; it must be an object of named numbers")
    if len(values) > MAX_VALUES:
        raise Refused("bad_values", f"`values` has {len(values):,} entries; at most {MAX_VALUES:,} are allowed")
    for key, value in values.items():
        _check_key("values", key)
        _check_number("bad_values", f"values.{key}", value)
    check_value_names(list(values))


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    kinds = {type(None): "null", str: "a text", int: "a number", float: "a number", list: "an array", dict: "an object"}
    return kinds[type(value)]
