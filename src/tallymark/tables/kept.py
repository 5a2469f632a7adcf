"""Tables in the store: a document says what a table is and names its parts, which never change.

A whole table is a new part, a patch is one more; either counts with the change of the document, so readers see all of
it or nothing. Parts that no document names any more are deleted, by whoever replaced them or by the keeper.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from tallymark.store.documents import Document
from tallymark.store.protocol import Documents, StoreError, TableParts
from tallymark.tables import changes
from tallymark.tables.bodies import Body
from tallymark.tables.changes import Change, Counts
from tallymark.tables.model import MOST_BYTES, MOST_ROWS, MOST_VERSIONS, Definition, TableError, check_name, too_many
from tallymark.tables.table import Table, decode, encode, live_rows, merged, patched, pruned

HELD_BYTES = 256_000_000
"""of tables in memory"""
MOST_PATCHES = 16
"""parts beside the first; then they become one"""
LARGE_SHARE = 4
"""patches of more than a fourth of all versions are merged with the rest"""
ATTEMPTS = 8
# Whoever writes for longer than the one gives up, and only what is older than the other is taken for left over.
WRITE_WITHIN_S = 600.0
LEFT_OVER_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a change did."""

    table: Table
    counts: Counts
    is_new: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """A table without its rows."""

    name: str
    definition: Definition
    created_ms: int
    changed_ms: int

    @classmethod
    def of(cls, document: Document) -> "Named":
        definition = Definition.from_text(document.body)
        return cls(document.name, definition, document.created_ms, document.changed_ms)


