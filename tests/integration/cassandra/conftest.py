"""Stores in a real Cassandra."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cassandras
from lab.cassandra import Cassandra
from tallymark.store import deltas
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.read_plan import Question

OpenStore = Callable[..., CassandraStore]


@pytest.fixture
def address(cassandra: Cassandra) -> CassandraAddress:
    return cassandras.address(cassandra.port)


@pytest.fixture
def open_store(address: CassandraAddress) -> Iterator[OpenStore]:
    """The store of this test, as another process would open it."""
    opened: list[CassandraStore] = []

    def open_store(**more: Any) -> CassandraStore:
        opened.append(CassandraStore(address, **({"pause_s": 0} | more)))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


def stretch(start: int, end: int, *, series: int = 1, minute_s: int = 60, partition: int = 0) -> StretchResult:
    """Each of these series counted once for each offset."""
    rows = [(1, f"e{each}", minute_s, end - start, 0, None, None, None, None, None) for each in range(series)]
    frame = deltas.from_rows(rows)
    ledger = Ledger(accepted=end - start, counted=end - start)
    return StretchResult(Stretch(partition, start, end), "log", 1, (1,), deltas.encode(frame), ledger)


def counts(store: CassandraStore) -> dict[str, int]:
    """By series, of all time; the sum over all series must be theirs."""
    with store.snapshots.take() as snapshot:
        question: dict[str, Any] = {"where": {}, "start_s": None, "end_s": None, "step_s": None}
        found = snapshot.read(Question.between(store.registry.meter("main", "events"), by=("event",), **question))
        total = snapshot.read(Question.between(store.registry.meter("main", "events"), **question))
    assert total["n"].sum() == found["n"].sum()
    return dict(zip(found["label.event"], found["n"], strict=True))


class Build:
    """The above as a fixture, since test folders do not import each other."""

    stretch = staticmethod(stretch)
    counts = staticmethod(counts)


@pytest.fixture
def build() -> type[Build]:
    return Build
