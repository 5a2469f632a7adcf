"""What may come next at a position of a query, by the grammar itself; the query may be half-written, or wrong.

The parser reads up to the position as it reads any query. Everything that it would take there, it is asked for there:
so what is offered is what `language.parse` accepts.
"""

from dataclasses import dataclass, field
from typing import Any, NoReturn

from tallymark.meters.language import CLAUSES, Parser
from tallymark.meters.phrases import METRIC, tokens
from tallymark.meters.stored_query import QueryError, Selection
from tallymark.meters.tokens import END, Token

FUNCTION = "a function"
DURATION = "a duration"
MOMENT = "a time"
NUMBER = "a number"

_HERE = "here"
_WORDS = ("word", "keyword", "ago")
# Marks that say more than that the sentence goes on.
_MARKS = ("*", "=", "(")
_PARTS = ("FROM", "SELECT", *CLAUSES)


@dataclass(frozen=True, slots=True)
class Expected:
    """What may stand from `start` to `end`, where the word at the position is, or nothing yet."""

    start: int
    end: int
    typed: str
    """of the word, up to the position, without quotes"""
    is_quoted: bool
    keywords: tuple[str, ...] = ()
    wants: str | None = None
    """what else: SOURCE, METER, METRIC, LABEL, VALUE of `phrases`, or one of the above"""
    clause: str = ""
    """in capitals: the one that the position is in"""
    label: str | None = None
    """whose VALUE is wanted"""
    selection: Selection | None = None
    """what the query selects, before or behind the position"""
    listed: frozenset[str] = field(default_factory=frozenset)
    """names and functions that the clause has already"""


def expected(text: str, at: int) -> Expected:
    """What the grammar has at the character `at`."""
    before, unclosed = _tolerant(text[:at])
    start, end, typed = at, at, ""
    if unclosed is not None:
        start, typed = unclosed, text[unclosed + 1 : at].replace(text[unclosed] * 2, text[unclosed])
        end = _closing(text, unclosed, at)
    elif before and before[-1].kind in (*_WORDS, "quoted") and _end(before[-1]) == at:
        current = before.pop()
        is_quoted = current.kind == "quoted"
        start, typed = current.position, text[current.position : at]
        typed = typed[1:-1].replace(typed[0] * 2, typed[0]) if is_quoted else typed
        end = at if is_quoted else _word_end(text, current)
    grammar = _reached(text, [*before, Token(_HERE, "", start)])
    clause = next((token.text for token in reversed(before) if token.kind == "keyword" and token.text in _PARTS), "")
    return Expected(
        start,
        end,
        typed,
        text[start : start + 1] in ("'", '"'),
        tuple(grammar.keywords),
        grammar.wants,
        clause,
        grammar.label,
        _selection(text, at, start),
        _listed(before),
    )


class _Here(Exception):
    """The parser has come to the position."""


class _Grammar(Parser):
    """The parser of queries over tokens that end with one of the kind _HERE."""

    def __init__(self, text: str, found: list[Token]) -> None:
        super().__init__(text, found)
        self.keywords: dict[str, None] = {}
        self.wants: str | None = None
        self.label: str | None = None

    def from_clause(self, left: list[str]) -> NoReturn:
        """Like `whole`, but from the beginning of a clause, or of SELECT, on."""
        if super()._take("keyword", "SELECT"):
            self._selection()
        while True:
            self._clause(left)

    def _want(self, what: str) -> None:
        if self._next.kind == _HERE:
            self.wants = what
            raise _Here

    def _take(self, kind: str, text: str) -> bool:
        if self._next.kind == _HERE and (kind == "keyword" or text in _MARKS):
            self.keywords[text] = None
        return super()._take(kind, text)

    def _clause(self, left: list[str]) -> dict[str, Any]:
        if self._next.kind == _HERE:
            self.keywords |= dict.fromkeys(left)
            raise _Here
        return super()._clause(left)

    def _selection(self) -> Selection:
        token = self._next
        following = [each for each in self._tokens[self._at + 1 :][:1] if each.position == _end(token)]
        if token.text.endswith(".") and [each.kind for each in following] == [_HERE]:
            self._advance()  # metrics.'…
            self._want(METRIC)
        return super()._selection()

    def _value(self, what: str) -> str:
        self._want(what)
        return super()._value(what)

    def _values(self, label: str) -> tuple[str, ...]:
        self.label = label
        return super()._values(label)

    def _function(self) -> str:
        self._want(FUNCTION)
        return super()._function()

    def _duration(self, clause: str) -> int:
        self._want(DURATION)
        return super()._duration(clause)

    def _moment(self, clause: str) -> str:
        self._want(MOMENT)
        return super()._moment(clause)

    def _limit(self) -> dict[str, Any]:
        self._want(NUMBER)
        return super()._limit()


