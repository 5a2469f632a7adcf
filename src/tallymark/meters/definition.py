"""From a mapping (a YAML node or HTTP JSON) to a checked `Meter`, and back.

A `Meter` is canonical: what has no meaning (the order of events and aggregates, the spacing of `where`) is
made the same, so that two definitions are equal iff they count the same, and only a real change makes a new version.
"""

import re
from collections.abc import Mapping

from tallymark.aggregates.functions import NAMES as AGGREGATES
from tallymark.meters.errors import Flaws, Path, shown
from tallymark.meters.expression import MAX_NAME, ExpressionError, parse
from tallymark.meters.model import EVENTS, Meter
from tallymark.suggest import suggest

KEYS = ("name", "event", "by", "compute", "value", "each", "where", "decimals")
MAX_BY = 16
MAX_EVENTS = 64
MAX_DECIMALS = 9

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_EVENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_EVERY_EVENT = "*"
# Words of the contract whose turn has not come; saying `unknown` of them would be wrong.
_LATER_KEYS = ("distinct",)
_LATER_AGGREGATES = re.compile(r"rate|p[0-9]{1,2}(\.[0-9]+)?")


def from_mapping(mapping: object, *, name: str | None = None) -> Meter:
    """The meter that `mapping` defines; raises MeterError with every flaw.

    `name` is the one of the address (PUT /v1/meters/{name}); the mapping may then leave it out, but not contradict it.
    """
    flaws = Flaws()
    meter = read(mapping, at=(), flaws=flaws, name=name)
    flaws.raise_if_any()
    assert meter is not None
    return meter


def to_mapping(meter: Meter) -> dict[str, object]:
    """The definition as users write it; `from_mapping` of it gives an equal meter."""
    mapping: dict[str, object] = {"name": meter.name, "event": _events_as_written(meter.events)}
    if meter.by:
        mapping["by"] = list(meter.by)
    mapping["compute"] = list(meter.compute)
    for key in ("value", "each", "where", "decimals"):
        if (given := getattr(meter, key)) is not None:
            mapping[key] = given
    return mapping


def read(mapping: object, *, at: Path, flaws: Flaws, name: str | None = None) -> Meter | None:
    """The meter at the path `at`, or None after adding what is wrong to `flaws`."""
    if not isinstance(mapping, Mapping):
        flaws.add("wrong_type", f"a meter is a mapping with keys like name and event, not {shown(mapping)}", at)
        return None
    if name in (None, EVENTS.name) and {"name": name, **mapping} == to_mapping(EVENTS):
        return EVENTS  # what GET shows can be sent back
    before = len(flaws.found)
    meter = _Definition(mapping, at, flaws, name).meter()
    return meter if len(flaws.found) == before else None


