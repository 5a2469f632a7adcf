"""Upkeep: what grows old in the book of events beside the journal."""

from tallymark.store.cassandra.book import EVENTS
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.sink import LAG

KEEP_LAGS_MS = 3_600_000

_DROP = "DELETE FROM book WHERE store = ? AND book = ? AND kind = ? AND a < ?"


def drop_lags(link: Link, store: str, *, now_ms: int) -> None:
    """As one range: a tombstone each time, not one for each batch."""
    link.rows(_DROP, store, EVENTS, LAG, now_ms - KEEP_LAGS_MS)
