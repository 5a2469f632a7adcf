"""What became of each send, in a file that survives the load itself being killed."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np

from tallymark.events import tenants
from tallymark.load.plan import Plan

Range = tuple[int, int]


class JournalError(Exception):
    """A file that is not the journal of a load."""


class Journal:
    """Appends one line per outcome, each in one write: a killed process leaves at most its last line incomplete."""

    def __init__(self, path: Path, plan: Plan, *, tenant: str | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o644)
        self._write({"plan": plan.as_json(), "tenant": tenant or ""})

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def sending(self, start: int, end: int) -> None:
        """Call before the first try; until the answer arrives, the outcome is unknown."""
        self._write({"sending": (start, end)})

    def acknowledged(self, sends: Iterable[int]) -> None:
        self._write({"acknowledged": ranges(sends)})

    def refused(self, sends: Iterable[int]) -> None:
        """For good: they must not be counted."""
        self._write({"refused": ranges(sends)})

    def _write(self, line: dict[str, object]) -> None:
        os.write(self._fd, msgspec.json.encode(line) + b"\n")


@dataclass
class Outcomes:
    """A journal as read."""

    plan: Plan
    acknowledged: list[Range] = field(default_factory=list)
    refused: list[Range] = field(default_factory=list)
    unknown: list[Range] = field(default_factory=list)
    """tried, but neither acknowledged nor refused"""
    tenant: str | None = None
    """whose events they are, empty if the load named nobody; None if a version wrote the journal that did not say"""


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    plan: dict[str, object] | None = None
    tenant: str | None = None
    sending: Range | None = None
    acknowledged: list[Range] = []
    refused: list[Range] = []


def read(path: Path) -> Outcomes:
    """The outcomes in the journal; an incomplete last line is ignored: nobody relied on it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from error
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    try:
        entries = [msgspec.json.decode(line, type=_Line) for line in lines]
        outcomes = Outcomes(msgspec.convert(entries[0].plan, Plan), tenant=entries[0].tenant)
        if outcomes.tenant:
            tenants.check(outcomes.tenant)
    except (IndexError, ValueError, msgspec.MsgspecError) as error:
        raise JournalError(f"{path} is not the journal of a load: {error}") from error
    unknown = np.zeros(outcomes.plan.sends, dtype=np.bool_)
    for entry in entries:
        outcomes.acknowledged.extend(entry.acknowledged)
        outcomes.refused.extend(entry.refused)
        if entry.sending:
            unknown[slice(*entry.sending)] = True
    for start, end in (*outcomes.acknowledged, *outcomes.refused):
        unknown[start:end] = False
    outcomes.unknown = ranges(np.flatnonzero(unknown).tolist())
    return outcomes


def ranges(numbers: Iterable[int]) -> list[Range]:
    """Ascending numbers as [start, end) pairs."""
    found: list[Range] = []
    if isinstance(numbers, range):
        return [(numbers.start, numbers.stop)] if numbers else []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found
