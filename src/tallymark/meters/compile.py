"""A `where` as a Polars expression: one vectorised pass over a frame, the same answer as `meters.evaluate`."""

from typing import Protocol

import polars as pl

from tallymark.meters.tree import And, Comparison, Expression, IsNull, Literal, Membership, Not, Or


class Columns(Protocol):
    """How a frame shows its properties, and its fields `event` and `value`, to an expression."""

    def text(self, name: str) -> pl.Expr:
        """Label text; null where it is empty or missing."""
        ...

    def number(self, name: str) -> pl.Expr:
        """Float64; null where it is missing or no finite number: the twin of `evaluate.number`."""
        ...


def to_polars(expression: Expression, columns: Columns) -> pl.Expr:
    """A Boolean expression with nulls (three-valued logic); `DataFrame.filter` keeps exactly what `where` keeps."""
    match expression:
        case And(terms):
            return pl.all_horizontal([to_polars(term, columns) for term in terms])
        case Or(terms):
            return pl.any_horizontal([to_polars(term, columns) for term in terms])
        case Not(inner):
            return ~to_polars(inner, columns)
        case IsNull(name):
            return columns.text(name).is_null()
        case Comparison(name, operator, literal):
            return _compare(columns, name, operator, literal)
        case Membership(name, literals):
            return _membership(columns, name, literals)


def _compare(columns: Columns, name: str, operator: str, literal: Literal) -> pl.Expr:
    left = columns.text(name) if isinstance(literal, str) else columns.number(name)
    right = pl.lit(literal, dtype=pl.String if isinstance(literal, str) else pl.Float64)
    match operator:
        case "=":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right


def _membership(columns: Columns, name: str, literals: tuple[Literal, ...]) -> pl.Expr:
    texts = [literal for literal in literals if isinstance(literal, str)]
    numbers = [literal for literal in literals if not isinstance(literal, str)]
    either = []
    if texts:
        either.append(columns.text(name).is_in(texts))
    if numbers:
        either.append(columns.number(name).is_in(numbers))
    return pl.any_horizontal(either)
