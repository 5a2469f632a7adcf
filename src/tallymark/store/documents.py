"""Documents: small texts under a name that people write, such as saved queries, boards and definitions of tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tallymark.store.protocol import StoreError

Kind = Literal["query", "board", "table"]
KINDS: tuple[Kind, ...] = ("query", "board", "table")

MOST_BYTES = 64_000
"""of one document"""
MOST = 2_000
"""of a kind, of one tenant"""


class TooManyDocuments(StoreError):
    """A tenant has as many documents of the kind as are allowed."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document as the store keeps it; what `body` says is the business of whoever reads it."""

    kind: Kind
    tenant: str
    name: str
    body: str
    revision: int
    """1 for the first text under this name, one more with each other text"""
    created_ms: int
    changed_ms: int


def written(known: Document | None, kind: Kind, tenant: str, name: str, body: str, *, now_ms: int) -> Document:
    """What is kept once `body` was put in place of `known`; that itself if it says the same."""
    if known is None:
        return Document(kind, tenant, name, body, 1, now_ms, now_ms)
    if known.body == body:
        return known
    return replace(known, body=body, revision=known.revision + 1, changed_ms=now_ms)


def check(kind: Kind, body: str, others: Sequence[Document] | int) -> None:
    """`others` are those that the tenant has under other names, or how many."""
    size = len(body.encode())
    if size > MOST_BYTES:
        raise StoreError(f"a {kind} of {size:,} bytes is larger than {MOST_BYTES:,}, the most that are kept")
    number = others if isinstance(others, int) else len(others)
    if number >= MOST:
        raise TooManyDocuments(
            f"there are {number:,} documents of the kind {kind} (at most {MOST:,}); delete one first"
        )
