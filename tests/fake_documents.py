"""Documents and parts of tables in memory."""

from collections.abc import Collection
from itertools import count

from tallymark.store.documents import Document, Kind, check, written


class FakeDocuments:
    def __init__(self) -> None:
        self._kept: dict[tuple[Kind, str, str], Document] = {}
        self._changes: dict[Kind, int] = {}

    def changes(self, kind: Kind) -> int:
        return self._changes.get(kind, 0)

    def all(self, kind: Kind) -> list[Document]:
        return [self._kept[key] for key in sorted(self._kept) if key[0] == kind]

    def of_tenant(self, kind: Kind, tenant: str) -> list[Document]:
        return [each for each in self.all(kind) if each.tenant == tenant]

    def get(self, kind: Kind, tenant: str, name: str) -> Document | None:
        return self._kept.get((kind, tenant, name))

    def put(self, kind: Kind, tenant: str, name: str, body: str, *, now_ms: int) -> Document:
        known = self.get(kind, tenant, name)
        new = written(known, kind, tenant, name, body, now_ms=now_ms)
        if new is not known:
            check(kind, body, len(self.of_tenant(kind, tenant)) - (known is not None))
            self._kept[kind, tenant, name] = new
            self._changes[kind] = self.changes(kind) + 1
        return new

    def swap(
        self, kind: Kind, tenant: str, name: str, before: Document | None, body: str, *, now_ms: int
    ) -> Document | None:
        if self.get(kind, tenant, name) != before:
            return None
        return self.put(kind, tenant, name, body, now_ms=now_ms)

    def delete(self, kind: Kind, tenant: str, name: str) -> bool:
        if self._kept.pop((kind, tenant, name), None) is None:
            return False
        self._changes[kind] = self.changes(kind) + 1
        return True


class FakeTableParts:
    def __init__(self) -> None:
        self.kept: dict[str, tuple[int, bytes]] = {}
        self.reads = 0
        self._numbers = count()

    def write(self, body: bytes, *, now_ms: int) -> str:
        part = f"part-{next(self._numbers)}"
        self.kept[part] = now_ms, body
        return part

    def read(self, part: str) -> bytes | None:
        self.reads += 1
        return self.kept.get(part, (0, None))[1]

    def delete(self, parts: Collection[str]) -> None:
        for part in parts:
            self.kept.pop(part, None)

    def written_before(self, at_ms: int) -> list[str]:
        return [part for part, (written_ms, _) in self.kept.items() if written_ms < at_ms]
