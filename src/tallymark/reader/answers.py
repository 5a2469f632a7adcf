"""Answers as plain objects, read from the JSON of the server."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from tallymark.reader import frames

if TYPE_CHECKING:
    import pandas
    import polars

Number = int | float | Decimal | None
"""a sum is a Decimal where the meter has `decimals`; None: no events, or not known"""
Value = Mapping[str, Number]
"""function -> number"""
At = Mapping[str, datetime | None] | None


class Freshness(msgspec.Struct, frozen=True):
    """How up to date and how exact the numbers are."""

    complete_through: datetime | None = None
    """everything that was accepted before is counted"""
    final_through: datetime | None = None
    """nothing older can still arrive"""
    lag_ms: float | None = None
    loss: int | None = None
    """accepted events that are in no count; None: not known"""
    approximate: bool = False
    error: Mapping[str, float] = {}
    """the bound of the relative error of each function that is not exact"""
    stale_s: float | None = None
    """how old the numbers are, where the last known ones were given"""
    meter_version: int | None = None


class Range(msgspec.Struct, frozen=True):
    """[start, end); None is open. `widened`: to whole buckets, so it is more than was asked for."""

    start: datetime | None = None
    end: datetime | None = None
    widened: bool = False


class Difference(msgspec.Struct, frozen=True):
    """How a number changed. `percent` is None if it was 0 before."""

    difference: Number
    percent: float | None


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    meter: str
    freshness: Freshness
    range: Range = Range()
    raw: Mapping[str, Any] = {}
    """the whole answer as it came"""

    def rows(self) -> list[dict[str, Any]]:
        """Flat rows: labels, time and numbers side by side, as the data frames have them."""
        raise NotImplementedError

    def to_polars(self) -> "polars.DataFrame":
        return frames.to_polars(self.rows(), self._columns())

    def to_pandas(self) -> "pandas.DataFrame":
        return frames.to_pandas(self.rows(), self._columns())

    def _columns(self) -> Sequence[str]:
        """Those that are known without rows: time and labels, but not the functions."""
        return ()


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of labels and its numbers."""

    labels: Mapping[str, str] = {}
    value: Value
    before: Value | None = None
    """the same over the range compared with"""
    change: Mapping[str, Difference] | None = None
    at: At = None
    """with a window: the start of the one that each number comes from"""
    with_: Mapping[str, Any] = {}
    """columns of tables that were asked for"""

    def __getitem__(self, function: str) -> Number:
        return self.value[function]

    def __repr__(self) -> str:
        rest = {"before": self.before, "change": self.change, "at": self.at, "with_": self.with_ or None}
        return _short("Item", labels=self.labels, value=self.value, **rest)

    def row(self) -> dict[str, Any]:
        return frames.row(self.labels, self.value, self.before, self.change, at=self.at, added=self.with_)


class Total(_Answer, frozen=True, kw_only=True):
    """One number for each function: `total.value["count"]`, or `total["count"]` for short."""

    value: Value
    before: Value | None = None
    change: Mapping[str, Difference] | None = None
    at: At = None
    with_: Mapping[str, Any] = {}

    def __getitem__(self, function: str) -> Number:
        return self.value[function]

    def __contains__(self, function: object) -> bool:
        return function in self.value

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def rows(self) -> list[dict[str, Any]]:
        return [frames.row({}, self.value, self.before, self.change, at=self.at, added=self.with_)]

    def __repr__(self) -> str:
        rest = {"before": self.before, "change": self.change, "at": self.at}
        return _short("Total", meter=self.meter, value=self.value, **rest)


class Items(_Answer, frozen=True, kw_only=True):
    """Numbers of several series: the largest ones first (`top`), or every one asked for (`total(by=…)`)."""

    items: tuple[Item, ...]
    by: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def rows(self) -> list[dict[str, Any]]:
        return [item.row() for item in self.items]

    def __repr__(self) -> str:
        return _short("Items", meter=self.meter, items=self.items)

    def _columns(self) -> Sequence[str]:
        return self.by


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket, named by its start."""

    time: datetime
    value: Value
    before: Value | None = None
    change: Mapping[str, Difference] | None = None

    def __getitem__(self, function: str) -> Number:
        return self.value[function]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The buckets of one combination of labels."""

    labels: Mapping[str, str]
    points: tuple[Point, ...]
    with_: Mapping[str, Any] = {}
    """columns of tables that were asked for"""

    def values(self, function: str) -> list[Number]:
        return [point.value[function] for point in self.points]

    def __repr__(self) -> str:
        points = "1 point" if len(self.points) == 1 else f"{len(self.points):,} points"
        return f"Line(labels={dict(self.labels)!r}, {points})"


class Series(_Answer, frozen=True, kw_only=True):
    """A meter over time: one line for each combination of the labels asked for."""

    lines: tuple[Line, ...]
    query: str | None = None
    """the query as the server understood it"""
    left_out: int = 0
    """series beyond the limit"""
    by: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self) -> list[dict[str, Any]]:
        return [
            frames.row(line.labels, point.value, point.before, point.change, time=point.time, added=line.with_)
            for line in self.lines
            for point in line.points
        ]

    def __repr__(self) -> str:
        return _short("Series", meter=self.meter, query=self.query, lines=self.lines)

    def _columns(self) -> Sequence[str]:
        return ("time", *(f"label.{label}" if label == "time" else label for label in self.by))


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What was added to one bucket of one series."""

    labels: Mapping[str, str]
    time: datetime
    value: Value

    def __getitem__(self, function: str) -> Number:
        return self.value[function]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What was applied to a meter together."""

    meter: str
    changes: tuple[Change, ...]
    id: str
    """`live(…, since=id)` goes on after these"""
    left_out: int = 0
    """further changes that are too many to tell, the smallest ones"""
    gap: bool = False
    """some changes before these are gone: ask for the total to be right again"""

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def rows(self) -> list[dict[str, Any]]:
        return [frames.row(each.labels, each.value, None, None, time=each.time) for each in self.changes]