class _Definition:
    """One mapping while it is read, a method a key. A flawed part gives a harmless value and reading goes on."""

    def __init__(self, mapping: Mapping[object, object], at: Path, flaws: Flaws, name: str | None) -> None:
        self._mapping, self._at, self._flaws, self._address = mapping, at, flaws, name
        self._called = f" in meter {shown(given)}" if isinstance(given := mapping.get("name", name), str) else ""

    def meter(self) -> Meter:
        self._keys()
        name, events = self._name(), self._events()
        each, value = self._each(), self._value()
        by = self._by(each)
        compute, where, decimals = self._compute(), self._where(each), self._decimals()
        if each is not None and value is not None:
            self._add(
                "conflict", "each takes every number of `values`, so there is no single `value`; drop one", "value"
            )
        return Meter(name, events, by, compute, value, each, where, decimals)

    def _keys(self) -> None:
        for key in self._mapping:
            if key in _LATER_KEYS:
                self._add("not_yet", f"{key!r}{self._called} comes in a later version", str(key), key=True)
            elif key not in KEYS:
                hint = suggest(str(key), KEYS)
                self._add("unknown_key", f"unknown key {shown(key)}{self._called}{hint}", str(key), key=True)
            elif self._mapping[key] is None:
                self._add("empty", f"{key}{self._called} is empty; give it a value or leave it out", str(key))

    def _name(self) -> str:
        given = self._mapping.get("name", self._address)
        if given is None:
            if "name" not in self._mapping:
                self._missing("name")
            return ""
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            rule = "a lower-case letter, then up to 63 of a-z, 0-9 and _"
            self._add("bad_name", f"{shown(given)} is not a meter name: {rule}", "name")
            return ""
        if self._address is not None and given != self._address:
            self._add("conflict", f"the definition says {given!r}, but the address says {self._address!r}", "name")
        if given == EVENTS.name:
            self._add(
                "built_in", f"the meter {given!r} is built in and cannot be redefined; choose another name", "name"
            )
        return given

    def _events(self) -> tuple[str, ...]:
        if "event" not in self._mapping:
            self._missing("event")
        names = self._words("event", "the name of an event")
        for path, name in names:
            if name == _EVERY_EVENT:
                detail = f"only the built-in meter {EVENTS.name!r} counts every event; name the events"
                self._flaws.add("bad_event", detail, path)
            elif not _EVENT.fullmatch(name):
                rule = "a letter or _, then up to 127 letters, digits and _ . : -"
                self._flaws.add("bad_event", f"{shown(name)} is not an event name: {rule}", path)
        self._at_most(MAX_EVENTS, names, "event")
        return tuple(sorted({name for _, name in names}))

    def _by(self, each: str | None) -> tuple[str, ...]:
        given = self._mapping.get("by")
        split = [part.strip() for part in given.split(",")] if isinstance(given, str) else None
        names = self._words("by", "the name of a property", split=split, may_be_empty=True)
        for path, name in names:
            self._property(path, name)
            if name == "metric" and each is not None:
                self._flaws.add("reserved", "'metric' is the label that each adds; it cannot be in by", path)
        self._at_most(MAX_BY, names, "by")
        return tuple(name for _, name in names)

    def _compute(self) -> tuple[str, ...]:
        if "compute" not in self._mapping:
            return ("count",)
        words = self._words("compute", "an aggregate")
        for path, word in words:
            if _LATER_AGGREGATES.fullmatch(word):
                detail = f"{word!r}{self._called} comes in a later version; now there are {', '.join(AGGREGATES)}"
                self._flaws.add("not_yet", detail, path)
            elif word not in AGGREGATES:
                detail = f"unknown aggregate {shown(word)}{self._called}{suggest(word, AGGREGATES)}"
                self._flaws.add("unknown_aggregate", detail, path)
        given = {word for _, word in words}
        return tuple(aggregate for aggregate in AGGREGATES if aggregate in given)

    def _value(self) -> str | None:
        given = self._mapping.get("value")
        if given is None:
            return None
        if not isinstance(given, str):
            self._add(
                "wrong_type", f"value is the name of the property that holds the number, not {shown(given)}", "value"
            )
            return None
        self._property((*self._at, "value"), given)
        return None if given == "value" else given  # the event's own

    def _each(self) -> str | None:
        given = self._mapping.get("each")
        if given is not None and given != "values":
            self._add("bad_each", f"each can only be 'values', not {shown(given)}", "each")
        return None if given is None else "values"

    def _where(self, each: str | None) -> str | None:
        given = self._mapping.get("where")
        if given is None:
            return None
        if not isinstance(given, str):
            self._add("wrong_type", f"where is an expression as text, not {shown(given)}", "where")
            return None
        try:
            expression = parse(given)
        except ExpressionError as error:
            flaw = error.flaws[0]
            self._add(flaw.code, flaw.detail, "where", offset=error.position, excerpt=flaw.excerpt)
            return None
        if each is not None and "metric" in expression.properties():
            self._add("reserved", "where selects events, before each; it cannot use the label 'metric'", "where")
        return str(expression)

    def _decimals(self) -> int | None:
        given = self._mapping.get("decimals")
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= MAX_DECIMALS:
            self._add(
                "bad_decimals", f"decimals is a whole number from 0 to {MAX_DECIMALS}, not {shown(given)}", "decimals"
            )
            return None
        return given

    def _words(
        self, key: str, what: str, *, split: list[str] | None = None, may_be_empty: bool = False
    ) -> list[tuple[Path, str]]:
        """One word or a list of them, each with its path; repeats and what is no text are flaws."""
        at = (*self._at, key)
        given = self._mapping.get(key)
        if given is None:
            return []
        listed = split or ([given] if isinstance(given, str) else given)
        if not isinstance(listed, list | tuple):
            self._flaws.add("wrong_type", f"{key} is {what}, or a list of them, not {shown(given)}", at)
            return []
        if not listed and not may_be_empty:
            self._flaws.add("empty", f"{key}{self._called} is an empty list; leave it out or add something", at)
        words: dict[str, Path] = {}
        for index, word in enumerate(listed):
            path = (*at, index) if isinstance(given, list | tuple) else at
            if not isinstance(word, str):
                self._flaws.add("wrong_type", f"{shown(word)} is not {what}; a text is needed (quote it)", path)
            elif word in words:
                self._flaws.add("repeated", f"{shown(word)} is listed twice in {key}{self._called}", path)
            else:
                words[word] = path
        return [(path, word) for word, path in words.items()]

    def _property(self, path: Path, name: str) -> None:
        if not 1 <= len(name) <= MAX_NAME or "\0" in name or any("\ud800" <= c <= "\udfff" for c in name):
            detail = f"names of properties have 1 to {MAX_NAME} characters and no NUL, not {shown(name)}"
            self._flaws.add("bad_property", detail, path)

    def _at_most(self, limit: int, names: list[tuple[Path, str]], key: str) -> None:
        if len(names) > limit:
            self._flaws.add("too_many", f"{len(names)} names in {key}{self._called}, at most {limit}", (*self._at, key))

    def _missing(self, key: str) -> None:
        what = "say which event it counts" if key == "event" else "every meter needs a name"
        self._flaws.add("missing_key", f"no {key!r}{self._called}; {what}", self._at)

    def _add(
        self, code: str, detail: str, at: str, *, key: bool = False, offset: int | None = None, excerpt: str = ""
    ) -> None:
        self._flaws.add(code, detail, (*self._at, at), key=key, offset=offset, excerpt=excerpt)


def _events_as_written(events: tuple[str, ...]) -> str | list[str]:
    if not events:
        return _EVERY_EVENT
    return events[0] if len(events) == 1 else list(events)
