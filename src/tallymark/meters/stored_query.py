"""A question in the query language, checked as far as that is possible without knowing the meters."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tallymark.meters.durations import spelled
from tallymark.meters.tokens import excerpt

KEYWORDS = frozenset(
    ("FROM", "SELECT", "WINDOW", "EVERY", "COMPUTE", "WHERE", "BY", "SINCE", "UNTIL", "LIMIT", "AND", "OR", "NOT", "IN")
)
BARE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/+-]*")
"""a name or value that needs no quotes, unless it is a keyword"""

Code = Literal["ambiguous", "bad_query", "unknown_function", "unknown_key", "unknown_meter", "unknown_metric"]
NOT_FOUND: frozenset[Code] = frozenset(("unknown_meter", "unknown_metric"))
"""what was asked for does not exist, so over HTTP it is 404; the others are 400"""


class QueryError(ValueError):
    """A query that cannot be read or answered: what, where, and the way out."""

    def __init__(self, code: Code, detail: str, position: int, excerpt: str) -> None:
        super().__init__(code, detail, position, excerpt)
        self.code, self.detail = code, detail
        self.position = position
        """in characters from 0"""
        self.excerpt = excerpt
        """the text around the position, and a line with a caret under it"""

    def __str__(self) -> str:
        return f"{self.detail}\n{self.excerpt}"


@dataclass(frozen=True, slots=True)
class Selection:
    """What SELECT names: a meter, a metric of a meter, or a word that may be either."""

    name: str
    meter: str | None = None
    """as in `metrics.'cpu.user'`; None if only `name` is given"""
    quoted: bool = False
    """so that a dot in `name` is a part of it and divides nothing"""

    def __str__(self) -> str:
        if self.meter is not None:
            return f"{written(self.meter)}.{quote(self.name)}"
        return quote(self.name) if self.quoted else self.name


@dataclass(frozen=True, slots=True)
class Query:
    """What a query asks for. `str()` of it is canonical and parses to an equal query."""

    sources: tuple[str, ...] | None
    """values of the meter's label `server`, or of its first one; None is all of them"""
    selection: Selection
    window_s: int | None = None
    """length of a window; None is one window over the whole range"""
    every_s: int | None = None
    """a window begins so often; None is as often as one ends"""
    compute: tuple[str, ...] | None = None
    """canonical names; None is all that the meter computes"""
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """the values that each label may have; all labels must match"""
    by: tuple[str, ...] = ()
    since: str | None = None
    """`-1h`, `2026-11-15T12:00:00Z` or `2026-11-15`, like `from` of other questions"""
    until: str | None = None
    """as `since`, or `now`"""
    limit: int | None = None
    text: str = field(default="", compare=False, repr=False)
    positions: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """where the parts stand in `text`: `from`, `select`, `window`, `compute.p99`, `where.country`, `by.country` …"""

    @property
    def select(self) -> str:
        """As written, with quotes only where they say something."""
        return str(self.selection)

    @property
    def window(self) -> str | None:
        return None if self.window_s is None else spelled(self.window_s)

    @property
    def every(self) -> str | None:
        return None if self.every_s is None else spelled(self.every_s)

    def error(self, code: Code, detail: str, at: str) -> QueryError:
        """An error that points at a part, for whoever finds out that it cannot be answered."""
        position = self.positions.get(at, 0)
        return QueryError(code, detail, position, excerpt(self.text, position))

    def __str__(self) -> str:
        parts = [
            f"FROM {_listed(self.sources) if self.sources is not None else '*'}",
            f"SELECT {self.select}",
            f"WINDOW {self.window}" if self.window_s is not None else "",
            f"EVERY {self.every}" if self.every_s is not None else "",
            f"COMPUTE {', '.join(self.compute)}" if self.compute is not None else "",
            f"WHERE {' AND '.join(_condition(*each) for each in sorted(self.where.items()))}" if self.where else "",
            f"BY {_listed(self.by)}" if self.by else "",
            f"SINCE {self.since.removeprefix('-')}" if self.since is not None else "",
            f"UNTIL {self.until.removeprefix('-')}" if self.until is not None else "",
            f"LIMIT {self.limit}" if self.limit is not None else "",
        ]
        return " ".join(part for part in parts if part)


def is_bare(name: str) -> bool:
    return BARE.fullmatch(name) is not None and name.upper() not in KEYWORDS


def written(name: str) -> str:
    """A name or value with quotes only if it needs them."""
    return name if is_bare(name) else quote(name)


def quote(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(written, names))


def _condition(label: str, values: tuple[str, ...]) -> str:
    quoted = ", ".join(map(quote, values))
    return f"{written(label)} = {quoted}" if len(values) == 1 else f"{written(label)} IN ({quoted})"
