"""The `where` language: a condition over one event, from its text to a tree, or an error at the position.

    status = 'ok' and (ms > 250 or country in ('KR', 'JP')) and user is not null

Names are properties (`video`, `http.status`, `"odd name"`, `props.video`), but `event` is the event's name and `value`
its own number, as they are in `by` and `value` of a meter. Literals are 'text' ('' in it is a quote), numbers, true and
false.

What it means:

* With a text literal a property compares as its label text, by code points: 200, 200.0 and "200" are '200', true is
  'true'. `= true` and `= false` are the same as `= 'true'` and `= 'false'`.
* With a number it compares as a float64; text that is no number is null, and so is a boolean.
* A missing property, null and "" are all null.
* Logic has three values, as in SQL: a comparison with null is neither true nor false but null, `not` of null is null,
  and `where` keeps an event only if the whole is *true*. So neither `status != 'ok'` nor `not (status = 'ok')` keeps
  events without a status; `status is null or status != 'ok'` does.
* `x in (a, b)` means `x = a or x = b`.

The text is never evaluated as Python nor pasted into SQL: `meters.compile` makes a Polars expression of the tree, and
`meters.evaluate` is its plain meaning in Python.
"""

import math
import re

from tallymark.meters.errors import Flaw, MeterError, shown
from tallymark.meters.tokens import END, UNREADABLE, Token, TokenReader, excerpt, scan, unquoted
from tallymark.meters.tree import (
    FIELDS,
    KEYWORDS,
    RESERVED,
    Comparison,
    Expression,
    IsNull,
    Literal,
    Membership,
    conjunction,
    disjunction,
    negation,
)

MAX_LENGTH = 4_000
MAX_DEPTH = 32
MAX_NAME = 128

