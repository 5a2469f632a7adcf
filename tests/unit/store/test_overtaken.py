"""On Cassandra, what comes late, from a process that was overtaken or without an answer, changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cassandra import OperationTimedOut

import cassandras
from stores.memory_cassandra import Server, Session, statements
from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.cassandra.book import EVENTS
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.dead_letter_rows import DeadLetterFacts, DeadLetterRows
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import LeaseLost, StoreUnreachable

LETTER = DeadLetter("pipeline", "why", "", 1, b"raw", 0, 0, 0)
ADDRESS = cassandras.address(0, name="store")


def opened(server: Server, before: Callable[[Any], None] = lambda request: None) -> CassandraStore:
    return CassandraStore(ADDRESS, connect=lambda _: Session(server, before), pause_s=0)


def stretch(start: int, series: str = "e") -> StretchResult:
    frame = deltas.from_rows([(1, series, 60, 1, 0, *[None] * 5)])
    ledger = Ledger(accepted=1, counted=1)
    return StretchResult(Stretch(0, start, start + 1), "log", 1, (1,), deltas.encode(frame), ledger, dead=(LETTER,))


def is_change(request: Any) -> bool:
    return statements(request)[0][0].startswith("UPDATE book SET sequence")


def test_a_driver_that_was_overtaken_writes_nothing_not_even_on_the_page_it_remembers() -> None:
    server = Server()
    first, second = opened(server), opened(server)
    lease = first.lease("pipeline", "first", lease_s=0)
    assert lease.take()
    first.sink.apply([stretch(0)], now_ms=0)
    taking = second.lease("pipeline", "second", lease_s=0)
    assert taking.take()
    with pytest.raises(LeaseLost, match=r"another process \(second.*epoch 2, ours was 1"):
        first.sink.apply([stretch(1)], now_ms=0)
    assert second.sink.applied("log") == {0: 1}
    assert second.snapshots.journal_end() == 1


@pytest.mark.parametrize("work", ["fold", "roll"])
def test_a_keeper_that_was_overtaken_writes_nothing(work: str) -> None:
    server = Server()
    first, second = opened(server), opened(server)
    assert first.lease("keeper", "first", lease_s=0).take()
    first.sink.apply([stretch(0)], now_ms=0)
    assert second.lease("keeper", "second", lease_s=0).take()
    before = second.upkeep.marks()
    with pytest.raises(LeaseLost):
        first.upkeep.fold(most_points=10) if work == "fold" else first.upkeep.roll(
            now_ms=10**9, delay_s=0, slice_series=10
        )
    assert second.upkeep.marks() == before


def test_a_letter_that_an_overtaken_driver_writes_late_replaces_none() -> None:
    letters = DeadLetterRows(Link(ADDRESS, lambda _: Session(Server())), "store")
    newer, late = replace(LETTER, detail="of the driver now"), replace(LETTER, detail="of the one before")
    letters.write(EVENTS, DeadLetterFacts(), [newer], epoch=2, now_ms=1)
    letters.write(EVENTS, DeadLetterFacts(), [late], epoch=1, now_ms=1000)
    assert letters.newest([(EVENTS, DeadLetterFacts(end=1))], 10) == [(0, newer)]


def test_letters_of_a_batch_that_was_not_applied_are_not_there() -> None:
    server, away = Server(), [False]

    def fail(request: Any) -> None:
        if away[0] and is_change(request):
            raise OperationTimedOut({}, "h")

    store = opened(server, fail)
    away[0] = True
    with pytest.raises(StoreUnreachable):
        store.sink.apply([stretch(0)], now_ms=0)
    assert store.dead_letters.newest() == []
    away[0] = False
    store.sink.apply([stretch(0)], now_ms=0)
    assert [found for _, found in store.dead_letters.newest()] == [LETTER]


@pytest.mark.parametrize("done", [False, True], ids=["was not done", "was done"])
def test_a_batch_whose_answer_did_not_come_is_applied_once_and_said_to_be(done: bool) -> None:
    server, unanswered = Server(), [False]

    def lose_answer(request: Any) -> None:
        if unanswered[0] and is_change(request):
            unanswered[0] = False
            if done:
                server.execute(request)
            raise OperationTimedOut({}, "h")

    store = opened(server, lose_answer)
    unanswered[0] = True
    assert [result.stretch for result in store.sink.apply([stretch(0)], now_ms=0)] == [Stretch(0, 0, 1)]
    assert not unanswered[0]
    assert (store.sink.applied("log"), store.snapshots.journal_end()) == ({0: 1}, 1)


def test_a_deletion_that_was_done_but_not_answered_is_not_done_again_on_another_definition() -> None:
    server, unanswered = Server(), [False]
    other = opened(server)

    def lose_answer(request: Any) -> None:
        if unanswered[0] and is_change(request):
            unanswered[0] = False
            server.execute(request)
            other.registry.put_meter("main", Meter("likes", ("like",)), now_ms=2)
            raise OperationTimedOut({}, "h")

    store = opened(server, lose_answer)
    store.registry.put_meter("main", Meter("views", ("view",)), now_ms=1)
    unanswered[0] = True
    store.registry.delete_meter("main", "views", now_ms=2)
    assert not unanswered[0]
    assert [each.meter.name for each in store.registry.meters("main")] == ["events", "likes", "metrics"]


def test_a_meter_that_is_defined_at_any_moment_of_a_look_is_live_at_the_next() -> None:
    moment = met = 0
    while met == moment:
        moment += 1
        met = define_at(moment)
    assert moment > 3, "the two hardly met"


def define_at(moment: int) -> int:
    server, watching = Server(), [False]
    other = opened(server)
    seen: list[None] = []

    def define(_: Any) -> None:
        if watching[0] and len(seen) < moment:
            seen.append(None)
            if len(seen) == moment:
                other.registry.put_meter("main", Meter("views", ("view",)), now_ms=1)

    store = opened(server, define)
    watching[0] = True
    store.registry.live_meters()
    watching[0] = False
    if len(seen) == moment:
        assert "views" in [each.meter.name for each in store.registry.live_meters().meters]
    return len(seen)
