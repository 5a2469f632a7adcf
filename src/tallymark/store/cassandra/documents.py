"""Documents: a book for each kind, in which each is a row; its sequence rises with every change."""

import msgspec

from tallymark.store.cassandra.book import AnyTerm, Book, Change, Key, Page
from tallymark.store.cassandra.connection import Link
from tallymark.store.documents import Document, Kind, check, written

_TERM = AnyTerm("documents")


class CassandraDocuments:
    def __init__(self, link: Link, store: str) -> None:
        self._link, self._store = link, store

    def changes(self, kind: Kind) -> int:
        return self._book(kind).head().sequence

    def all(self, kind: Kind) -> list[Document]:
        return _sorted(self._book(kind).whole_page())

    def of_tenant(self, kind: Kind, tenant: str) -> list[Document]:
        return [each for each in self.all(kind) if each.tenant == tenant]

    def get(self, kind: Kind, tenant: str, name: str) -> Document | None:
        key = _key(tenant, name)
        return _decoded(self._book(kind).page(key[0]).rows.get(key))

    def put(self, kind: Kind, tenant: str, name: str, body: str, *, now_ms: int) -> Document:
        key = _key(tenant, name)
        kept: list[Document] = []

        def decide(page: Page) -> Change | None:
            known = _decoded(page.rows.get(key))
            new = written(known, kind, tenant, name, body, now_ms=now_ms)
            kept[:] = [new]
            if new is known:
                return None
            check(kind, body, [each for each in _sorted(page) if each.tenant == tenant and each.name != name])
            return Change(sequence=page.head.sequence + 1, put={key: msgspec.msgpack.encode(new)})

        book = self._book(kind)
        book.make()
        book.change(decide, term=_TERM, kinds=None, known=None)
        return kept[0]

    def swap(
        self, kind: Kind, tenant: str, name: str, before: Document | None, body: str, *, now_ms: int
    ) -> Document | None:
        key = _key(tenant, name)
        kept: list[Document] = []

        def decide(page: Page) -> Change | None:
            kept.clear()
            known = _decoded(page.rows.get(key))
            if known != before:
                return None
            new = written(known, kind, tenant, name, body, now_ms=now_ms)
            kept[:] = [new]
            if new is known:
                return None
            others = [] if known else [each for each in _sorted(page) if each.tenant == tenant]
            check(kind, body, others)
            return Change(sequence=page.head.sequence + 1, put={key: msgspec.msgpack.encode(new)})

        book = self._book(kind)
        book.make()
        # All of them are read only for the limit on how many there may be.
        book.change(decide, term=_TERM, kinds=None if before is None else (key[0],), known=None)
        return kept[0] if kept else None

    def delete(self, kind: Kind, tenant: str, name: str) -> bool:
        key = _key(tenant, name)
        going: list[bool] = []

        def decide(page: Page) -> Change | None:
            if key not in page.rows:
                return None  # there was none, or ours was answered late
            going[:] = [True]
            return Change(sequence=page.head.sequence + 1, drop=[key])

        self._book(kind).change(decide, term=_TERM, kinds=(key[0],), known=None)
        return bool(going)

    def _book(self, kind: Kind) -> Book:
        return Book(self._link, self._store, f"documents/{kind}")


def _key(tenant: str, name: str) -> Key:
    return f"{tenant}/{name}", 0, 0


def _decoded(value: bytes | None) -> Document | None:
    return None if value is None else msgspec.msgpack.decode(value, type=Document)


def _sorted(page: Page) -> list[Document]:
    found = [msgspec.msgpack.decode(value, type=Document) for value in page.rows.values()]
    return sorted(found, key=lambda each: (each.tenant, each.name))