_TOKENS = re.compile(
    r"""(?P<space>\s+)
      | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.]))
      | (?P<props>props\.(?="))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<foreign>==|<>|&&|\|\||!(?!=))
      | (?P<operator>!=|<=|>=|=|<|>)
      | (?P<mark>[(),])""",
    re.VERBOSE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_FOREIGN = {"==": "=", "<>": "!=", "&&": "and", "||": "or", "!": "not"}
_OPERATORS = "=, !=, <, <=, >, >=, in or is"


class ExpressionError(MeterError):
    """The text is no expression; `position` counts characters from 0."""

    def __init__(self, code: str, detail: str, *, text: str, position: int) -> None:
        super().__init__([Flaw(code, detail, path="where", excerpt=excerpt(text, position))])
        self.position = position


def parse(text: str) -> Expression:
    """The tree of `text`; raises ExpressionError. `str()` of the answer parses to an equal tree."""
    if len(text) > MAX_LENGTH:
        detail = f"an expression of {len(text):,} characters exceeds {MAX_LENGTH:,}"
        raise ExpressionError("bad_where", detail, text=text, position=MAX_LENGTH)
    if surrogate := _SURROGATE.search(text):
        raise ExpressionError(
            "bad_where", "half a surrogate pair is not a character", text=text, position=surrogate.start()
        )
    expression = _Parser(text).whole()
    if (length := len(str(expression))) > MAX_LENGTH:
        # The canonical text is what is kept and parsed again, so it must pass too.
        detail = f"an expression of {length:,} characters, written with spaces, exceeds {MAX_LENGTH:,}"
        raise ExpressionError("bad_where", detail, text=text, position=0)
    return expression


def _tokens(text: str) -> list[Token]:
    found = []
    for token in scan(text, _TOKENS):
        if token.kind == UNREADABLE:
            raise ExpressionError("bad_where", _unreadable(token.text), text=text, position=token.position)
        if token.kind == "foreign":
            detail = f"{token.text!r} is not an operator here; write {_FOREIGN[token.text]!r}"
            raise ExpressionError("bad_where", detail, text=text, position=token.position)
        is_keyword = token.kind == "name" and token.text.lower() in KEYWORDS
        found.append(Token("keyword", token.text.lower(), token.position) if is_keyword else token)
    return found


def _unreadable(character: str) -> str:
    if character == "'":
        return "this text has no closing quote '"
    if character == '"':
        return 'this name has no closing quote "'
    if character.isdigit() or character in "+-.":
        return "this is not a number"
    return f"unexpected character {character!r}"


class _Parser(TokenReader):
    """Recursive descent, one method a rule; MAX_DEPTH bounds the recursion.

    or    := and ("or" and)*
    and   := not ("and" not)*
    not   := "not"* (test | "(" or ")")
    test  := name (operator literal | ["not"] "in" "(" literal ("," literal)* ")" | "is" ["not"] "null")
    """

    def __init__(self, text: str) -> None:
        super().__init__(_tokens(text))
        self._text = text
        self._depth = 0

    def whole(self) -> Expression:
        if self._next.kind == END:
            raise self._error("the expression is empty; leave `where` out to count every event")
        expression = self._or()
        if self._next.kind != END:
            raise self._error(f"expected 'and', 'or' or the end, found {self._next}")
        return expression

    def _or(self) -> Expression:
        terms = [self._and()]
        while self._take("keyword", "or"):
            terms.append(self._and())
        return disjunction(terms)

    def _and(self) -> Expression:
        terms = [self._not()]
        while self._take("keyword", "and"):
            terms.append(self._not())
        return conjunction(terms)

    def _not(self) -> Expression:
        negated = False
        while self._take("keyword", "not"):
            negated = not negated
        inner = self._parentheses() if self._next.text == "(" else self._test()
        return negation(inner) if negated else inner

    def _parentheses(self) -> Expression:
        if self._depth >= MAX_DEPTH:
            raise self._error(f"parentheses nested deeper than {MAX_DEPTH}")
        self._depth += 1
        self._expect("mark", "(")
        inner = self._or()
        self._expect("mark", ")")
        self._depth -= 1
        return inner

    def _test(self) -> Expression:
        name = self._name()
        if self._next.kind == "operator":
            return self._comparison(name)
        negated = self._take("keyword", "not")
        if self._take("keyword", "in"):
            return self._negated(self._membership(name), negated)
        if not negated and self._take("keyword", "is"):
            negated = self._take("keyword", "not")
            self._expect("keyword", "null")
            return self._negated(IsNull(name), negated)
        raise self._error(f"expected {'in' if negated else _OPERATORS} after {shown(name)}, found {self._next}")

    def _comparison(self, name: str) -> Expression:
        operator = self._advance().text
        truth = self._next.kind == "keyword" and self._next.text in ("true", "false")
        if truth and operator not in ("=", "!="):
            raise self._error(f"{self._next.text} compares with = and != only, not with {operator}")
        return Comparison(name, operator, self._literal())

    def _membership(self, name: str) -> Expression:
        self._expect("mark", "(")
        literals = [self._literal()]
        while self._take("mark", ","):
            literals.append(self._literal())
        self._expect("mark", ")")
        return Membership(name, tuple(literals))

    def _name(self) -> str:
        token = self._next
        if token.kind == "props":
            self._advance()
            return self._quoted(self._expect("quoted"))
        if token.kind == "quoted":
            return self._quoted(self._advance())
        if token.kind == "name":
            return self._bare(self._advance())
        if token.kind in ("text", "number"):
            raise self._error(f"expected the name of a property on the left, found {token}; put the name first")
        if token.kind == "keyword":
            raise self._error(
                f'expected the name of a property, found {token}; a property of that name is "{token.text}"'
            )
        raise self._error(f"expected the name of a property, found {token}")

    def _bare(self, token: Token) -> str:
        if token.text in FIELDS:
            return token.text
        if token.text in RESERVED:
            detail = f"the field {token.text} cannot be used here; a property of that name is props.{token.text}"
            raise self._error(detail, token)
        first, _, rest = token.text.partition(".")
        return self._property(rest if first == "props" else token.text, token)

    def _quoted(self, token: Token) -> str:
        return self._property(unquoted(token), token)

    def _property(self, name: str, token: Token) -> str:
        if not 1 <= len(name) <= MAX_NAME or "\0" in name:
            raise self._error(f"names of properties have 1 to {MAX_NAME} characters and no NUL", token)
        if name in FIELDS:
            raise self._error(f"{name} is the event's own here; a property of that name cannot be used", token)
        return name

    def _literal(self) -> Literal:
        token = self._next
        if token.text == "''":
            raise self._error("'' matches nothing: an empty text is null; write `is null` or `is not null`")
        if token.kind == "text":
            return unquoted(self._advance())
        if token.kind == "number":
            return self._number(self._advance())
        if token.kind == "keyword" and token.text in ("true", "false"):
            return self._advance().text
        if token.kind == "keyword" and token.text == "null":
            raise self._error("nothing compares with null; write `is null` or `is not null`")
        hint = f"; text needs quotes: '{token.text}'" if token.kind == "name" else ""
        raise self._error(f"expected a 'text', a number, true or false, found {token}{hint}")

    def _number(self, token: Token) -> float:
        number = float(token.text)
        if not math.isfinite(number):
            raise self._error("this number is too large", token)
        if token.text.lstrip("+-").isdigit() and abs(int(token.text)) > 2**53:
            # 9007199254740993 and …992 are one float64: the comparison would quietly be with the other one.
            raise self._error(f"whole numbers beyond 2^53 are not exact; compare as text: '{token.text}'", token)
        return number + 0.0  # -0 is 0

    @staticmethod
    def _negated(test: Expression, negated: bool) -> Expression:
        return negation(test) if negated else test

    def _expect(self, kind: str, text: str = "") -> Token:
        if self._next.kind != kind or (text and self._next.text != text):
            raise self._error(f"expected {text or 'a quoted name'}, found {self._next}")
        return self._advance()

    def _error(self, detail: str, token: Token | None = None) -> ExpressionError:
        return ExpressionError("bad_where", detail, text=self._text, position=(token or self._next).position)