def _short(name: str, **parts: Any) -> str:
    """What one wants to see at a prompt; how fresh it is would fill the screen."""
    return f"{name}({', '.join(f'{part}={value!r}' for part, value in parts.items() if value is not None)})"


_PLAIN = msgspec.json.Decoder()
_EXACT = msgspec.json.Decoder(float_hook=Decimal)


def decode(body: bytes) -> dict[str, Any] | None:
    """The JSON object, with fractions as Decimal if the meter has decimals; None if it is none."""
    try:
        # Only such answers have the key; a label of that name merely costs time.
        content = (_EXACT if b'"decimals"' in body else _PLAIN).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def total(data: dict[str, Any]) -> Total:
    return Total(**_shared(data), **_item(data, _numbers(data)))


def items(data: dict[str, Any], by: Sequence[str] = ()) -> Items:
    numbers = _numbers(data)
    found = tuple(Item(labels=item.get("labels", {}), **_item(item, numbers)) for item in data["items"])
    return Items(**_shared(data), items=found, by=tuple(by))


def series(data: dict[str, Any], by: Sequence[str] = ()) -> Series:
    numbers = _numbers(data)
    lines = tuple(
        Line(
            labels=line.get("labels", {}),
            points=tuple(_point(point, numbers) for point in line["points"]),
            with_=_added(line),
        )
        for line in data["series"]
    )
    rest = {"query": data.get("query"), "left_out": data.get("left_out", 0)}
    return Series(**_shared(data), lines=lines, **rest, by=tuple(by))


def changes(data: dict[str, Any], id_: str) -> Changes:
    numbers = _numbers(data)
    found = tuple(
        Change(labels=change["labels"], time=datetime.fromisoformat(change["time"]), value=numbers(_values(change)))
        for change in data["changes"]
    )
    return Changes(
        meter=data["meter"], changes=found, id=id_, left_out=data.get("left_out", 0), gap=data.get("gap", False)
    )


_Numbers = Callable[[Mapping[str, Any]], Value]
_NOT_VALUES = frozenset(("time", "labels", "before", "change", "at"))


def _numbers(data: Mapping[str, Any]) -> _Numbers:
    """Reads numbers of this answer: exact sums stay exact, all else is as JSON says."""
    if data.get("decimals") is None:
        return dict
    return lambda value: {name: _exact(number, name) for name, number in value.items()}


def _exact(number: Any, function: str) -> Number:
    if number is None:
        return None
    if function == "sum":
        return Decimal(number)
    return float(number) if isinstance(number, Decimal) else int(number)


def _values(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {name: number for name, number in mapping.items() if name not in _NOT_VALUES}


def _item(data: Mapping[str, Any], numbers: _Numbers) -> dict[str, Any]:
    at = data.get("at")
    moments = None if at is None else {name: _moment(text) for name, text in at.items()}
    return {"value": numbers(data["value"]), "at": moments, "with_": _added(data), **_compared(data, numbers)}


def _added(data: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of tables have no exact numbers, also where the meter's are."""
    found = data.get("with") or {}
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in found.items()}


def _point(data: Mapping[str, Any], numbers: _Numbers) -> Point:
    value = numbers(_values(data))
    return Point(time=datetime.fromisoformat(data["time"]), value=value, **_compared(data, numbers))


def _compared(data: Mapping[str, Any], numbers: _Numbers) -> dict[str, Any]:
    if "before" not in data and "change" not in data:
        return {}
    before, change = data.get("before"), data.get("change") or {}
    differences = numbers({name: each["difference"] for name, each in change.items()})
    percents = {name: each.get("percent") for name, each in change.items()}
    return {
        "before": None if before is None else numbers(_values(before)),
        "change": {
            name: Difference(differences[name], None if percent is None else float(percent))
            for name, percent in percents.items()
        },
    }


def _shared(data: Mapping[str, Any]) -> dict[str, Any]:
    span = data.get("range") or {}
    range_ = Range(_moment(span.get("from")), _moment(span.get("to")), bool(span.get("widened")))
    return {"meter": data.get("meter", ""), "range": range_, "freshness": _freshness(data), "raw": data}


def _freshness(data: Mapping[str, Any]) -> Freshness:
    told = data.get("freshness") or {}
    lag_ms, stale_s = told.get("lag_ms"), told.get("stale_s")
    return Freshness(
        complete_through=_moment(told.get("complete_through")),
        final_through=_moment(told.get("final_through")),
        lag_ms=None if lag_ms is None else float(lag_ms),
        loss=told.get("loss"),
        approximate=bool(told.get("approximate")),
        error={name: float(bound) for name, bound in (told.get("error") or {}).items()},
        stale_s=None if stale_s is None else float(stale_s),
        meter_version=told.get("meter_version"),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
