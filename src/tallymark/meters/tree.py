"""The `where` of a meter as a tree. `str()` of it is the canonical text; `meters.expression` says what it means."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

FIELDS = ("event", "value")
"""names that are the event's own; any other is a property"""
RESERVED = ("id", "props", "received", "tenant", "time", "values")
"""fields an expression cannot use yet: the bare names are refused, so that no meaning changes when they come"""
KEYWORDS = frozenset({"and", "or", "not", "in", "is", "null", "true", "false"})
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")

Literal = str | float
"""true and false are the texts 'true' and 'false'"""


class Tree:
    """What every kind of node can do."""

    __slots__ = ()

    def names(self) -> Iterator[str]:
        """The names it looks at, in order, with repeats."""
        raise NotImplementedError

    def properties(self) -> tuple[str, ...]:
        """The properties it looks at, sorted: what the pipeline must decode."""
        return tuple(sorted(set(self.names()) - set(FIELDS)))


class Condition(Tree):
    """A condition on one name."""

    __slots__ = ()
    name: str

    def names(self) -> Iterator[str]:
        yield self.name


@dataclass(frozen=True, slots=True)
class Comparison(Condition):
    name: str
    operator: str
    """one of = != < <= > >="""
    literal: Literal

    def __str__(self) -> str:
        as_truth = self.operator in ("=", "!=") and self.literal in ("true", "false")
        return f"{_named(self.name)} {self.operator} {self.literal if as_truth else _written(self.literal)}"


@dataclass(frozen=True, slots=True)
class Membership(Condition):
    name: str
    literals: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"{_named(self.name)} in {self.listed}"

    @property
    def listed(self) -> str:
        return f"({', '.join(map(_written, self.literals))})"


@dataclass(frozen=True, slots=True)
class IsNull(Condition):
    name: str

    def __str__(self) -> str:
        return f"{_named(self.name)} is null"


@dataclass(frozen=True, slots=True)
class Not(Tree):
    inner: "Expression"

    def names(self) -> Iterator[str]:
        return self.inner.names()

    def __str__(self) -> str:
        match self.inner:
            case IsNull(name):
                return f"{_named(name)} is not null"
            case Membership(name):
                return f"{_named(name)} not in {self.inner.listed}"
            case And() | Or():
                return f"not ({self.inner})"
        return f"not {self.inner}"


@dataclass(frozen=True, slots=True)
class And(Tree):
    terms: tuple["Expression", ...]

    def names(self) -> Iterator[str]:
        for term in self.terms:
            yield from term.names()

    def __str__(self) -> str:
        return " and ".join(f"({term})" if isinstance(term, Or) else str(term) for term in self.terms)


@dataclass(frozen=True, slots=True)
class Or(Tree):
    terms: tuple["Expression", ...]

    def names(self) -> Iterator[str]:
        for term in self.terms:
            yield from term.names()

    def __str__(self) -> str:
        return " or ".join(map(str, self.terms))


Expression = Comparison | Membership | IsNull | Not | And | Or


def negation(inner: Expression) -> Expression:
    return inner.inner if isinstance(inner, Not) else Not(inner)


def conjunction(terms: list[Expression]) -> Expression:
    """All of the terms; nested ones are made flat, so that parentheses without effect leave no trace."""
    flat = [part for term in terms for part in (term.terms if isinstance(term, And) else (term,))]
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def disjunction(terms: list[Expression]) -> Expression:
    flat = [part for term in terms for part in (term.terms if isinstance(term, Or) else (term,))]
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


def _named(name: str) -> str:
    if not _BARE.fullmatch(name) or name.lower() in KEYWORDS or name.startswith("props."):
        return '"' + name.replace('"', '""') + '"'
    return f"props.{name}" if name in RESERVED else name


def _written(literal: Literal) -> str:
    if isinstance(literal, str):
        return "'" + literal.replace("'", "''") + "'"
    return str(int(literal)) if literal.is_integer() and abs(literal) <= 2**53 else repr(literal)
