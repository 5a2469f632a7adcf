"""Rows as they are sent: a JSON array, lines of JSON, or CSV; checked column by column, every mistake with its line."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final, Literal

import msgspec

from tallymark.events.labels import EXACT, label
from tallymark.events.model import MAX_TEXT_BYTES
from tallymark.suggest import suggest
from tallymark.tables.model import (
    ALWAYS_MS,
    DELETED,
    FROM,
    MOST_COLUMNS,
    MOST_MISTAKES,
    MOST_VERSIONS,
    RESERVED,
    Mistake,
    Mistakes,
    TableError,
    Type,
    Value,
    column_flaw,
    shown,
    too_many,
)

Format = Literal["json", "ndjson", "csv"]
FORMATS: tuple[Format, ...] = ("json", "ndjson", "csv")

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = (datetime(9900, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")


class Absent:
    """Where a row says nothing of a column: in a patch it stays as it was."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()

Given = Value | Absent


@dataclass(frozen=True, slots=True)
class Body:
    """Rows that were sent, in their order, by column."""

    keys: Sequence[str]
    froms: Sequence[int | None]
    """None where a row does not say"""
    deleted: Sequence[bool]
    columns: Mapping[str, Sequence[Given]]
    types: Mapping[str, Type]
    """of each column; of one without values that which was known, else text"""

    def __len__(self) -> int:
        return len(self.keys)


@dataclass
class _Lines:
    """What a format was taken apart into: for each row its place, and its members by column."""

    numbers: Sequence[int]
    columns: dict[str, Sequence[Any]]
    is_row: bool = False
    is_text: bool = False
    """as in CSV, where only the text of a value is known"""
    mistakes: list[Mistake] = field(default_factory=list)

    def add(self, number: int, detail: str, column: str = "", value: object = "") -> None:
        text = value if isinstance(value, str) else repr(value)
        self.mistakes.append(Mistake(detail, number, column, text[:120], self.is_row))

    @property
    def is_full(self) -> bool:
        return len(self.mistakes) > MOST_MISTAKES


def read(content: bytes, form: Format, *, key: str, known: Mapping[str, Type] | None = None) -> Body:
    """The rows of a body; raises TableError, of which `Mistakes` has up to 20 at once.

    `known` are the types of columns that a table has already: in a patch others are refused.
    """
    if flaw := column_flaw(key):
        raise TableError("bad_key", f"key: {flaw}")
    if key in RESERVED:
        raise TableError("bad_key", f"{key!r} cannot be the key: in a row it says since when, or whether, it holds")
    lines = _READERS[form](content.removeprefix(_BOM))
    if len(lines.numbers) > MOST_VERSIONS:
        way_out = "send them in several patches"
        raise too_many(
            "too_many_rows", "rows in one body", limit=MOST_VERSIONS, actual=len(lines.numbers), way_out=way_out
        )
    body = _checked(lines, key, known or {})
    if lines.mistakes:
        raise Mistakes(lines.mistakes)
    return body


def _checked(lines: _Lines, key: str, known: Mapping[str, Type]) -> Body:
    names = [name for name in lines.columns if name not in (key, *RESERVED)]
    for name in names:
        if flaw := column_flaw(name):
            raise TableError("bad_column", flaw, column=name[:128])
    if len(names) > MOST_COLUMNS:
        way_out = "leave some out, or make two tables"
        raise too_many("too_many_columns", "columns", limit=MOST_COLUMNS, actual=len(names), way_out=way_out)
    keys, froms, deleted = _keys(lines, key), _froms(lines), _deleted(lines)
    columns: dict[str, Sequence[Given]] = {}
    types: dict[str, Type] = {}
    for name in names:
        columns[name], types[name] = _column(lines, name, known.get(name))
    if len(keys) == len(froms) == len(lines.numbers):
        _check_repeated(lines, keys, froms)
    return Body(keys, froms, deleted, columns, types)


def _keys(lines: _Lines, key: str) -> list[str]:
    given = lines.columns.get(key)
    if given is None:
        if not lines.numbers:
            return []
        near = suggest(key, lines.columns, what="the columns are")
        raise TableError("missing_key", f"no row has the key {key!r}{near}", column=key)
    if all(map(_is_plain, given)):
        return list(given)
    found: list[str] = []
    for number, value in zip(lines.numbers, given, strict=True):
        if value is None or value is ABSENT:
            lines.add(number, f"the key {key!r} is missing", key)
        elif isinstance(value, list | dict):
            lines.add(number, f"the key {key!r} is {_kind(value)}; a text is needed", key, value)
        elif (flaw := _text_flaw(text := label(value))) is not None:
            lines.add(number, f"the key {key!r} {flaw}", key, text)
        else:
            found.append(text)
        if lines.is_full:
            break
    return found


def _is_plain(value: object) -> bool:
    """A text that is certainly short enough."""
    return isinstance(value, str) and len(value) <= MAX_TEXT_BYTES // 4 and value.isprintable()


