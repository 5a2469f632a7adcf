"""Dead letters of both kinds: those of the pipeline's batches, and those that the keeper takes in from the log."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec

from tallymark.store import positions
from tallymark.store.cassandra.book import DEAD, EVENTS, Book, Change, Key, Page, Term
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.dead_letter_rows import DeadLetterFacts, DeadLetterRows
from tallymark.store.cassandra.sink import EventFacts
from tallymark.store.model import DeadLetter, LetterSummary, Stretch

POSITION: Key = ("position", 0, 0)


class DeadFacts(msgspec.Struct, frozen=True):
    """The single values of the book `dead`."""

    letters: DeadLetterFacts = msgspec.field(default_factory=DeadLetterFacts)


class CassandraDeadLetters:
    def __init__(self, link: Link, store: str) -> None:
        self._book = Book(link, store, DEAD)
        self._events = Book(link, store, EVENTS)
        self._letters = DeadLetterRows(link, store)
        # Nobody takes this book over: two keepers that take in the same letters take them once, by the position.
        self._term = Term("letters")

    def position(self, log_identity: str) -> int:
        page = self._book.page(POSITION[0])
        positions.check_log(positions.DEAD, page.head.identity, log_identity)
        return _position(page) or 0

    def take_in(self, log_identity: str, stretch: Stretch, found: Sequence[DeadLetter]) -> bool:
        def decide(page: Page) -> Change | None:
            positions.check_log(positions.DEAD, page.head.identity, log_identity)
            if not positions.is_new(positions.DEAD, _position(page), stretch):
                return None
            facts = page.head.read_facts(DeadFacts)
            self._letters.write(DEAD, facts.letters, found, epoch=page.head.epoch, now_ms=None)
            after = DeadFacts(facts.letters.plus(found, now_ms=None))
            return Change(
                identity=log_identity,
                facts=msgspec.msgpack.encode(after),
                put={POSITION: msgspec.msgpack.encode(stretch.end)},
            )

        return self._book.change(decide, term=self._term, kinds=(POSITION[0],), known=None) is not None

    def newest(self, *, limit: int = 100) -> list[tuple[int, DeadLetter]]:
        return self._letters.newest(self._facts(), limit)

    def search(
        self,
        *,
        tenant: str | None,
        hops: Collection[str] = (),
        reasons: Collection[str] = (),
        limit: int = 100,
    ) -> list[LetterSummary]:
        def is_of(of: str, hop: str, reason: str) -> bool:
            return (tenant is None or of == tenant) and (not hops or hop in hops) and (not reasons or reason in reasons)

        # Of what never came nothing is looked for, and nothing in a book that has none of it.
        pages = [(book, facts) for book, facts in self._facts() if any(is_of(*kind) for kind, _ in _kinds(facts))]
        return self._letters.listed(
            pages, wanted=lambda letter: is_of(letter.tenant, letter.hop, letter.reason), limit=limit
        )

    def get(self, letter_id: int) -> DeadLetter | None:
        return self._letters.letter(self._facts(), letter_id)

    def counts(self, *, tenant: str | None) -> dict[tuple[str, str], int]:
        found: Counter[tuple[str, str]] = Counter()
        for kind, (events, _) in self._of_kinds(tenant):
            found[kind] += events
        return dict(found)

    def counts_by_tenant(self) -> dict[str, dict[tuple[str, str], int]]:
        found: dict[str, Counter[tuple[str, str]]] = {}
        for (tenant, hop, reason), (events, _) in sorted(each for _, facts in self._facts() for each in _kinds(facts)):
            found.setdefault(tenant, Counter())[hop, reason] += events
        return {tenant: dict(counts) for tenant, counts in found.items()}

    def last_ms(self, *, tenant: str | None) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for kind, (_, last_ms) in self._of_kinds(tenant):
            found[kind] = max(last_ms, found.get(kind, last_ms))
        return found

    def _of_kinds(self, tenant: str | None) -> list[tuple[tuple[str, str], tuple[int, int]]]:
        """((hop, reason), (events, when the last was found)), in order; a kind may come several times."""
        return sorted(
            ((hop, reason), numbers)
            for _, facts in self._facts()
            for (of, hop, reason), numbers in _kinds(facts)
            if tenant is None or of == tenant
        )

    def drop_oldest(self, *, keep_bytes: int) -> int:
        return self._letters.drop_oldest(self._facts(), self._book, self._term, keep_bytes=keep_bytes)

    def _facts(self) -> list[tuple[str, DeadLetterFacts]]:
        return [
            (EVENTS, self._events.head().read_facts(EventFacts).letters),
            (DEAD, self._book.head().read_facts(DeadFacts).letters),
        ]


def _kinds(facts: DeadLetterFacts) -> Iterator[tuple[tuple[str, str, str], tuple[int, int]]]:
    """((tenant, hop, reason), (events, when the last was found))"""
    for tenant, counts in facts.by_tenant().items():
        for hop, reasons in counts.items():
            for reason, numbers in reasons.items():
                yield (tenant, hop, reason), numbers


def _position(page: Page) -> int | None:
    value = page.rows.get(POSITION)
    return None if value is None else msgspec.msgpack.decode(value, type=int)
