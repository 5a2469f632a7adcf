"""What is wrong with a definition, all of it at once, each flaw with its place and the nearest valid word."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

Path = tuple[str | int, ...]
"""Where in a mapping: ("meters", 2, "compute", 1), written `meters[2].compute[1]`."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong with a definition."""

    code: str
    detail: str
    path: str = ""
    """`meters[2].compute[1]`; empty for the definition as a whole"""
    place: str = ""
    """`meters.yaml:4:31`; empty unless it came from a file"""
    excerpt: str = ""
    """for expressions: the text around the flaw, and a line with a caret under it"""
    offset: int | None = None
    """for expressions: where in their text, in characters from 0"""

    def __str__(self) -> str:
        where = self.place or self.path
        line = f"{where}: {self.detail}" if where else self.detail
        return f"{line}\n{self.excerpt}" if self.excerpt else line


_TOLD = 100
"""flaws in one message; `MeterError.flaws` has them all"""


class MeterError(ValueError):
    """A definition, file or expression that cannot be used; `flaws` has every reason, in order of appearance."""

    def __init__(self, flaws: Iterable[Flaw]) -> None:
        self.flaws = tuple(flaws)
        lines = [str(flaw) for flaw in self.flaws[:_TOLD]]
        if len(self.flaws) > _TOLD:
            lines.append(f"… and {len(self.flaws) - _TOLD} more")
        super().__init__("\n".join(lines))

    @property
    def code(self) -> str:
        return self.flaws[0].code

    @property
    def path(self) -> str:
        return self.flaws[0].path


class Places(Protocol):
    """Knows where in a file the parts of a definition stand."""

    def place(self, path: Path, *, key: bool, offset: int | None) -> str:
        """`file:line:column` of the value at `path` (or of its key), or of a character in its text."""
        ...


class _Nowhere:
    def place(self, path: Path, *, key: bool, offset: int | None) -> str:
        return ""


@dataclass(slots=True)
class Flaws:
    """Collects flaws while a definition is read, so that one look shows them all."""

    places: Places = field(default_factory=_Nowhere)
    found: list[Flaw] = field(default_factory=list)

    def add(
        self, code: str, detail: str, path: Path, *, key: bool = False, offset: int | None = None, excerpt: str = ""
    ) -> None:
        place = self.places.place(path, key=key, offset=offset)
        self.found.append(Flaw(code, detail, dotted(path), place, excerpt, offset))

    def raise_if_any(self) -> None:
        if self.found:
            raise MeterError(self.found)


def dotted(path: Path) -> str:
    """`meters[2].compute[1]`"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_cut(part)}" for part in path)
    return text.removeprefix(".")


def shown(value: object) -> str:
    """The value as it appears in a message, cut if long: a message must not be a megabyte."""
    if value is None:
        return "nothing"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of more than 60 digits"  # Python refuses to print those of more than 4,300
    return _cut(repr(value))


def _cut(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
