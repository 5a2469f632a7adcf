"""Deposits: deltas that a task brings to the store itself. They count once a batch names them, and not before."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra.connection import Ask, Link, connect
from tallymark.store.model import StretchResult

# A row well below the 16 MB at which Cassandra refuses a write, and large enough that a batch has few of them.
CHUNK_BYTES = 512_000
# What a task wrote that nobody named goes by itself. What was named is deleted once it is folded: only a journal that
# waited for a whole month would lose something, and then reading and folding refuse with that word.
KEEP_S = 30 * 86_400

_WRITE = f"INSERT INTO deposits (store, key, chunk, body) VALUES (?, ?, ?, ?) USING TTL {KEEP_S}"
_READ = "SELECT body FROM deposits WHERE store = ? AND key = ?"
_DELETE = "DELETE FROM deposits WHERE store = ? AND key = ?"


class CassandraDeposits:
    def __init__(self, link: Link, store: str) -> None:
        self._link = link
        self._store = store

    def deposit(self, result: StretchResult) -> StretchResult:
        if not result.deltas:
            return result
        return replace(result, deltas=b"", deposit=self.write(result.deltas))

    def write(self, body: bytes) -> str:
        """The reference under which it lies: fresh each time, so that a second attempt of a task disturbs nobody."""
        key = uuid.uuid4().hex
        chunks = [body[start : start + CHUNK_BYTES] for start in range(0, len(body), CHUNK_BYTES)]
        asks: list[Ask] = [(_WRITE, (self._store, key, number, chunk)) for number, chunk in enumerate(chunks)]
        self._link.write([ask] for ask in asks)
        return f"{key}/{len(chunks)}"

    def read(self, references: Sequence[str]) -> Iterator[bytes | None]:
        """The deposits in the order of their references; None for one that is not there, or not whole."""
        keys = [reference.partition("/") for reference in references]
        asks: Iterator[Ask] = ((_READ, (self._store, key)) for key, _, _ in keys)
        for (_, _, count), found in zip(keys, self._link.stream(asks), strict=True):
            chunks = [body for page in self._link.pages(found) for (body,) in page]
            yield b"".join(chunks) if len(chunks) == int(count) else None

    def delete(self, references: Sequence[str]) -> None:
        asks: Iterator[Ask] = ((_DELETE, (self._store, reference.partition("/")[0])) for reference in references)
        self._link.write([ask] for ask in asks)


def open_deposits(address: CassandraAddress) -> CassandraDeposits:
    """For tasks: nothing is prepared beside the tables, since a driver was there before them."""
    return CassandraDeposits(Link(address, connect), address.name)