class Tables:
    """Reads and changes tables; keeps those that were read lately in memory, as far as there is room."""

    def __init__(
        self,
        documents: Documents,
        parts: TableParts,
        *,
        held_bytes: int = HELD_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents, self._parts = documents, parts
        self._held_bytes, self._clock = held_bytes, clock
        self._held: OrderedDict[tuple[str, str], Table] = OrderedDict()
        self._lock = threading.Lock()
        self._loading = threading.Lock()

    def names(self, tenant: str) -> list[Named]:
        return [Named.of(each) for each in self._documents.of_tenant("table", tenant)]

    def named(self, tenant: str, name: str) -> Named | None:
        document = self._documents.get("table", tenant, name)
        return None if document is None else Named.of(document)

    def get(self, tenant: str, name: str) -> Table | None:
        """The table as it is now."""
        found = self._read(tenant, name)
        return None if found is None else found[1]

    def put(self, tenant: str, name: str, key: str, body: Body, *, now_ms: int) -> Outcome:
        """The whole table; makes it if there is none."""
        check_name(name)

        def decide(table: Table | None) -> Change:
            return changes.first(body) if table is None else changes.put(table, key, body, now_ms=now_ms)

        return self._change(tenant, name, key, decide, now_ms=now_ms, is_whole=True)

    def patch(self, tenant: str, name: str, body: Body, *, now_ms: int) -> Outcome | None:
        """Rows of it; None if there is no such table. Raises Outdated if they were read for what it was before."""

        def decide(table: Table | None) -> Change | None:
            return None if table is None else changes.patch(table, body, now_ms=now_ms)

        try:
            return self._change(tenant, name, "", decide, now_ms=now_ms, is_whole=False)
        except _NoTable:
            return None

    def delete(self, tenant: str, name: str) -> bool:
        before = self.named(tenant, name)
        if not self._documents.delete("table", tenant, name):
            return False
        with self._lock:
            self._held.pop((tenant, name), None)
        if before is not None:
            self._parts.delete(before.definition.parts)
        return True

    def sweep(self, *, now_ms: int) -> int:
        """Deletes parts that a crash left behind; how many."""
        old = self._parts.written_before(now_ms - LEFT_OVER_MS)
        if not old:
            return 0
        # After the names: what was written an hour before and is not in use by now never will be.
        used = {part for each in self._documents.all("table") for part in Definition.from_text(each.body).parts}
        left_over = [part for part in old if part not in used]
        self._parts.delete(left_over)
        return len(left_over)

    def _change(
        self,
        tenant: str,
        name: str,
        key: str,
        decide: Callable[[Table | None], Change | None],
        *,
        now_ms: int,
        is_whole: bool,
    ) -> Outcome:
        give_up = self._clock() + WRITE_WITHIN_S
        for _ in range(ATTEMPTS):
            found = self._read(tenant, name)
            document, table = found or (None, None)
            change = decide(table)
            if change is None:
                raise _NoTable
            is_renamed = is_whole and table is not None and key != table.definition.key
            if table is not None and change.counts.is_nothing and not is_renamed and not change.note:
                return Outcome(table, change.counts)
            after, fresh = self._written(table, key, change, now_ms=now_ms, is_whole=is_whole)
            if self._clock() > give_up:
                raise StoreError(f"the table {name} was not written within {WRITE_WITHIN_S:g} s; try again")
            new = self._documents.swap("table", tenant, name, document, after.definition.to_text(), now_ms=now_ms)
            if new is None and not self._is_named(tenant, name, fresh):
                self._parts.delete(fresh)
                continue  # somebody else was faster: decided again on what is there now
            if new is not None:
                after = Table(after.definition, after.frame, token=_token(new))
                self._hold(tenant, name, after)
            if table is not None:
                self._parts.delete([part for part in table.definition.parts if part not in after.definition.parts])
            return Outcome(after, change.counts, table is None, change.note)
        raise StoreError(f"the table {name} was changed by others {ATTEMPTS} times in a row; try again")

    def _written(
        self, table: Table | None, key: str, change: Change, *, now_ms: int, is_whole: bool
    ) -> tuple[Table, list[str]]:
        """The table as it will be, with its new parts in the store, and the names of those."""
        before = None if table is None else table.definition
        frame = change.frame
        if not is_whole:
            assert table is not None
            frame = patched(table.frame, change.frame, change.columns)
        rows = live_rows(frame)
        if rows > MOST_ROWS:
            raise too_many("too_many_rows", "rows", limit=MOST_ROWS, actual=rows, way_out="leave some out")
        kept, dropped_ms = _fitting(frame)
        history_ms = before.history_ms if before is not None and not change.note else None
        if dropped_ms is not None:
            history_ms = max(dropped_ms, history_ms or dropped_ms)
        kept_parts: tuple[str, ...] = ()
        body = kept
        if before is not None and not is_whole and kept.height == frame.height:
            kept_parts, body = self._tidied(before, change, kept.height)
        fresh = [self._parts.write(encode(body), now_ms=now_ms)] if body.height else []
        definition = Definition(
            key=key or (before.key if before else ""),
            columns=dict(change.columns),
            rows=rows,
            versions=kept.height,
            parts=(*kept_parts, *fresh),
            history_ms=history_ms,
        )
        return Table(definition, kept), fresh

    def _tidied(self, before: Definition, change: Change, versions: int) -> tuple[tuple[str, ...], pl.DataFrame]:
        """The parts that stay, and what is to be written beside them: the patch, or several patches as one."""
        if len(before.parts) <= MOST_PATCHES:
            return before.parts, change.frame
        later = [self._decoded(part) for part in before.parts[1:]]
        together = merged([*later, change.frame], change.columns)
        if together.height * LARGE_SHARE <= versions:
            return before.parts[:1], together
        return (), merged([self._decoded(before.parts[0]), together], change.columns)

    def _read(self, tenant: str, name: str) -> tuple[Document, Table] | None:
        for _ in range(ATTEMPTS):
            document = self._documents.get("table", tenant, name)
            if document is None:
                return None
            token = _token(document)
            with self._lock:
                held = self._held.get((tenant, name))
                if held is not None:
                    self._held.move_to_end((tenant, name))
            if held is not None and held.token == token:
                return document, held
            try:
                with self._loading:
                    table = self._loaded(Definition.from_text(document.body), held, token)
            except _PartMissing:
                continue  # it was replaced since the document was read
            self._hold(tenant, name, table)
            return document, table
        raise StoreError(f"parts of the table {name} are missing; put it again")

    def _loaded(self, definition: Definition, held: Table | None, token: str) -> Table:
        """Only what is new is read, if a table that is held has the rest."""
        known = held.definition.parts if held is not None else ()
        if held is None or not known or definition.parts[: len(known)] != known:
            frames = [self._decoded(part) for part in definition.parts]
            return Table(definition, merged(frames, definition.columns), token=token)
        frame = held.frame
        for part in definition.parts[len(known) :]:
            frame = patched(frame, self._decoded(part), definition.columns)
        return Table(definition, frame, token=token)

    def _decoded(self, part: str) -> pl.DataFrame:
        content = self._parts.read(part)
        if content is None:
            raise _PartMissing
        return decode(content)

    def _is_named(self, tenant: str, name: str, parts: Sequence[str]) -> bool:
        """Whether they are in use after all: the answer to a change may be lost, and another change follow it."""
        now = self.named(tenant, name)
        return bool(parts) and now is not None and set(parts) <= set(now.definition.parts)

    def _hold(self, tenant: str, name: str, table: Table) -> None:
        with self._lock:
            self._held[tenant, name] = table
            self._held.move_to_end((tenant, name))
            size = sum(each.size_bytes for each in self._held.values())
            while size > self._held_bytes and len(self._held) > 1:
                _, gone = self._held.popitem(last=False)
                size -= gone.size_bytes


class _NoTable(Exception):
    """There is none to be patched."""


class _PartMissing(Exception):
    """A part that was named is not there any more."""


def _token(document: Document) -> str:
    return hashlib.blake2b(f"{document.created_ms} {document.body}".encode(), digest_size=12).hexdigest()


def _fitting(frame: pl.DataFrame) -> tuple[pl.DataFrame, int | None]:
    """Without old versions, if it is too long or too large with them."""
    kept, dropped_ms = frame, None
    if frame.height > MOST_VERSIONS:
        # More than need be, because all of it is written anew: not for every patch.
        kept, dropped_ms = pruned(frame, most=MOST_VERSIONS * 9 // 10)
    while (size := int(kept.estimated_size())) > MOST_BYTES:
        less, more_ms = pruned(kept, most=kept.height * 3 // 4)
        if more_ms is None:
            raise TableError(
                "too_large_table",
                f"a table of {size:,} bytes in memory exceeds {MOST_BYTES:,}; leave out columns or rows",
                limit=MOST_BYTES,
                actual=size,
            )
        kept, dropped_ms = less, more_ms
    return kept, dropped_ms
