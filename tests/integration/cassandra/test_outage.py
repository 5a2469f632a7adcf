"""Cassandra does not answer: whoever asks hears it in time, and goes on when it is back."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

import cassandras
from lab.cassandra import Cassandra
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.protocol import StoreUnreachable
from tallymark.testing import until

# Short, so that the test is. A busy machine may need longer for a real answer, the first one above all (the store is
# made with four conditional writes): so each is asked for until it comes, and the deadline is for a test that hangs.
TIMEOUT_S = 2.0
DEADLINE_S = 180.0


def test_while_cassandra_is_paused_every_request_says_so_and_afterwards_all_go_on(
    cassandra: Cassandra, build: Any, caplog: pytest.LogCaptureFixture
) -> None:
    address = cassandras.address(cassandra.port, timeout_s=TIMEOUT_S)
    (store,) = _asked_until_answered(lambda: CassandraStore(address, pause_s=0), "the store is opened")
    _asked_until_answered(lambda: store.sink.apply([build.stretch(0, 2)], now_ms=0), "the first batch is applied")
    _asked_until_answered(lambda: store.registry.meter("main", "events"), "the meters are read")
    caplog.clear()  # of what the driver says about a first connection that took too long
    with caplog.at_level(logging.WARNING):
        cassandra.pause()
        try:
            for step in (
                lambda: store.sink.apply([build.stretch(2, 5)], now_ms=0),
                lambda: store.upkeep.fold(most_points=10),
                lambda: store.sink.applied("log"),
                lambda: store.snapshots.take().__enter__(),
                lambda: store.lease("keeper", "me", lease_s=10).take(),
            ):
                with pytest.raises(
                    StoreUnreachable, match=r"127\.0\.0\.1:\d+ did not answer within 2 s at consistency"
                ):
                    step()
        finally:
            cassandra.resume()
        _asked_until_answered(lambda: store.sink.apply([build.stretch(2, 5)], now_ms=0), "batches are applied again")
        # One that got no answer in time folds nothing, and the next one goes on with it.
        until(
            lambda: (
                _answered(lambda: store.upkeep.fold(most_points=10)) and _answered(lambda: _is_folded(store)) == [True]
            ),
            "folding goes on",
            deadline_s=DEADLINE_S,
        )
    assert _asked_until_answered(lambda: build.counts(store), "the counts are read") == [{"e0": 5}]
    assert not [record for record in caplog.records if record.name.startswith("cassandra")]
    store.close()


def _asked_until_answered(ask: Callable[[], Any], what: str) -> list[Any]:
    return until(lambda: _answered(ask), what, deadline_s=DEADLINE_S)


def _answered(ask: Callable[[], Any]) -> list[Any]:
    """What came, in a list; nothing if it did not."""
    try:
        return [ask()]
    except StoreUnreachable:
        return []


def _is_folded(store: CassandraStore) -> bool:
    return store.upkeep.marks().folded == store.snapshots.journal_end() > 0


def test_where_nobody_listens_the_message_names_the_address() -> None:
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1 .*nothing is lost"):
        cassandras.address(1, timeout_s=1.0).open_store()