def _reached(text: str, found: list[Token]) -> _Grammar:
    """After the parser came to the position: from the beginning, else from the last clause, which may be right."""
    here = found[-1].position
    begins = [place for place, token in enumerate(found) if token.kind == "keyword" and token.text in _PARTS]
    used = {found[place].text for place in begins}
    attempts = [(0, False), *((place, True) for place in begins[-1:])]
    for place, is_part in attempts:
        grammar = _Grammar(text, found[place:])
        left = [clause for clause in CLAUSES if clause not in used or clause == found[place].text]
        try:
            if is_part and found[place].text != "FROM":
                grammar.from_clause(left)
            grammar.whole()
        except _Here:
            return grammar
        except QueryError as error:
            if error.position == here and grammar._next.kind == _HERE:
                return grammar
    # The clause itself is wrong: another may begin.
    grammar = _Grammar(text, found[-1:])
    grammar.keywords = dict.fromkeys(clause for clause in CLAUSES if clause not in used)
    return grammar


def _tolerant(text: str) -> tuple[list[Token], int | None]:
    """All tokens but the end, also what no token begins with; and where a quote stands that is not closed."""
    found: list[Token] = []
    begin = 0
    while True:
        part = [Token(token.kind, token.text, token.position + begin) for token in tokens(text[begin:])]
        last = part.pop()
        found += part
        if last.kind == END:
            return found, None
        if last.text in "'\"":
            return found, last.position
        found.append(last)
        begin = last.position + 1


def _end(token: Token) -> int:
    return token.position + len(token.text)


def _word_end(text: str, current: Token) -> int:
    """With what stands behind the position, if it belongs to the word."""
    return current.position + len(tokens(text[current.position :])[0].text)


def _closing(text: str, start: int, at: int) -> int:
    """Behind the closing quote, if it closes this text and not one that begins behind it."""
    whole = tokens(text[start:])[0]
    is_closed = whole.kind == "quoted" and not any(map(str.isspace, text[at : start + len(whole.text)]))
    return start + len(whole.text) if is_closed else at


def _selection(text: str, at: int, start: int) -> Selection | None:
    """What SELECT names, wherever the position is; None if it cannot be read."""
    found = _tolerant(text)[0]
    if not any(_is_select(token) for token in found):
        # An open quote hides what follows.
        found = _tolerant(text[:start])[0] + _tolerant(text[at:])[0]
    place = next((place for place, token in enumerate(found) if _is_select(token)), None)
    if place is None:
        return None
    try:
        return Parser(text, [*found[place + 1 :], Token(END, "", len(text))])._selection()
    except QueryError:
        return None


def _is_select(token: Token) -> bool:
    return (token.kind, token.text) == ("keyword", "SELECT")


def _listed(before: list[Token]) -> frozenset[str]:
    """The words of the clause so far."""
    begins = [place for place, token in enumerate(before) if token.kind == "keyword" and token.text in _PARTS]
    return (
        frozenset(token.text for token in before[begins[-1] + 1 :] if token.kind == "word") if begins else frozenset()
    )
