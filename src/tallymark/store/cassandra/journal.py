"""The journal: applied batches in order, with their deltas fetched from where they lie."""

from collections.abc import Generator, Iterator
from itertools import takewhile

import polars as pl

from tallymark.store import deltas
from tallymark.store.cassandra import entry
from tallymark.store.cassandra.book import EVENTS
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.deposits import KEEP_S, CassandraDeposits
from tallymark.store.protocol import SnapshotOutdated, StoreError

# Entries read ahead of whoever takes them.
AT_ONCE = 200

_READ = (
    "SELECT a, value FROM book WHERE store = ? AND book = ? AND kind = ? AND a > ? AND a <= ? ORDER BY kind, a LIMIT ?"
)
_DROP = "DELETE FROM book WHERE store = ? AND book = ? AND kind = ? AND a <= ?"


class Journal:
    def __init__(self, link: Link, store: str) -> None:
        self._link = link
        self._store = store
        self._deposits = CassandraDeposits(link, store)
        self._pruned = 0

    def entries(self, *, after: int, through: int, sketches: bool = True) -> Generator[tuple[int, pl.DataFrame]]:
        """(sequence, deltas) of the batches that are there, as many at a time as the caller takes."""
        for found in self._groups(after, through):
            yield from self._decoded(found, sketches=sketches)

    def all_entries(self, after: int, through: int, sketches: bool = True) -> Generator[tuple[int, pl.DataFrame]]:
        """As `entries`, for a reader that needs each: one that was pruned since makes its moment unreadable."""
        expected = after + 1
        for sequence, frame in self.entries(after=after, through=through, sketches=sketches):
            if sequence != expected:
                break
            yield sequence, frame
            expected += 1
        if expected <= through:
            raise SnapshotOutdated(f"batch {expected} of the journal is already pruned; take a new snapshot")

    def unbroken(self, *, after: int, through: int) -> list[tuple[int, pl.DataFrame]]:
        """The first batches after a sequence, up to where one was pruned meanwhile: a follower then sees that gap."""
        found: list[tuple[int, pl.DataFrame]] = []
        try:
            for sequence, frame in self.entries(after=after, through=through):
                if found and sequence != found[-1][0] + 1:
                    break
                found.append((sequence, frame))
        except SnapshotOutdated:
            pass  # pruned while it was read: what came before is whole
        return found

    def prune(self, *, folded: int, before_ms: int) -> int:
        """Deletes entries that are in the points and that no follower waits for; how many stretches that were."""
        stretches = 0
        # From where the last one ended: before that Cassandra would look through all that it has not compacted yet.
        for group in self._groups(self._pruned, folded):
            going = list(takewhile(lambda each: each[1].applied_ms < before_ms, group))
            if going:
                self._drop(going)
                stretches += sum(len(found.parts) for _, found in going)
            if len(going) < len(group):
                break
        return stretches

    def _drop(self, going: list[tuple[int, entry.Entry]]) -> None:
        # The entries first, as one range, which is one tombstone. Whoever still finds an entry finds its deposits,
        # and a deposit that a crash leaves behind here expires.
        last = going[-1][0]
        self._link.rows(_DROP, self._store, EVENTS, entry.KIND, last)
        self._deposits.delete([deposit for _, found in going for deposit in found.deposits])
        self._pruned = last

    def _groups(self, after: int, through: int) -> Iterator[list[tuple[int, entry.Entry]]]:
        while after < through:
            rows = self._link.rows(_READ, self._store, EVENTS, entry.KIND, after, through, AT_ONCE)
            if not rows:
                return
            yield [(sequence, entry.decode(value)) for sequence, value in rows]
            after = rows[-1][0]

    def _decoded(self, found: list[tuple[int, entry.Entry]], *, sketches: bool) -> Iterator[tuple[int, pl.DataFrame]]:
        bodies = self._deposits.read([deposit for _, each in found for deposit in each.deposits])
        for sequence, each in found:
            frames = [
                deltas.decode(
                    self._whole(sequence, part, next(bodies)) if part.deposit else part.inline, sketches=sketches
                )
                for part in each.parts
            ]
            yield sequence, frames[0] if len(frames) == 1 else pl.concat(frames)

    def _whole(self, sequence: int, part: entry.Part, body: bytes | None) -> bytes:
        if body is not None:
            return body
        if not any(self._groups(sequence - 1, sequence)):
            raise SnapshotOutdated(f"batch {sequence} of the journal was pruned while it was read; take a new snapshot")
        raise StoreError(
            f"the deltas of partition {part.partition} [{part.start}, {part.end}) in batch {sequence} vanished before"
            f" they were folded. They are kept {KEEP_S // 86_400} days: if no keeper ran for that long, count the log"
            " again into an empty store"
        )
