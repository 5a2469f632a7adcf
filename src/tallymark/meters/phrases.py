"""The parts that the clauses of a query are made of: names, values, functions, durations, moments."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import NoReturn

from tallymark.aggregates.functions import percentile_name
from tallymark.meters import durations, function_names, moments
from tallymark.meters.errors import shown
from tallymark.meters.expression import MAX_NAME
from tallymark.meters.stored_query import BARE, KEYWORDS, Code, QueryError, quote
from tallymark.meters.tokens import UNREADABLE, Token, TokenReader, excerpt, scan, unquoted

_TOKENS = re.compile(
    rf"""(?P<space>\s+)
      | (?P<ago>-[0-9][A-Za-z0-9.]*)
      | (?P<word>{BARE.pattern})
      | (?P<quoted>'(?:[^']|'')*+'|"(?:[^"]|"")*+")
      | (?P<operator>==|!=|<>|<=|>=|<|>|&&|\|\|)
      | (?P<mark>[(),*=.;])""",
    re.VERBOSE,
)


# What a query may have at a place where the meters and their series decide what fits; said so in refusals.
SOURCE = "a value or *"
METER = "the name of a meter or metric"
METRIC = "the name of a metric"
LABEL = "the name of a label"
VALUE = "a value"


def refusal(text: str, position: int, detail: str, code: Code = "bad_query") -> QueryError:
    return QueryError(code, detail, position, excerpt(text, position))


def tokens(text: str) -> list[Token]:
    """All tokens, the last of the kind END or UNREADABLE."""
    found = []
    for token in scan(text, _TOKENS):
        is_keyword = token.kind == "word" and token.text.upper() in KEYWORDS
        found.append(Token("keyword", token.text.upper(), token.position) if is_keyword else token)
    return found


def _readable(text: str) -> list[Token]:
    found = tokens(text)
    if found[-1].kind == UNREADABLE:
        raise refusal(text, found[-1].position, _unreadable(found[-1].text))
    return found


def _unreadable(character: str) -> str:
    if character in "'\"":
        return f"this text has no closing quote {character}"
    return f"unexpected character {character!r}; in a name or value it needs quotes: 'like {character} this'"


class Phrases(TokenReader):
    """Reads them from a text, and remembers where they stand in it."""

    def __init__(self, text: str, found: list[Token] | None = None) -> None:
        """`found` are the tokens, if somebody has them already."""
        super().__init__(_readable(text) if found is None else found)
        self._text = text
        self._positions: dict[str, int] = {}

    def _list(self, item: Callable[[], str]) -> tuple[str, ...]:
        """Several with commas between them, each once."""
        items = {item(): None}
        while self._take("mark", ","):
            items[item()] = None
        return tuple(items)

    def _name(self, what: str) -> str:
        token = self._next
        name = self._value(what)
        if not 1 <= len(name) <= MAX_NAME:
            self._refuse(f"names have 1 to {MAX_NAME} characters", token)
        return name

    def _value(self, what: str) -> str:
        token = self._next
        if token.kind == "quoted":
            return unquoted(self._advance())
        if token.kind == "word":
            return self._advance().text
        hint = f"; quotes make it a name: {quote(self._as_typed(token))}" if token.kind in ("keyword", "ago") else ""
        self._refuse(f"expected {what}, found {token}{hint}")

    def _key(self) -> str:
        token = self._next
        label = self._name(LABEL)
        self._positions.setdefault(f"by.{label}", token.position)
        return label

    def _function(self) -> str:
        token = self._next
        if self._is_next("mark", "*"):
            self._refuse("leave COMPUTE out to get all that the meter computes")
        if token.kind != "word":
            self._refuse(f"expected a function like avg or percentile(99), found {token}")
        word = self._advance().text.lower()
        name = self._percentile() if word == "percentile" else function_names.canonical(word)
        if name is None:
            self._refuse(
                f"unknown function {shown(token.text)}{function_names.meant(token.text)}", token, "unknown_function"
            )
        if word != "percentile" and self._is_next("mark", "("):
            self._refuse(f"{word} takes nothing in parentheses; write {word}")
        self._positions.setdefault(f"compute.{name}", token.position)
        return name

    def _percentile(self) -> str:
        if not self._take("mark", "("):
            self._refuse(f"expected ( after percentile, found {self._next}; write percentile(99) or p99")
        token = self._next
        if not function_names.NUMBER.fullmatch(token.text):
            self._refuse(f"expected a number like 99 or 99.9, found {token}")
        number = Decimal(self._advance().text)
        if 0 < number < 1:
            whole = f"{(number * 100).normalize():f}"
            self._refuse(
                f"percentiles are of 100, not of 1: write percentile({whole}), or p{token.text} if you mean it", token
            )
        try:
            name = percentile_name(number)
        except ValueError:
            hint = function_names.percentile_hint(number)
            self._refuse(f"there is no percentile({token.text}); {hint}", token, "unknown_function")
        self._expect(")")
        return name

    def _duration(self, clause: str) -> int:
        token = self._next
        duration_s = durations.seconds(token.text) if token.kind == "word" else None
        if duration_s is None:
            self._refuse(f"{clause} takes {durations.FORM}, not {token}")
        if not 1 <= duration_s <= durations.LONGEST_S:
            most = durations.spelled(durations.LONGEST_S)
            self._refuse(f"{clause} is at least 1s and at most {most}, not {token}")
        self._positions[clause.lower()] = self._advance().position
        return duration_s

    def _moment(self, clause: str) -> str:
        token = self._next
        if token.kind not in ("word", "ago", "quoted"):
            self._refuse(f"expected a time after {clause.upper()}, found {token}; {moments.FORM}")
        self._positions[clause] = self._advance().position
        try:
            moment = moments.canonical(unquoted(token) if token.kind == "quoted" else token.text)
        except moments.BadMoment as error:
            self._refuse(str(error), token)
        if moment == moments.NOW and clause == "since":
            self._refuse("nothing has happened since now; write how long ago: SINCE 1h", token)
        if self._next.text.lower() == "ago" and moment.startswith("-"):
            self._advance()
        elif self._next.kind == "word" and re.match(r"[0-9]{2}:", self._next.text):
            self._refuse(f"write date and time with a T between them: {token.text}T{self._next.text}")
        return moment

    def _expect(self, mark: str) -> None:
        if not self._take("mark", mark):
            self._refuse(f"expected {mark}, found {self._next}")

    def _as_typed(self, token: Token) -> str:
        return self._text[token.position : token.position + len(token.text)]

    def _refuse_part(self, part: str, detail: str) -> NoReturn:
        raise refusal(self._text, self._positions[part], detail)

    def _refuse(self, detail: str, token: Token | None = None, code: Code = "bad_query") -> NoReturn:
        raise refusal(self._text, (token or self._next).position, detail, code)
