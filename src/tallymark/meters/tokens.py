"""What the two languages of meters share: texts cut into tokens, a reader that walks them, excerpts with a caret."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tallymark.meters.errors import shown

UNREADABLE = "unreadable"
END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    position: int
    """in characters from 0"""

    def __str__(self) -> str:
        return "the end" if self.kind == END else shown(self.text)


def scan(text: str, pattern: re.Pattern[str]) -> Iterator[Token]:
    """The tokens of a text, each of the kind of its group in `pattern`, without `space`; then one of the kind END.

    The first character that begins none is UNREADABLE and ends them, too.
    """
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            yield Token(UNREADABLE, text[position], position)
            return
        if match.lastgroup != "space":
            yield Token(str(match.lastgroup), match.group(), position)
        position = match.end()
    yield Token(END, "", len(text))


class TokenReader:
    """Walks tokens that end with one of the kind END, which is never passed."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _advance(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def _is_next(self, kind: str, text: str) -> bool:
        return (self._next.kind, self._next.text) == (kind, text)

    def _take(self, kind: str, text: str) -> bool:
        if not self._is_next(kind, text):
            return False
        self._at += 1
        return True


def unquoted(token: Token) -> str:
    """The text between the quotes; a doubled quote in it is one."""
    quote = token.text[0]
    return token.text[1:-1].replace(quote * 2, quote)


def excerpt(text: str, position: int, around: int = 50) -> str:
    """The text around a position, and a line with a caret under it."""
    start, end = max(0, position - around), position + around
    # One line of printable characters, so that the caret stands under the right one.
    line = "".join(character if character.isprintable() else " " for character in text[start:end])
    before, after = "…" if start else "", "…" if end < len(text) else ""
    return f"  {before}{line}{after}\n  {' ' * (len(before) + position - start)}^"
