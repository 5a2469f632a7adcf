"""The functions of definitions and questions by name: which there are, their order, and what a wrong name meant."""

import re
from collections.abc import Iterable
from decimal import Decimal

from tallymark.aggregates.functions import NAMES, is_percentile, percentile_name
from tallymark.suggest import suggest

EXAMPLES = (*NAMES, "p50", "p99", "p99.9")

_ELSEWHERE = {
    "average": "avg",
    "mean": "avg",
    "median": "p50",
    "total": "sum",
    "minimum": "min",
    "maximum": "max",
    "latest": "last",
    "unique": "distinct",
    "cardinality": "distinct",
}
NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_NUMBERED = re.compile(r"p(?:ercentile)?\(?([0-9]{1,9}(?:\.[0-9]{0,9})?)\)?", re.IGNORECASE)


def is_function(name: str) -> bool:
    return name in NAMES or is_percentile(name)


def canonical(word: str) -> str | None:
    """What a query calls so: `p99.9` for `p99.90`, `p50` for `median`; None if it is not a function."""
    if word == "median":
        return "p50"
    if word.startswith("p") and NUMBER.fullmatch(word[1:]):
        try:
            return percentile_name(Decimal(word[1:]))
        except ValueError:
            return None
    return word if word in NAMES else None


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Each once: the plain functions as listed, then the percentiles from low to high."""
    given = set(names)
    percentiles = [name for name in given if is_percentile(name)]
    return (*(name for name in NAMES if name in given), *sorted(percentiles, key=lambda name: Decimal(name[1:])))


def meant(word: str) -> str:
    """What follows `unknown function …`: how it is written here, the nearest, or what there is."""
    if found := _NUMBERED.fullmatch(word):
        return f"; {percentile_hint(Decimal(found[1]))}"
    if known := _ELSEWHERE.get(word.lower()):
        return f"; write {known}"
    return suggest(word, EXAMPLES)


def percentile_hint(number: Decimal) -> str:
    """How the percentile of this number is written, or what to use where there is none."""
    try:
        return f"write {percentile_name(number)}"
    except ValueError:
        ends = {Decimal(0): "the least value is min", Decimal(100): "the greatest value is max"}
        return ends.get(number, "a percentile is over 0 and under 100, with at most 3 decimals")
