"""One measured figure, and what it should reach."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Conditions:
    """What a benchmark may use: a folder of its own on a real disk, and less time if `quick`."""

    folder: Path
    quick: bool

    def choose(self, *, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Reach:
    """A bound from the issue, below or above."""

    bound: float
    at_least: bool

    def is_reached(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:,.6g}"


def at_least(bound: float) -> Reach:
    return Reach(bound, at_least=True)


def at_most(bound: float) -> Reach:
    return Reach(bound, at_least=False)


@dataclass(frozen=True)
class Figure:
    """A row of the table; `details` go to the JSON file only."""

    benchmark: str
    what: str
    value: float
    unit: str
    reach: Reach | None = None
    remark: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        return None if self.reach is None else self.reach.is_reached(self.value)

    def spoken(self) -> str:
        return f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:,.2f}"
