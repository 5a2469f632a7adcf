"""Books: partitions in which everything changes together, by one conditional batch, or not at all.

Every change carries a fresh token and is conditional on the token before it, so two that were decided on the same page
cannot both happen. It is conditional on the epoch too: whoever takes a role over raises the epoch, and from then on
nothing that its former holder decided can be written, whenever it arrives.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import msgspec

from tallymark.store.cassandra.connection import Ask, Link, Row
from tallymark.store.protocol import LeaseLost, StoreUnreachable

EVENTS = "events"
"""what was applied; written by the pipeline's driver"""
DEAD = "dead"
"""letters of the stream `dead`; written by the keeper"""
POINTS = "points"
"""how far folding and rolling are; written by the keeper"""
METERS = "meters"
"""definitions, and what the store was made with"""

Key = tuple[str, int, int]
"""kind, and two numbers"""

Facts = TypeVar("Facts", bound=msgspec.Struct)

# Two that write at once make each other try again; more than some times means something else.
ATTEMPTS = 12

_HEAD = "sequence, commit_token, identity, facts, epoch, holder, renewed"
_READ_HEAD = f"SELECT DISTINCT store, book, {_HEAD} FROM book WHERE store = ? AND book = ?"
_READ_KINDS = f"SELECT {_HEAD}, kind, a, b, value FROM book WHERE store = ? AND book = ? AND kind IN ?"
_READ_ALL = f"SELECT {_HEAD}, kind, a, b, value FROM book WHERE store = ? AND book = ?"
_MAKE = (
    "UPDATE book SET sequence = ?, commit_token = '', identity = '', facts = ?, epoch = 0, holder = '', renewed = 0"
    " WHERE store = ? AND book = ? IF commit_token = null"
)
_SET = (
    "UPDATE book SET sequence = ?, commit_token = ?, identity = ?, facts = ? WHERE store = ? AND book = ?"
    " IF commit_token = ? AND epoch = ?"
)
_PUT = "INSERT INTO book (store, book, kind, a, b, value) VALUES (?, ?, ?, ?, ?, ?)"
_DROP = "DELETE FROM book WHERE store = ? AND book = ? AND kind = ? AND a = ? AND b = ?"
_HOLD = (
    "UPDATE book SET epoch = ?, holder = ?, renewed = ? WHERE store = ? AND book = ?"
    " IF epoch = ? AND holder = ? AND renewed = ?"
)


@dataclass(frozen=True, slots=True)
class Head:
    """The single values of a book."""

    sequence: int = 0
    token: str = ""
    identity: str = ""
    facts: bytes = b""
    epoch: int = 0
    holder: str = ""
    renewed: int = 0

    def read_facts(self, kind: type[Facts]) -> Facts:
        """The further single values of a book; those it began with if it was never written."""
        return msgspec.msgpack.decode(self.facts, type=kind) if self.facts else kind()


