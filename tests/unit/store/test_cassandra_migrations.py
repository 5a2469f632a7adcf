"""Stores of an older format on Cassandra: they open once nobody of the older version is at work."""

import time
from itertools import count
from typing import Any

import msgspec
import pytest

import cassandras
from stores.memory_cassandra import Server, Session
from tallymark.store.cassandra import migrations
from tallymark.store.cassandra.book import METERS, POINTS, Book, Change, Term
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.heartbeats import CassandraHeartbeats
from tallymark.store.cassandra.migrations import StoreFacts
from tallymark.store.cassandra.progress import progress
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.format import VERSION
from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S
from tallymark.store.protocol import LeaseLost, StoreError

ADDRESS = cassandras.address(0, name="store")


def opened(server: Server, before: Any = lambda request: None) -> CassandraStore:
    return CassandraStore(ADDRESS, connect=lambda _: Session(server, before), pause_s=0)


@pytest.fixture
def old() -> Server:
    """As format 2 left it: the number 1, and two marks instead of a mapping by grain."""
    server = Server()
    opened(server).close()
    link = Link(ADDRESS, lambda _: Session(server))
    facts = msgspec.msgpack.encode({"schema": 1, "shards": 4})
    marks = msgspec.msgpack.encode({"mark": 5, "folded": 3, "hours_through": 7200, "days_through": 0, "meters": [1]})
    for book, value in ((METERS, facts), (POINTS, marks)):
        Book(link, "store", book).change(
            lambda page, value=value: Change(sequence=page.head.sequence + 1, facts=value),
            term=Term("test"),
            known=None,
        )
    return server


def facts(server: Server) -> StoreFacts:
    return Book(Link(ADDRESS, lambda _: Session(server)), "store", METERS).head().read_facts(StoreFacts)


def test_it_is_of_this_format_afterwards_and_keeps_what_it_had(old):
    store = opened(old)
    assert facts(old) == StoreFacts(VERSION, 4)
    assert (store.upkeep.marks().rolled, store.upkeep.marks().folded) == (
        {MINUTE_S: 7200, HOUR_S: 7200, DAY_S: 0},
        3,
    )
    assert [meter.meter.name for meter in store.registry.meters("main")] == ["events", "metrics"]


def test_marks_are_written_in_the_new_way_with_the_next_change(old):
    store = opened(old)
    while store.upkeep.roll(now_ms=4 * HOUR_S * 1000, delay_s=0, slice_series=10):
        pass
    assert store.upkeep.marks().rolled == {MINUTE_S: 4 * HOUR_S, HOUR_S: 4 * HOUR_S, DAY_S: 0}
    head = Book(Link(ADDRESS, lambda _: Session(old)), "store", POINTS).head()
    assert b"hours_through" not in head.facts
    assert progress(head).rolled == store.upkeep.marks().rolled


@pytest.mark.parametrize("role", ["pipeline", "keeper"])
def test_while_an_old_one_is_at_work_it_stays_as_it_was(old, role, monkeypatch):
    monkeypatch.setattr(migrations, "VERSION", 1)
    worker = opened(old)
    lease = worker.lease(role, "an old one", lease_s=10)
    assert lease.take()
    monkeypatch.undo()
    link = Link(ADDRESS, lambda _: Session(old))
    with pytest.raises(StoreError, match="a pipeline or keeper is using it; stop every Tallymark"):
        migrations.upgrade(link, "store", wait_s=0, pause_s=0)
    assert facts(old).schema == 1
    assert lease.take(), "it was not disturbed"
    lease.release()
    opened(old)
    assert facts(old).schema == VERSION


def test_one_that_slept_through_it_can_write_nothing_any_more(old, monkeypatch):
    monkeypatch.setattr(migrations, "VERSION", 1)
    worker = opened(old)
    assert worker.lease("keeper", "an old one", lease_s=0).take()
    monkeypatch.undo()
    monkeypatch.setattr(migrations, "LEASE_S", 0.0)
    opened(old)
    with pytest.raises(LeaseLost):
        worker.upkeep.roll(now_ms=9 * HOUR_S * 1000, delay_s=0, slice_series=10)


def test_killed_at_any_statement_it_is_done_by_the_next(old, monkeypatch):
    import copy

    monkeypatch.setattr(migrations, "LEASE_S", 0.0)

    class Died(Exception):
        pass

    for number in range(1, 1000):
        server, left = copy.deepcopy(old), [number]

        def before(request: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] <= 0:
                raise Died

        try:
            opened(server, before)
        except Died:
            store = opened(server)
            assert facts(server) == StoreFacts(VERSION, 4)
            assert store.upkeep.marks().rolled == {MINUTE_S: 7200, HOUR_S: 7200, DAY_S: 0}
        else:
            break
    assert number > 10, "opening takes more statements than that"


def test_a_newer_one_is_refused(old, monkeypatch):
    opened(old)
    from tallymark.store.cassandra import bootstrap

    monkeypatch.setattr(bootstrap, "VERSION", VERSION - 1)
    with pytest.raises(StoreError, match=f"has format {VERSION}, but this version of Tallymark reads"):
        opened(old)


def test_after_a_kill_both_leases_are_waited_for_at_the_same_time(old, monkeypatch):
    monkeypatch.setattr(migrations, "VERSION", 1)
    killed = opened(old)
    for role in ("pipeline", "keeper"):
        assert killed.lease(role, "killed", lease_s=10).take()
    monkeypatch.undo()
    now = [0.0]
    monkeypatch.setattr(migrations.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    link = Link(ADDRESS, lambda _: Session(old))
    assert migrations.upgrade(link, "store", clock=lambda: now[0]).schema == VERSION
    assert now[0] < migrations.LEASE_S + 5


@pytest.mark.parametrize("role", ["query/one:8080", "keeper/two", "pipeline/three"])
def test_not_while_a_role_of_the_older_version_may_still_be_alive(old, role):
    """A query node has no lease; it would see the meters of all tenants as one's, and could delete them."""
    link = Link(ADDRESS, lambda _: Session(old))
    beats = CassandraHeartbeats(link, "store")
    beats.beat(role, {}, now_ms=time.time_ns() // 1_000_000)
    beats.beat("collector/new", {}, now_ms=time.time_ns() // 1_000_000)  # may be of this version already
    now = count()
    with pytest.raises(StoreError, match=f"but {role} is using it; stop every Tallymark"):
        migrations.upgrade(link, "store", wait_s=3, pause_s=0, clock=lambda: float(next(now)))
    assert facts(old).schema == 1
    beats.beat(role, {}, now_ms=time.time_ns() // 1_000_000 - 2 * migrations.ALIVE_MS)
    assert migrations.upgrade(link, "store", wait_s=3, pause_s=0).schema == VERSION
