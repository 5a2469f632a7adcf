"""The query language: a question as one sentence, from its text to a `Query`, or an error at the position.

    FROM web-1, web-2 SELECT latency WINDOW 1m COMPUTE avg, percentile(99) SINCE 1h

docs/query-language.md has the grammar. There is no nesting, so reading takes a time linear in the length.
"""

import re
from collections.abc import Callable
from typing import Any

from tallymark.meters import durations, moments
from tallymark.meters.errors import shown
from tallymark.meters.phrases import LABEL, METER, METRIC, SOURCE, VALUE, Phrases, refusal
from tallymark.meters.selection import Selected, filters, resolve
from tallymark.meters.stored_query import NOT_FOUND, Query, QueryError, Selection, is_bare
from tallymark.meters.tokens import END, Token
from tallymark.suggest import suggest

__all__ = ["MAX_LENGTH", "NOT_FOUND", "Query", "QueryError", "Selected", "filters", "parse", "resolve"]

MAX_LENGTH = 10_000
CLAUSES = ("WINDOW", "COMPUTE", "WHERE", "BY", "SINCE", "UNTIL", "LIMIT")
MAX_LIMIT = 1_000_000_000

_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
# What other languages call it.
_ELSEWHERE = {
    "COMPARE": "`tallymark total` and `series` compare; a query does not",
    "GROUP": "write BY alone",
    "ORDER": "a query does not sort; ask for a top instead",
    "AS": "a query has no aliases",
    "TO": "write UNTIL",
    "BEFORE": "write UNTIL",
    "AFTER": "write SINCE",
    "LAST": "write SINCE",
    "STEP": "write WINDOW 5m EVERY 1m",
    "TOP": "write LIMIT",
}


def parse(text: str) -> Query:
    """What `text` asks for; raises QueryError. `str()` of the answer parses to an equal query."""
    if len(text) > MAX_LENGTH:
        raise refusal(text, MAX_LENGTH, f"a query of {len(text):,} characters exceeds {MAX_LENGTH:,}; ask in several")
    if found := _IMPOSSIBLE.search(text):
        raise refusal(text, found.start(), "NUL and halves of surrogate pairs are not allowed in a query")
    query = Parser(text).whole()
    if (length := len(str(query))) > MAX_LENGTH:
        detail = f"a query of {length:,} characters, written in full, exceeds {MAX_LENGTH:,}; ask in several"
        raise refusal(text, 0, detail)
    return query