@dataclass(frozen=True, slots=True)
class Change:
    """What a page becomes: some of its single values, rows put and rows dropped."""

    sequence: int | None = None
    identity: str | None = None
    facts: bytes | None = None
    put: Mapping[Key, bytes] = field(default_factory=dict)
    drop: Iterable[Key] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A book at one moment: its head and the rows of the kinds that were asked for."""

    head: Head
    rows: Mapping[Key, bytes] = field(default_factory=dict)

    def of(self, kind: str) -> dict[tuple[int, int], bytes]:
        return {(a, b): value for (found, a, b), value in self.rows.items() if found == kind}


Decide = Callable[[Page], Change | None]


@dataclass
class Term:
    """The epoch in which an object may write: that of its lease, else the one it first met."""

    role: str
    epoch: int | None = None

    def check(self, head: Head) -> int:
        if self.epoch is None:
            self.epoch = head.epoch
        if head.epoch != self.epoch:
            by = f" ({head.holder})" if head.holder else ""
            raise LeaseLost(
                f"another process{by} has taken over the role {self.role}: epoch {head.epoch}, ours was"
                f" {self.epoch}. Nothing was written; restart to take it back"
            )
        return self.epoch


class AnyTerm(Term):
    """Of what anybody may write at any time, whoever plays the role: only the token decides."""

    def check(self, head: Head) -> int:
        return head.epoch


class Book:
    def __init__(self, link: Link, store: str, name: str) -> None:
        self._link = link
        self._store = store
        self.name = name

    def make(self, *, sequence: int = 0, facts: bytes = b"") -> None:
        """Its first page, unless somebody made it already."""
        # Looked at first: a conditional write costs four rounds among the nodes.
        if self._first(self._link.rows(_READ_HEAD, self._store, self.name)) is None:
            self._link.compare_and_set((_MAKE, (sequence, facts, self._store, self.name)))
            if self._first(self._link.settled(_READ_HEAD, self._store, self.name)) is None:
                raise StoreUnreachable(
                    f"the book {self.name} of the store {self._store} could not be created; try again"
                )

    def head(self, *, settled: bool = False) -> Head:
        read = self._link.settled if settled else self._link.rows
        return self._first(read(_READ_HEAD, self._store, self.name)) or Head()

    def page(self, *kinds: str, settled: bool = False) -> Page:
        """In one statement, so that rows and head belong together."""
        read = self._link.settled if settled else self._link.rows
        rows = read(_READ_KINDS, self._store, self.name, kinds) if kinds else []
        if not rows:
            # Without rows no head came with them. Read before a second look, it belongs to that if there are still
            # none: rows of the kinds read here are added and not dropped, but for those of a meter that was broken and
            # is resumed, and then the token has changed, so that nothing decided on this page can be written.
            head = self.head(settled=settled)
            rows = read(_READ_KINDS, self._store, self.name, kinds) if kinds and head.token else []
            if not rows:
                return Page(head)
        return Page(_head(rows[0][:7]), {(kind, a, b): value for *_, kind, a, b, value in rows})

    def whole_page(self, *, settled: bool = False) -> Page:
        """With the rows of all kinds."""
        read = self._link.settled if settled else self._link.rows
        rows = [row for row in read(_READ_ALL, self._store, self.name) if row[7] is not None]
        if not rows:
            return Page(self.head(settled=settled))
        return Page(_head(rows[0][:7]), {(kind, a, b): value for *_, kind, a, b, value in rows})

    def change(
        self, decide: Decide, *, term: Term, kinds: tuple[str, ...] | None = (), known: Page | None
    ) -> Page | None:
        """Decides on a page and writes what was decided; the page it became, None if nothing was to do.

        `kinds` are those whose rows the page has, None for all. `known` is the page if it was remembered. When somebody
        else was faster, it is decided again on theirs.
        """
        read = partial(self.whole_page, settled=True) if kinds is None else partial(self.page, *kinds, settled=True)
        for attempt in range(ATTEMPTS):
            page = known if known is not None else read()
            epoch = term.check(page.head)
            change = decide(page)
            if change is None:
                return None
            after = _after(page, change, kinds)
            if self._link.compare_and_set(*self._statements(page.head, after.head, change, epoch)):
                return after
            # Refused, or no answer came. A settled read tells which, and the token whether it was ours.
            known = read()
            if known.head.token == after.head.token:
                return known
            if attempt > 1:
                time.sleep(random.uniform(0, 0.02 * attempt))
        raise StoreUnreachable(
            f"the book {self.name} of the store {self._store} could not be written in {ATTEMPTS} tries: others are"
            " writing, too few nodes answer, or nodes fail (see their logs); try again"
        )

    def hold(self, known: Head, holder: str, *, epoch: int) -> bool:
        """Writes who holds the lease of this book, if nobody did since `known`; False also when it is not known."""
        values = (epoch, holder, known.renewed + 1, self._store, self.name, known.epoch, known.holder, known.renewed)
        return self._link.compare_and_set((_HOLD, values))

    def _statements(self, before: Head, after: Head, change: Change, epoch: int) -> tuple[Ask, list[Ask]]:
        here = (self._store, self.name)
        values = (after.sequence, after.token, after.identity, after.facts, *here, before.token, epoch)
        others: list[Ask] = [(_PUT, (*here, *key, value)) for key, value in change.put.items()]
        others += [(_DROP, (*here, *key)) for key in change.drop]
        return (_SET, values), others

    def _first(self, rows: list[Row]) -> Head | None:
        """The head, or None where a book has no token: was never made."""
        return _head(rows[0][2:]) if rows and rows[0][3] is not None else None


def _head(values: Row) -> Head:
    sequence, token, identity, facts, epoch, holder, renewed = values
    return Head(sequence or 0, token or "", identity or "", facts or b"", epoch or 0, holder or "", renewed or 0)


def _after(page: Page, change: Change, kinds: tuple[str, ...] | None) -> Page:
    head = replace(
        page.head,
        token=uuid.uuid4().hex,
        sequence=page.head.sequence if change.sequence is None else change.sequence,
        identity=page.head.identity if change.identity is None else change.identity,
        facts=page.head.facts if change.facts is None else change.facts,
    )
    rows = dict(page.rows) | {key: value for key, value in change.put.items() if kinds is None or key[0] in kinds}
    for key in change.drop:
        rows.pop(key, None)
    return Page(head, rows)
