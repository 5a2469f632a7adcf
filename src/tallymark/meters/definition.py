"""From a mapping (a YAML node or HTTP JSON) to a checked `Meter`, and back.

A `Meter` is canonical: what has no meaning (the order of events and aggregates, the spacing of `where`) is
made the same, so that two definitions are equal iff they count the same, and only a real change makes a new version.
"""

import re
from collections.abc import Mapping

from tallymark.meters import function_names, late, weights
from tallymark.meters.errors import Flaws, Path, shown
from tallymark.meters.expression import MAX_NAME, ExpressionError, parse
from tallymark.meters.model import EVENTS, QUERIED, Late, Meter
from tallymark.suggest import suggest

_OPTIONAL = ("value", "each", "where", "decimals", "distinct", "keep")
KEYS = ("name", "event", "by", "compute", *_OPTIONAL, "grain", "weights", "late", "max_series")
GRAINS_S = {"1s": 1, "10s": 10, "1m": 60}
DEFAULT_GRAIN = "1m"
DEFAULT_KEEP = "all"
MAX_BY = 16
MAX_EVENTS = 64
MAX_COMPUTE = 64
MAX_DECIMALS = 9
MAX_SERIES = 10_000_000

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_EVENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_EVERY_EVENT = "*"


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
    for key in _OPTIONAL:
        if (given := getattr(meter, key)) is not None:
            mapping[key] = given
    if meter.grain_s != GRAINS_S[DEFAULT_GRAIN]:
        mapping["grain"] = next(grain for grain, grain_s in GRAINS_S.items() if grain_s == meter.grain_s)
    if meter.weights:
        mapping["weights"] = weights.to_mapping(meter.weights)
    if meter.late is not None:
        mapping["late"] = late.to_mapping(meter.late)
    if meter.max_series is not None:
        mapping["max_series"] = meter.max_series
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
        decimals = self._decimals()
        weighed = self._weights(decimals)
        name, events = self._name(), self._events(weighed)
        each, value = self._each(), self._value()
        by, distinct = self._by(each), self._distinct(each)
        self._conflicts()
        return Meter(
            name,
            events,
            by,
            self._compute(distinct, weighed),
            value,
            each,
            self._where(each),
            decimals,
            distinct,
            self._grain_s(),
            tuple((event, weighed[event]) for event in events if event in weighed),
            self._late(),
            self._max_series(),
            self._keep(each),
        )

    def _keys(self) -> None:
        for key in self._mapping:
            if key not in KEYS:
                hint = suggest(str(key), KEYS)
                self._add("unknown_key", f"unknown key {shown(key)}{self._called}{hint}", str(key), key=True)
            elif self._mapping[key] is None:
                self._add("empty", f"{key}{self._called} is empty; give it a value or leave it out", str(key))

    def _conflicts(self) -> None:
        """Each of these three says where the number comes from."""
        value, each, weighed = (self._mapping.get(key) is not None for key in ("value", "each", "weights"))
        if each and value:
            detail = "each takes every number of `values`, so there is no single `value`; drop one"
            self._add("conflict", detail, "value")
        if weighed and (value or each):
            key = "value" if value else "each"
            self._add("conflict", f"weights gives every event its number, so there is no `{key}`; drop one", key)

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

    def _events(self, weighed: Mapping[str, float]) -> tuple[str, ...]:
        names = self._words("event", "the name of an event")
        if "event" in self._mapping:
            if weighed and names:
                at = (*self._at, "weights")
                listed = [name for _, name in names]
                weights.check_events(weighed, listed, at=at, flaws=self._flaws, called=self._called)
        elif "weights" in self._mapping:
            names = [((*self._at, "weights", event), event) for event in weighed]
        else:
            self._missing("event")
        for path, name in names:
            if name == _EVERY_EVENT:
                detail = f"only the built-in meter {EVENTS.name!r} counts every event; name the events"
                self._flaws.add("bad_event", detail, path)
            elif not _EVENT.fullmatch(name):
                rule = "a letter or _, then up to 127 letters, digits and _ . : -"
                self._flaws.add("bad_event", f"{shown(name)} is not an event name: {rule}", path)
        self._at_most(MAX_EVENTS, names, "event" if "event" in self._mapping else "weights")
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

    def _compute(self, distinct: str | None, weighed: Mapping[str, float]) -> tuple[str, ...]:
        implied = ["distinct"] if distinct is not None else []
        if "compute" not in self._mapping:
            return function_names.in_order(["count", *(["sum"] if weighed else []), *implied])
        words = self._words("compute", "an aggregate")
        for path, word in words:
            if not function_names.is_function(word):
                detail = f"unknown aggregate {shown(word)}{self._called}{function_names.meant(word)}"
                self._flaws.add("unknown_aggregate", detail, path)
            elif word == "distinct" and "distinct" not in self._mapping:
                detail = f"distinct in compute{self._called} needs the property it counts; add distinct: PROPERTY"
                self._flaws.add("missing_key", detail, path)
        self._at_most(MAX_COMPUTE, words, "compute")
        return function_names.in_order([*(word for _, word in words), *implied])

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

    def _keep(self, each: str | None) -> str | None:
        given = self._mapping.get("keep", DEFAULT_KEEP)
        if given is not None and given not in (DEFAULT_KEEP, QUERIED):
            hint = suggest(given, (DEFAULT_KEEP, QUERIED), otherwise="") if isinstance(given, str) else ""
            self._add("bad_keep", f"keep is {DEFAULT_KEEP} or {QUERIED}, not {shown(given)}{hint}", "keep")
        elif given == QUERIED and each is None:
            detail = f"{QUERIED} chooses among the metrics of each: values, which is not there{self._called}"
            self._add("conflict", f"{detail}; add each, or leave keep out", "keep")
        return QUERIED if given == QUERIED else None

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

    def _distinct(self, each: str | None) -> str | None:
        given = self._mapping.get("distinct")
        if given is None:
            return None
        if not isinstance(given, str):
            detail = f"distinct is the name of the property whose values are counted, not {shown(given)}"
            self._add("wrong_type", detail, "distinct")
            return None
        self._property((*self._at, "distinct"), given)
        if given == "metric" and each is not None:
            self._add("reserved", "'metric' is the label that each adds; it cannot be in distinct", "distinct")
        return given

    def _grain_s(self) -> int:
        given = self._mapping.get("grain", DEFAULT_GRAIN)
        if given is not None and (not isinstance(given, str) or given not in GRAINS_S):
            detail = f"grain is the finest step that is kept: 1s, 10s or 1m, not {shown(given)}"
            self._add("bad_grain", f"{detail}; coarser steps are made from it", "grain")
        return GRAINS_S.get(str(given), GRAINS_S[DEFAULT_GRAIN])

    def _weights(self, decimals: int | None) -> dict[str, float]:
        given = self._mapping.get("weights")
        if given is None:
            return {}
        at = (*self._at, "weights")
        return weights.read(given, at=at, flaws=self._flaws, called=self._called, decimals=decimals)

    def _late(self) -> Late | None:
        given = self._mapping.get("late")
        if given is None:
            return None
        return late.read(given, at=(*self._at, "late"), flaws=self._flaws, called=self._called)

    def _max_series(self) -> int | None:
        given = self._mapping.get("max_series")
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_SERIES:
            detail = f"max_series is a whole number from 1 to {MAX_SERIES:,}, not {shown(given)}"
            self._add("bad_max_series", detail, "max_series")
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
