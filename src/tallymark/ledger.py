"""The ledger: what became of every accepted event. `Ledger` is the one table of its terms.

Addition, the tables of both stores, the pipeline's metrics, `/v1/status`, the command line and the page are derived
from it. To add a term, add a row at the end (the order is the one on disk), a migration for SQLite, and count it in the
pipeline.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any


class Part(Enum):
    """What a term has to do with the sum `accepted = counted + …`."""

    WHOLE = "whole"
    """the left side"""
    OUTCOME = "outcome"
    """a summand: each accepted event is in exactly one of them, or in flight"""
    NOTE = "note"
    """for information: its events are also in an outcome"""


@dataclass(frozen=True, slots=True)
class Term:
    """One row of the table."""

    name: str
    label: str
    """as people read it"""
    meaning: str
    part: Part


def _term(part: Part, label: str, meaning: str) -> Any:
    return field(default=0, metadata={"part": part, "label": label, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class Ledger:
    """What became of the events of a stretch, a partition or everything; ledgers add up term by term."""

    accepted: int = _term(Part.WHOLE, "accepted", "read from the log; a client was told that they are durable")
    counted: int = _term(Part.OUTCOME, "counted", "counted by at least one meter")
    duplicate: int = _term(Part.OUTCOME, "duplicate", "copies of an event that is already accounted for")
    dead: int = _term(Part.OUTCOME, "dead letters", "could not be read, and are kept as dead letters")
    aside: int = _term(Part.OUTCOME, "set aside", "resent too late to tell whether they were counted; kept whole")
    unmatched: int = _term(Part.OUTCOME, "in no meter", "no meter counts them")
    late: int = _term(Part.NOTE, "late", "counted or in no meter, and more than an hour old when received")

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Ledger":
        """From the numbers in the table's order; a ledger written before a term existed has none of it."""
        found = tuple(numbers)
        if len(found) > len(NAMES):
            raise ValueError(
                f"a ledger of {len(found)} terms; this version of Tallymark knows {len(NAMES)}: {', '.join(NAMES)}"
            )
        return cls(*found)

    @property
    def numbers(self) -> tuple[int, ...]:
        """In the table's order."""
        return _numbers(self)

    @property
    def missing(self) -> int:
        """Accepted events without an outcome; anything but 0 is a loss, or a bug in Tallymark."""
        return self.accepted - sum(_outcomes(self))

    def __add__(self, other: "Ledger") -> "Ledger":
        return Ledger(*map(operator.add, _numbers(self), _numbers(other)))


TERMS = tuple(Term(name=row.name, **row.metadata) for row in fields(Ledger))
NAMES = tuple(term.name for term in TERMS)
OUTCOMES = tuple(term for term in TERMS if term.part is Part.OUTCOME)
NOTES = tuple(term for term in TERMS if term.part is Part.NOTE)

# Several times faster than `dataclasses.astuple`, and a ledger is added for every slice that is counted.
_numbers: Callable[[Ledger], tuple[int, ...]] = operator.attrgetter(*NAMES)
_outcomes: Callable[[Ledger], tuple[int, ...]] = operator.attrgetter(*(term.name for term in OUTCOMES))
