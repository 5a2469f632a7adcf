"""Dead letters: kept with their reason under running numbers, counted for ever, the oldest dropped to save room.

They are written before the batch that they belong to. Only those below the number that the book states are there for a
reader; what a batch left behind that was not applied lies above it, and is overwritten by the next.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import islice

import msgspec

from tallymark.events.tenants import MAIN
from tallymark.store.cassandra.book import DEAD, EVENTS, Book, Change, Page, Term
from tallymark.store.cassandra.connection import Ask, Link
from tallymark.store.model import MOST_LOOKED_AT, DeadLetter, LetterSummary

BOOKS = (EVENTS, DEAD)
# Numbers in one partition.
BLOCK = 4_096
# Letters in one write, and about how many bytes: a letter may hold a frame of 1 MB, and a node refuses a write of some.
AT_ONCE = 50
BYTES_AT_ONCE = 1_000_000
LISTED_AT_ONCE = 20
# Of bodies that are fetched to look for those of a reason: letters of frames would otherwise be gigabytes.
MOST_BYTES_LOOKED_AT = 64_000_000
DROPPED = "dropped"
"""kind of the rows in the book `dead` that say up to which number the letters of a book are gone"""

_WRITE = (
    "INSERT INTO letters (store, book, block, number, found_ms, total, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " USING TIMESTAMP ?"
)
_NEWEST = (
    "SELECT number, found_ms, body FROM letters WHERE store = ? AND book = ? AND block = ? AND number < ?"
    " ORDER BY number DESC LIMIT ?"
)
_OLDEST = (
    "SELECT number, found_ms, total FROM letters WHERE store = ? AND book = ? AND block = ? AND number >= ?"
    " AND number < ? LIMIT ?"
)
# Above every timestamp that a letter is written with: a number that was dropped is never used again.
_DROP = (
    f"DELETE FROM letters USING TIMESTAMP {2**62} WHERE store = ? AND book = ? AND block = ? AND number >= ?"
    " AND number < ?"
)


class DeadLetterFacts(msgspec.Struct, frozen=True):
    """What a book knows of its letters."""

    end: int = 0
    """the next number"""
    total: int = 0
    """raw bytes of all letters ever"""
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    """hop -> reason -> (events, when the last one was found), of `main`"""
    others: dict[str, dict[str, dict[str, tuple[int, int]]]] = {}
    """the same of the other tenants"""

    def by_tenant(self) -> dict[str, dict[str, dict[str, tuple[int, int]]]]:
        return {MAIN: self.counts, **self.others}

    def plus(self, found: Sequence[DeadLetter], *, now_ms: int | None) -> "DeadLetterFacts":
        tenants = {
            tenant: {hop: dict(reasons) for hop, reasons in counts.items()}
            for tenant, counts in self.by_tenant().items()
        }
        for letter in found:
            reasons = tenants.setdefault(letter.tenant, {}).setdefault(letter.hop, {})
            events, last_ms = reasons.get(letter.reason, (0, 0))
            reasons[letter.reason] = (events + letter.events, max(last_ms, _found_ms(letter, now_ms)))
        total = self.total + sum(len(letter.raw) for letter in found)
        return DeadLetterFacts(self.end + len(found), total, tenants.pop(MAIN), tenants)


class DeadLetterRows:
    """The letters of both books of a store."""

    def __init__(self, link: Link, store: str) -> None:
        self._link = link
        self._store = store

    def write(
        self, book: str, facts: DeadLetterFacts, found: Sequence[DeadLetter], *, epoch: int, now_ms: int | None
    ) -> None:
        """Under the numbers from `facts.end` on. An earlier holder's late writing has a smaller epoch, and loses."""
        total = facts.total
        asks: list[tuple[int, int, Ask]] = []
        for number, letter in enumerate(found, start=facts.end):
            total += len(letter.raw)
            at_ms = _found_ms(letter, now_ms)
            body = msgspec.msgpack.encode(letter)
            stamp = (epoch << 42) + max(0, min(at_ms, 2**42 - 1))
            block = number // BLOCK
            asks.append((block, len(body), (_WRITE, (self._store, book, block, number, at_ms, total, body, stamp))))
        self._link.write(_batches(asks))

    def newest(self, pages: Sequence[tuple[str, DeadLetterFacts]], limit: int) -> list[tuple[int, DeadLetter]]:
        """Those found last come first; the number is unique over both books."""
        found = [
            ((-found_ms, -number), number * len(BOOKS) + BOOKS.index(book), body)
            for book, facts in pages
            for number, found_ms, body in islice(self._backwards(book, facts.end, limit), limit)
        ]
        found.sort(key=lambda each: each[0])
        return [(number, msgspec.msgpack.decode(body, type=DeadLetter)) for _, number, body in found[:limit]]

    def listed(
        self, pages: Sequence[tuple[str, DeadLetterFacts]], *, wanted: Callable[[DeadLetter], bool], limit: int
    ) -> list[LetterSummary]:
        """As `newest`, of those that are wanted; page by page, since a letter may hold a frame of 1 MB.

        Fewer are looked through than `MOST_LOOKED_AT` if they are large: their bodies come whole over the network.
        """
        books = (self._found(book, facts.end) for book, facts in pages)
        found: list[LetterSummary] = []
        looked_at_bytes = 0
        for _, letter_id, body in islice(merge(*books, key=lambda each: each[0]), MOST_LOOKED_AT):
            if len(found) >= limit or looked_at_bytes >= MOST_BYTES_LOOKED_AT:
                break
            looked_at_bytes += len(body)
            letter = msgspec.msgpack.decode(body, type=DeadLetter)
            if wanted(letter):
                found.append(LetterSummary.of(letter_id, letter))
        return found

    def letter(self, pages: Sequence[tuple[str, DeadLetterFacts]], letter_id: int) -> DeadLetter | None:
        number, place = divmod(letter_id, len(BOOKS))
        if not 0 <= number < dict(pages)[BOOKS[place]].end:
            return None
        rows = self._link.rows(_NEWEST, self._store, BOOKS[place], number // BLOCK, number + 1, 1)
        return next((msgspec.msgpack.decode(body, type=DeadLetter) for at, _, body in rows if at == number), None)

    def _found(self, book: str, end: int) -> Iterator[tuple[tuple[int, int], int, bytes]]:
        """(order, id, body) of a book's letters, the newest first."""
        for block in range((end - 1) // BLOCK, -1, -1):
            before = end
            while rows := self._link.rows(_NEWEST, self._store, book, block, before, LISTED_AT_ONCE):
                for number, found_ms, body in rows:
                    yield (-found_ms, -number), number * len(BOOKS) + BOOKS.index(book), body
                before = rows[-1][0]
            if before == end:
                return  # blocks go from the oldest on: before an empty one there is nothing

    def drop_oldest(
        self, pages: Sequence[tuple[str, DeadLetterFacts]], dead: Book, term: Term, *, keep_bytes: int
    ) -> int:
        """Drops the oldest of both books while they take more room than allowed."""
        gone = _dropped(dead.page(DROPPED))
        surplus = sum(facts.total - gone[book][1] for book, facts in pages) - keep_bytes
        if surplus <= 0:
            return 0
        after = dict(gone)
        freed = count = 0
        fronts = [self._forwards(book, gone[book][0], facts.end) for book, facts in pages]
        for _, book, number, total in merge(*fronts):
            if freed >= surplus:
                break
            freed += total - after[book][1]
            after[book] = (number + 1, total)
            count += 1
        for book in BOOKS:
            self._drop(book, gone[book][0], after[book][0])
        dead.change(lambda page: _note(page, after), term=term, kinds=(DROPPED,), known=None)
        return count

    def _backwards(self, book: str, end: int, limit: int) -> Iterator[tuple[int, int, bytes]]:
        for block in range((end - 1) // BLOCK, -1, -1):
            rows = self._link.rows(_NEWEST, self._store, book, block, end, limit)
            # Blocks go from the oldest on: before an empty one there is nothing.
            if not rows:
                return
            yield from rows

    def _forwards(self, book: str, start: int, end: int) -> Iterator[tuple[int, str, int, int]]:
        while start < end:
            block = start // BLOCK
            rows = self._link.rows(_OLDEST, self._store, book, block, start, min(end, (block + 1) * BLOCK), 500)
            for number, found_ms, total in rows:
                yield found_ms, book, number, total
                start = number + 1
            if not rows:
                start = (block + 1) * BLOCK

    def _drop(self, book: str, start: int, end: int) -> None:
        if start < end:
            blocks = range(start // BLOCK, (end - 1) // BLOCK + 1)
            self._link.write([(_DROP, (self._store, book, block, start, end))] for block in blocks)


def _found_ms(letter: DeadLetter, now_ms: int | None) -> int:
    """When it was found to be dead, if that was later than what the letter says: after a long backlog."""
    return letter.at_ms if now_ms is None else now_ms


def _batches(asks: Sequence[tuple[int, int, Ask]]) -> Iterator[list[Ask]]:
    """Of (block, bytes, write), in order: each batch in one block, and small."""
    batch: list[Ask] = []
    last, held = 0, 0
    for block, size, ask in asks:
        if batch and (block != last or len(batch) >= AT_ONCE or held + size > BYTES_AT_ONCE):
            yield batch
            batch, held = [], 0
        batch.append(ask)
        last, held = block, held + size
    if batch:
        yield batch


def _dropped(page: Page) -> dict[str, tuple[int, int]]:
    """book -> (first number kept, raw bytes before it)"""
    rows = page.of(DROPPED)
    return {
        book: msgspec.msgpack.decode(rows[place, 0], type=tuple[int, int]) if (place, 0) in rows else (0, 0)
        for place, book in enumerate(BOOKS)
    }


def _note(page: Page, after: dict[str, tuple[int, int]]) -> Change | None:
    known = _dropped(page)
    put = {
        (DROPPED, place, 0): msgspec.msgpack.encode(after[book])
        for place, book in enumerate(BOOKS)
        if after[book] > known[book]
    }
    return Change(put=put) if put else None