def _froms(lines: _Lines) -> Sequence[int | None]:
    given = lines.columns.get(FROM)
    if given is None:
        return [None] * len(lines.numbers)
    found: list[int | None] = []
    for number, value in zip(lines.numbers, given, strict=True):
        moment_ms = None if value is None or value is ABSENT else _moment_ms(value)
        if moment_ms is None and value is not None and value is not ABSENT:
            lines.add(number, f"from = {shown(value)} is not a time; write RFC 3339 with a zone, 2026-11-15T12:00:00Z,"
                              " or epoch milliseconds", FROM, value)  # fmt: skip
        found.append(moment_ms)
        if lines.is_full:
            break
    return found


def _moment_ms(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= _LATEST_MS else None
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        return None
    try:
        found = (datetime.fromisoformat(value.upper()) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found <= _LATEST_MS else None


def _deleted(lines: _Lines) -> Sequence[bool]:
    given = lines.columns.get(DELETED)
    if given is None:
        return [False] * len(lines.numbers)
    found: list[bool] = []
    for number, value in zip(lines.numbers, given, strict=True):
        is_known = value is None or value is ABSENT or isinstance(value, bool) or (lines.is_text and value in _BOOLEANS)
        if not is_known:
            lines.add(number, f"deleted = {shown(value)} is neither true nor false", DELETED, value)
        found.append(value is True or value == "true")
        if lines.is_full:
            break
    return found


def _column(lines: _Lines, name: str, known: Type | None) -> tuple[Sequence[Given], Type]:
    given = lines.columns[name]
    if lines.is_text:
        return _typed_text(lines, name, given, known)
    kinds = set(map(type, given)) - {type(None), Absent}
    type_ = known or next((_TYPES.get(type(each)) for each in given if each is not None and each is not ABSENT), "text")
    if type_ == "text" and kinds <= {str} and all(each is None or each is ABSENT or _is_plain(each) for each in given):
        return given, type_
    is_known_because = "the table has it so" if known else "so is its first value"
    found: list[Given] = []
    for number, value in zip(lines.numbers, given, strict=True):
        if value is None or value is ABSENT:
            found.append(value)
            continue
        flaw = _value_flaw(value, type_, is_known_because)
        if flaw is not None:
            lines.add(number, f"{shown(name)} {flaw}", name, value)
            if lines.is_full:
                break
        found.append(float(value) if type_ == "number" and flaw is None else value)
    return found, type_ or "text"


_TYPES: dict[type, Type] = {str: "text", int: "number", float: "number", bool: "boolean"}
_BOOLEANS = {"true": True, "false": False}


def _value_flaw(value: object, type_: Type | None, because: str) -> str | None:
    if isinstance(value, list | dict):
        return f"is {_kind(value)}; a value is a text, a number, true, false or null"
    if _TYPES[type(value)] != type_:
        return f"= {shown(value)} is {_kind(value)}, but the column is {type_}: {because}"
    if isinstance(value, str):
        return _text_flaw(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_flaw(value)
    return None


def _text_flaw(text: str) -> str | None:
    if "\0" in text:
        return f"contains U+0000: {shown(text)}"
    if _SURROGATE.search(text):
        return f"contains half of a surrogate pair: {shown(text)}"
    if len(text) > MAX_TEXT_BYTES or (not text.isascii() and len(text.encode()) > MAX_TEXT_BYTES):
        return f"has {len(text.encode()):,} bytes, and a text has at most {MAX_TEXT_BYTES:,}: {shown(text)}"
    return None


def _number_flaw(number: float) -> str | None:
    if isinstance(number, float):
        return None if math.isfinite(number) else f"= {number} is not a finite number"
    # Kept as a float, it would become another number.
    return None if abs(number) <= EXACT else f"= {shown(number)} exceeds 2^53 and would be rounded; send it as a text"


def _kind(value: object) -> str:
    kinds = {str: "a text", bool: "a boolean", int: "a number", float: "a number", list: "an array", dict: "an object"}
    return kinds.get(type(value), "null")


def _typed_text(lines: _Lines, name: str, given: Sequence[Any], known: Type | None) -> tuple[Sequence[Given], Type]:
    """Values of CSV: a column is of numbers, or of booleans, if all its values are; else it is text."""
    type_ = known or _inferred(given)
    if type_ == "text":
        if not all(each is None or _is_plain(each) for each in given):
            for number, value in zip(lines.numbers, given, strict=True):
                if value is not None and (flaw := _text_flaw(value)) is not None:
                    lines.add(number, f"{shown(name)} {flaw}", name, value)
                    if lines.is_full:
                        break
        return given, type_
    convert: Callable[[str], Value] = _number if type_ == "number" else _BOOLEANS.get
    found: list[Given] = []
    for number, value in zip(lines.numbers, given, strict=True):
        converted = None if value is None else convert(value)
        if converted is None and value is not None:
            wanted = "a number" if type_ == "number" else "true or false"
            lines.add(number, f"{shown(name)} = {shown(value)} is not {wanted}, but the column is {type_}: the table"
                              " has it so", name, value)  # fmt: skip
            if lines.is_full:
                break
        found.append(converted)
    return found, type_


def _inferred(given: Sequence[str | None]) -> Type:
    values = [each for each in given if each is not None]
    if not values:
        return "text"
    if all(each in _BOOLEANS for each in values):
        return "boolean"
    return "number" if all(_number(each) is not None for each in values) else "text"


def _number(text: str) -> float | None:
    """None for what is not written as a number, or would become another one: 007, 1e400, 2^53 + 1."""
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > 400:
        return None
    if found[2] is None and found[3] is None and abs(int(text)) > EXACT:
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _check_repeated(lines: _Lines, keys: Sequence[str], froms: Sequence[int | None]) -> None:
    """One key has one row at a time."""
    first: dict[tuple[str, int], int] = {}
    for number, key, from_ms in zip(lines.numbers, keys, froms, strict=True):
        before = first.setdefault((key, ALWAYS_MS if from_ms is None else from_ms), number)
        if before != number:
            when = "" if from_ms is None else " from the same time"
            place = f"{'row' if lines.is_row else 'line'} {before}"
            lines.add(number, f"the key {shown(key)} is in {place} already{when}", "", key)
            if lines.is_full:
                return


def _json(content: bytes) -> _Lines:
    try:
        found = msgspec.json.decode(content)
    except RecursionError:
        raise TableError("too_deep", "the JSON is nested too deeply; a table is an array of flat objects") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "; lines of JSON are sent as application/x-ndjson" if "trailing" in str(error) else ""
        raise TableError("bad_json", f"the body is not JSON: {error}{hint}") from None
    rows = [found] if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise TableError("bad_json", f"the body is {_kind(rows)}; a table is an array of objects, one for each row")
    return _objects(rows, range(1, len(rows) + 1), is_row=True)


def _ndjson(content: bytes) -> _Lines:
    numbers, rows = [], []
    lines = _Lines([], {})
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(_DECODER.decode(line))
            numbers.append(number)
        except RecursionError:
            lines.add(number, "the JSON is nested too deeply; a row is a flat object")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            lines.add(number, f"not JSON: {error}", "", line[:120].decode(errors="replace"))
        if lines.is_full:
            break
    found = _objects(rows, numbers, is_row=False)
    found.mistakes += lines.mistakes
    return found


_DECODER = msgspec.json.Decoder()


def _objects(rows: list[Any], numbers: Sequence[int], *, is_row: bool) -> _Lines:
    """Rows as columns; one that is no object is a mistake and has no values."""
    lines = _Lines(numbers, {}, is_row)
    if not all(isinstance(row, dict) for row in rows):
        for number, row in zip(numbers, rows, strict=True):
            if not isinstance(row, dict) and not lines.is_full:
                lines.add(number, f"a row is an object, not {_kind(row)}", "", row)
        rows = [row if isinstance(row, dict) else {} for row in rows]
    names = dict.fromkeys(chain.from_iterable(rows))
    if len(names) > MOST_COLUMNS + 1 + len(RESERVED):
        # Before a list is made of each: a body could name a million.
        way_out = "leave some out, or make two tables"
        raise too_many("too_many_columns", "columns", limit=MOST_COLUMNS, actual=len(names) - 1, way_out=way_out)
    if lines.mistakes:
        raise Mistakes(lines.mistakes)
    lines.columns = {name: [row.get(name, ABSENT) for row in rows] for name in names}
    return lines


def _csv(content: bytes) -> _Lines:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = error.start - content.rfind(b"\n", 0, error.start)
        raise Mistakes([Mistake(f"byte {byte} of the line is not UTF-8", line)]) from None
    records = _records(text)
    header = next(records, None)
    if header is None:
        raise TableError("bad_csv", "the body is empty; CSV begins with a line of column names")
    names = [name.strip() for name in header[1]]
    _check_header(names, header[0])
    lines = _Lines([], {}, is_text=True)
    numbers, rows = [], []
    for number, record in records:
        if len(record) == len(names):
            numbers.append(number)
            rows.append(record)
        elif record:
            fields = "1 field" if len(record) == 1 else f"{len(record)} fields"
            lines.add(number, f"{fields}, but the first line names {len(names)} columns")
        if lines.is_full or len(rows) > MOST_VERSIONS:
            break
    lines.numbers = numbers
    columns: Iterable[Sequence[str]] = zip(*rows, strict=True) if rows else [()] * len(names)
    lines.columns = {name: [value or None for value in column] for name, column in zip(names, columns, strict=True)}
    return lines


def _check_header(names: list[str], line: int) -> None:
    mistakes = [
        Mistake(
            f"column {place + 1} has no name" if not name else f"the column {shown(name)} appears twice", line, name
        )
        for place, name in enumerate(names)
        if not name or name in names[:place]
    ]
    if mistakes:
        raise Mistakes(mistakes)


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line on which it begins; lines may end within quotes."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begins = 1
    while True:
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise Mistakes([Mistake(f"not CSV: {error}", begins)]) from None
        if record is None:
            return
        yield begins, record
        begins = reader.line_num + 1


_READERS: dict[Format, Callable[[bytes], _Lines]] = {"json": _json, "ndjson": _ndjson, "csv": _csv}