class Parser(Phrases):
    """One method a clause; each gives the fields of the query that it sets."""

    def __init__(self, text: str, found: list[Token] | None = None) -> None:
        super().__init__(text, found)
        self._clauses: dict[str, Callable[[], dict[str, Any]]] = {
            "WINDOW": self._window,
            "COMPUTE": self._compute,
            "WHERE": self._where,
            "BY": self._by,
            "SINCE": lambda: {"since": self._moment("since")},
            "UNTIL": lambda: {"until": self._moment("until")},
            "LIMIT": self._limit,
        }

    def whole(self) -> Query:
        self._begin()
        sources = self._sources()
        if not self._take("keyword", "SELECT"):
            missed = "SELECT" if sources is None else "a comma or SELECT"
            self._refuse(f"expected {missed}, found {self._next}{self._meant(['SELECT'])}")
        selection = self._selection()
        fields: dict[str, Any] = {}
        left = list(CLAUSES)
        while self._next.kind != END:
            fields |= self._clause(left)
        query = Query(sources, selection, **fields, text=self._text, positions=self._positions)
        if query.since and query.until and moments.is_before(query.since, query.until) is False:
            raise query.error("bad_query", "UNTIL is not after SINCE, so nothing lies between them", "until")
        return query

    def _begin(self) -> None:
        if self._next.kind == END:
            self._refuse("the query is empty; it begins with FROM: FROM * SELECT latency")
        if self._is_next("keyword", "SELECT"):
            self._refuse("FROM comes first: FROM * SELECT latency")
        if not self._take("keyword", "FROM"):
            self._refuse(f"expected FROM, found {self._next}{self._meant(['FROM'])}")

    def _clause(self, left: list[str]) -> dict[str, Any]:
        token = self._next
        if self._take("mark", ";") and self._next.kind == END:
            return {}
        if token.kind == "keyword" and token.text in left:
            left.remove(self._advance().text)
            return self._clauses[token.text]()
        self._refuse(
            _misplaced(token) or f"expected {_either([*left, 'the end'])}, found {token}{self._meant(left)}", token
        )

    def _sources(self) -> tuple[str, ...] | None:
        self._positions["from"] = self._next.position
        if self._take("mark", "*"):
            if self._is_next("mark", ","):
                self._refuse("* already means all; write * alone, or list values")
            return None
        return self._list(lambda: self._value(SOURCE))

    def _selection(self) -> Selection:
        self._positions["select"] = self._next.position
        token = self._next
        if self._is_next("mark", "*"):
            self._refuse("SELECT names one meter or metric; * is for FROM")
        name = self._name(METER)
        if token.kind == "word" and name.endswith(".") and self._next.kind == "quoted" and self._is_adjacent():
            selection = Selection(self._name(METRIC), meter=name.removesuffix("."))
        elif token.kind == "quoted" and self._is_adjacent() and self._take("mark", "."):
            selection = Selection(self._name(METRIC), meter=name)
        else:
            selection = Selection(name, quoted=token.kind == "quoted" and ("." in name or not is_bare(name)))
        self._only_one(name)
        return selection

    def _is_adjacent(self) -> bool:
        """Whether nothing stands between the last token and the next."""
        before = self._tokens[self._at - 1]
        return before.position + len(before.text) == self._next.position

    def _only_one(self, name: str) -> None:
        if self._is_next("mark", "("):
            self._refuse(f"functions belong in COMPUTE: SELECT name COMPUTE {name}")
        if self._is_next("mark", ","):
            self._refuse("a query selects one meter or metric; ask for the others in queries of their own")

    def _window(self) -> dict[str, Any]:
        window_s = self._duration("WINDOW")
        if not self._take("keyword", "EVERY"):
            return {"window_s": window_s}
        every_s = self._duration("EVERY")
        window, every = durations.spelled(window_s), durations.spelled(every_s)
        if every_s > window_s:
            self._refuse_part("every", f"windows of {window} every {every} would leave gaps; EVERY is at most {window}")
        if window_s % every_s:
            self._refuse_part(
                "every", f"WINDOW {window} is not a multiple of EVERY {every}; choose one that divides it"
            )
        return {"window_s": window_s, "every_s": None if every_s == window_s else every_s}

    def _compute(self) -> dict[str, Any]:
        self._positions["compute"] = self._next.position
        return {"compute": self._list(self._function)}

    def _where(self) -> dict[str, Any]:
        conditions: dict[str, tuple[str, ...]] = {}
        while True:
            if self._is_next("mark", "(") or self._is_next("keyword", "NOT"):
                detail = f"conditions are joined by AND, without {self._next.text}"
                self._refuse(f"{detail}: country = 'KR' AND plan IN ('free', 'paid')")
            token, label = self._next, self._name(LABEL)
            if label in conditions:
                self._refuse(f"{shown(label)} appears twice; write {label} IN ('x', 'y') for either value", token)
            self._positions[f"where.{label}"] = token.position
            conditions[label] = self._values(label)
            if self._is_next("keyword", "OR") or self._next.text == "||":
                self._refuse(f"OR works only between values of one label: {label} IN ('x', 'y')")
            if self._next.text == "&&":
                self._refuse("'&&' is not known here; write AND")
            if not self._take("keyword", "AND"):
                return {"where": conditions}

    def _values(self, label: str) -> tuple[str, ...]:
        if self._take("mark", "="):
            return (self._value(VALUE),)
        if self._take("keyword", "IN"):
            self._expect("(")
            values = self._list(lambda: self._value(VALUE))
            self._expect(")")
            return values
        if self._next.text == "==":
            self._refuse("'==' is not known here; write =")
        if self._next.kind == "operator" or self._is_next("keyword", "NOT"):
            detail = (
                f"WHERE takes = and IN only, not {self._next.text}; list the values you want: {label} IN ('x', 'y')"
            )
            self._refuse(f"{detail}, or give the meter a where that leaves the others out")
        if self._next.text.lower() == "is":
            self._refuse(f"a label that is missing is the empty text: write {label} = ''")
        self._refuse(f"expected = or IN after {shown(label)}, found {self._next}")

    def _by(self) -> dict[str, Any]:
        self._positions["by"] = self._next.position
        return {"by": self._list(self._key)}

    def _limit(self) -> dict[str, Any]:
        token = self._next
        is_whole = token.kind == "word" and re.fullmatch("[0-9]{1,10}", token.text)
        if not is_whole or not 1 <= int(token.text) <= MAX_LIMIT:
            self._refuse(f"LIMIT takes a whole number from 1 to {MAX_LIMIT:,}, not {token}")
        self._positions["limit"] = self._advance().position
        return {"limit": int(token.text)}

    def _meant(self, keywords: list[str]) -> str:
        """The keyword that an unknown word was probably meant to be."""
        if self._next.kind != "word":
            return ""
        word = self._next.text
        elsewhere = _ELSEWHERE.get(word.upper())
        return f"; {elsewhere}" if elsewhere else suggest(word, keywords, otherwise="")


def _misplaced(token: Token) -> str | None:
    """What is wrong with a keyword or mark that exists, but not here."""
    if token.kind == "mark" and token.text == ";":
        return "only one query at a time; nothing may follow the ;"
    if token.kind != "keyword":
        return None
    if token.text in CLAUSES:
        return f"{token.text} appears twice; each clause may come once"
    return {
        "EVERY": "EVERY follows WINDOW: WINDOW 5m EVERY 1m",
        "FROM": "FROM comes once, at the beginning",
        "SELECT": "a query selects once; ask for the others in queries of their own",
    }.get(token.text, f"{token.text} belongs in WHERE: WHERE country = 'KR' AND plan IN ('free', 'paid')")


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
