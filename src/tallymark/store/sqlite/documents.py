"""Documents: one row each, and a number for each kind that rises with every change."""

from tallymark.store.documents import Document, Kind, check, written
from tallymark.store.sqlite.connection import Connections, writing_durably

TABLES = (
    "CREATE TABLE documents (kind TEXT, tenant TEXT, name TEXT, body TEXT NOT NULL, revision INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, changed_ms INTEGER NOT NULL, PRIMARY KEY (kind, tenant, name)) WITHOUT ROWID",
    "CREATE TABLE document_changes (kind TEXT PRIMARY KEY, changes INTEGER NOT NULL) WITHOUT ROWID",
)

_COLUMNS = "kind, tenant, name, body, revision, created_ms, changed_ms"
_CHANGED = (
    "INSERT INTO document_changes VALUES (?, 1) ON CONFLICT (kind) DO UPDATE SET changes = document_changes.changes + 1"
)


class SqliteDocuments:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def changes(self, kind: Kind) -> int:
        rows = self._connections.mine().execute("SELECT changes FROM document_changes WHERE kind = ?", (kind,))
        return int((rows.fetchone() or (0,))[0])

    def all(self, kind: Kind) -> list[Document]:
        return self._read("WHERE kind = ? ORDER BY tenant, name", kind)

    def of_tenant(self, kind: Kind, tenant: str) -> list[Document]:
        return self._read("WHERE kind = ? AND tenant = ? ORDER BY name", kind, tenant)

    def get(self, kind: Kind, tenant: str, name: str) -> Document | None:
        found = self._read("WHERE kind = ? AND tenant = ? AND name = ?", kind, tenant, name)
        return found[0] if found else None

    def put(self, kind: Kind, tenant: str, name: str, body: str, *, now_ms: int) -> Document:
        with writing_durably(self._connections.mine()):
            known = self.get(kind, tenant, name)
            return self._write(known, written(known, kind, tenant, name, body, now_ms=now_ms))

    def swap(
        self, kind: Kind, tenant: str, name: str, before: Document | None, body: str, *, now_ms: int
    ) -> Document | None:
        with writing_durably(self._connections.mine()):
            known = self.get(kind, tenant, name)
            if known != before:
                return None
            return self._write(known, written(known, kind, tenant, name, body, now_ms=now_ms))

    def _write(self, known: Document | None, new: Document) -> Document:
        if new is known:
            return new
        connection, kind, tenant, name = self._connections.mine(), new.kind, new.tenant, new.name
        (others,) = connection.execute(
            "SELECT COUNT(*) FROM documents WHERE kind = ? AND tenant = ? AND name <> ?", (kind, tenant, name)
        ).fetchone()
        check(kind, new.body, others)
        connection.execute(
            f"INSERT OR REPLACE INTO documents ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (kind, tenant, name, new.body, new.revision, new.created_ms, new.changed_ms),
        )
        connection.execute(_CHANGED, (kind,))
        return new

    def delete(self, kind: Kind, tenant: str, name: str) -> bool:
        connection = self._connections.mine()
        with writing_durably(connection):
            deleted = connection.execute(
                "DELETE FROM documents WHERE kind = ? AND tenant = ? AND name = ?", (kind, tenant, name)
            )
            if deleted.rowcount < 1:
                return False
            connection.execute(_CHANGED, (kind,))
            return True

    def _read(self, condition: str, *values: str) -> list[Document]:
        rows = self._connections.mine().execute(f"SELECT {_COLUMNS} FROM documents {condition}", values)
        return [Document(*row) for row in rows.fetchall()]
