"""What a `where` means, in plain Python: the yardstick for the compiled form, and enough for a few events."""

import math
import re
from collections.abc import Mapping
from typing import Any

from tallymark.events.labels import label
from tallymark.meters.tree import FIELDS, And, Comparison, Expression, IsNull, Literal, Membership, Not, Or

# What Polars reads as a finite float64. Python's float() also takes "1_000", " 1 " and digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def matches(expression: Expression, event: Mapping[str, Any]) -> bool:
    """Whether `where` keeps the event, given as in the contract: {"event": …, "value": …, "props": {…}}."""
    return _truth(expression, event) is True


def number(value: object) -> float | None:
    """A property's value as a finite float64; None if it is not one (a boolean is not, text may be)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        converted = float(value)
    except OverflowError:  # an integer beyond float64
        return None
    return converted if math.isfinite(converted) else None


def _truth(expression: Expression, event: Mapping[str, Any]) -> bool | None:
    match expression:
        case And(terms):
            return _all([_truth(term, event) for term in terms])
        case Or(terms):
            return _not(_all([_not(_truth(term, event)) for term in terms]))
        case Not(inner):
            return _not(_truth(inner, event))
        case IsNull(name):
            return label(_value(name, event)) == ""
        case Comparison(name, operator, literal):
            return _compare(_value(name, event), operator, literal)
        case Membership(name, literals):
            value = _value(name, event)
            return _not(_all([_not(_compare(value, "=", literal)) for literal in literals]))


def _value(name: str, event: Mapping[str, Any]) -> object:
    return (event if name in FIELDS else event.get("props") or {}).get(name)


def _compare(value: object, operator: str, literal: Literal) -> bool | None:
    left: Any = (label(value) or None) if isinstance(literal, str) else number(value)
    right: Any = literal
    if left is None:
        return None
    match operator:
        case "=":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _all(truths: list[bool | None]) -> bool | None:
    if False in truths:
        return False
    return None if None in truths else True
