"""Stored windows: a row each; how far their queries have come is in a book for each share, whose lease fences it.

Rows are written first, under the number of the last batch that they were computed from. So of two values of a window
the later one stays, whoever writes when: one that was stopped for long and writes its rows now changes nothing.
"""

from collections.abc import Sequence

import msgspec

from tallymark.store.cassandra.book import Book, Change, Page, Term
from tallymark.store.cassandra.connection import Link
from tallymark.store.windows import SHARES, Lineage, Share, ShareChange

LINEAGE = "lineage"

_PUT = "INSERT INTO windows (store, lineage, group_s, start_s, body) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
_READ = (
    "SELECT start_s, body FROM windows WHERE store = ? AND lineage = ? AND group_s = ? AND start_s >= ? AND start_s < ?"
)
_DROP = "DELETE FROM windows WHERE store = ? AND lineage = ? AND group_s = ?"
_lineage = msgspec.msgpack.Decoder(Lineage)


class CassandraWindows:
    def __init__(self, link: Link, store: str) -> None:
        self._link, self._store = link, store
        self._terms = [Term(f"share/{share}") for share in range(SHARES)]

    def book(self, share: int) -> Book:
        return Book(self._link, self._store, f"share/{share}")

    def term(self, share: int) -> Term:
        return self._terms[share]

    def lineages(self, share: int | None = None) -> list[Lineage]:
        shares = range(SHARES) if share is None else [share]
        found = [lineage for each in shares for lineage in _lineages(self.book(each).page(LINEAGE))]
        return sorted(found, key=lambda each: (each.tenant, each.name, each.lineage_id))

    def share(self, share: int) -> Share:
        page = self.book(share).page(LINEAGE, settled=True)
        return Share(page.head.sequence, _lineages(page), page.head.epoch)

    def evaluated(self) -> int | None:
        pages = [self.book(share).page(LINEAGE) for share in range(SHARES)]
        return min(
            (page.head.sequence for page in pages if not all(each.dropped for each in _lineages(page))), default=None
        )

    def write(self, changes: Sequence[ShareChange]) -> None:
        self._link.write(
            [
                (
                    _PUT,
                    (self._store, each.lineage.lineage_id, _group(each.lineage, each.start_s), each.start_s, each.body,
                     max(1, change.at)),
                )
            ]
            for change in changes
            for each in change.windows
        )  # fmt: skip
        for change in changes:
            if change.sequence is not None or change.lineages or change.gone:
                self._change(change)

    def read(self, lineage: Lineage, start_s: int, end_s: int) -> list[tuple[int, bytes]]:
        start_s, end_s = max(start_s, lineage.from_s), min(end_s, lineage.next_s)
        groups = range(_group(lineage, start_s), end_s, lineage.group_s)
        asks = ((_READ, (self._store, lineage.lineage_id, group, start_s, end_s)) for group in groups)
        return [row for result in self._link.stream(asks) for page in self._link.pages(result) for row in page]

    def drop(self, lineage: Lineage, *, most: int) -> int | None:
        # Some may lie behind the last that is known, written by one that died before it could say so.
        beyond = lineage.next_s + lineage.group_s
        groups = range(_group(lineage, lineage.from_s), beyond, lineage.group_s)[: max(1, most // 100)]
        self._link.write([(_DROP, (self._store, lineage.lineage_id, group))] for group in groups)
        left_s = groups[-1] + lineage.group_s
        return None if left_s >= beyond else left_s

    def _change(self, change: ShareChange) -> None:
        put = {(LINEAGE, each.lineage_id, 0): msgspec.msgpack.encode(each) for each in change.lineages}
        drop = [(LINEAGE, each, 0) for each in change.gone]

        def decide(page: Page) -> Change:
            # The lease may be ours again, and this still from the time before another one had it.
            Term(f"share/{change.share}", change.epoch).check(page.head)
            return Change(sequence=change.sequence, put=put, drop=drop)

        book = self.book(change.share)
        book.make()
        book.change(decide, term=self.term(change.share), known=None)


def _group(lineage: Lineage, start_s: int) -> int:
    return start_s // lineage.group_s * lineage.group_s


def _lineages(page: Page) -> list[Lineage]:
    return [_lineage.decode(value) for value in page.of(LINEAGE).values()]
