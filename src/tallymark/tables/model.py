"""What a table is, and its limits."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

MOST_ROWS = 200_000
"""keys that have a row"""
MOST_VERSIONS = 2 * MOST_ROWS
"""rows with those that were replaced since; beyond it the oldest go"""
MOST_COLUMNS = 32
MOST_NAME = 128
MOST_BYTES = 64_000_000
"""of a table in memory"""
MOST_MISTAKES = 20
"""that are told at once"""

FROM, DELETED = "from", "deleted"
RESERVED = (FROM, DELETED)
"""members of a row that are no columns"""
ALWAYS_MS = -(2**62)
"""the `from` of a row that has always held"""

Type = Literal["text", "number", "boolean"]
Value = str | float | bool | None

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class TableError(ValueError):
    """A table that cannot be kept: a stable code, what is wrong with which values, the way out."""

    def __init__(self, code: str, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.code, self.detail, self.extra = code, detail, extra


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with a row."""

    detail: str
    line: int
    """of the file; in a JSON array the number of the row, from 1"""
    column: str = ""
    value: str = ""
    is_row: bool = False
    """`line` is the number of a row"""

    @property
    def place(self) -> str:
        return f"{'row' if self.is_row else 'line'} {self.line}"

    def __str__(self) -> str:
        return f"{self.place}: {self.detail}"


class Mistakes(TableError):
    """Rows that cannot be read, the first of them."""

    def __init__(self, found: Sequence[Mistake]) -> None:
        self.found = tuple(sorted(found, key=lambda each: each.line)[:MOST_MISTAKES])
        first, more = self.found[0], len(self.found) - 1
        most = " or more" if len(found) > MOST_MISTAKES else ""
        rest = f" (and {more} more mistake{'s' if more > 1 else ''}{most}); nothing was changed" if more else ""
        place = {"row" if first.is_row else "line": first.line}
        super().__init__("bad_row", f"{first}{rest}", **place, **({"column": first.column} if first.column else {}))


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What the store keeps under a table's name: everything but the rows, which are in its parts."""

    key: str
    """the column by which a row is found, and the label that it joins"""
    columns: dict[str, Type]
    """without the key"""
    rows: int
    """keys that have a row, or will have one"""
    versions: int
    """rows with those that were replaced or deleted since"""
    parts: tuple[str, ...]
    """in this order: what a later one says of a key and a time replaces what an earlier one says"""
    history_ms: int | None = None
    """older versions than from this time were dropped to save room; None if none were"""
    format: int = 1

    def to_text(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "Definition":
        return msgspec.json.decode(text, type=cls)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        rule = "a lower-case letter, then up to 63 of a-z, 0-9 and _"
        raise TableError("bad_name", f"{shown(name)} is not a table name: {rule}")


def column_flaw(name: str) -> str | None:
    """What is wrong with the name of a column or key; None if nothing is."""
    if not 1 <= len(name) <= MOST_NAME:
        return f"names of columns have 1 to {MOST_NAME} characters, not {len(name):,}: {shown(name)}"
    if any(each in name for each in "\0\r\n,") or any("\ud800" <= each <= "\udfff" for each in name):
        return f"a comma, a line break or NUL in the name of the column {shown(name)}"
    return None


def too_many(code: str, what: str, *, limit: int, actual: int, way_out: str) -> TableError:
    return TableError(code, f"{actual:,} {what} exceed {limit:,}; {way_out}", limit=limit, actual=actual)


def shown(value: object, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
