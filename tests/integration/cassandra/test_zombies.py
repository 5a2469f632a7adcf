"""Writes that come too late: of a keeper that was taken over from, of a task that was given up, and of nobody knows."""

from typing import Any

import pytest

from tallymark.store.cassandra import connection
from tallymark.store.protocol import SnapshotOutdated, StoreError, StoreUnreachable
from tallymark.store.read_plan import Question
from tallymark.testing import until


class Held:
    """A session that keeps back the writing of points until told, as a process that is stopped would."""

    def __init__(self, session: connection.Session) -> None:
        self._session = session
        self.prepare, self.execute, self.close = session.prepare, session.execute, session.close
        self.holding = False
        self.held: list[Any] = []

    def execute_async(self, statement: Any) -> Any:
        if self.holding and _writes_points(statement):
            self.held.append(statement)
            statement = self.prepare("SELECT store FROM beats WHERE store = ?").bind(("nobody",))
        return self._session.execute_async(statement)

    def release(self) -> int:
        for statement in self.held:
            self._session.execute(statement)
        return len(self.held)


def _writes_points(statement: Any) -> bool:
    inner = getattr(statement, "_statements_and_parameters", None)
    if inner is not None:
        return True
    return "INSERT INTO points_" in statement.prepared_statement.query_string


def test_late_point_writes_of_a_former_keeper_change_nothing(open_store: Any, build: Any) -> None:
    sessions: list[Held] = []

    def connect(address: Any) -> Held:
        sessions.append(Held(connection.connect(address)))
        return sessions[-1]

    zombie, keeper = open_store(connect=connect), open_store()
    keeper.sink.apply([build.stretch(0, 3, series=40)], now_ms=0)
    sessions[0].holding = True
    assert zombie.upkeep.fold(most_points=20).more  # it believes that these are written
    sessions[0].holding = False
    assert not keeper.upkeep.fold(most_points=1000).more
    keeper.sink.apply([build.stretch(3, 5, series=40)], now_ms=0)
    keeper.upkeep.fold(most_points=1000)
    expected = {f"e{each}": 5 for each in range(40)}
    assert build.counts(keeper) == expected
    assert sessions[0].release() > 0
    assert build.counts(open_store()) == expected
    zombie.upkeep.fold(most_points=1000)
    keeper.sink.apply([build.stretch(5, 6, series=40)], now_ms=0)
    keeper.upkeep.fold(most_points=1000)
    assert build.counts(open_store()) == {f"e{each}": 6 for each in range(40)}


def test_a_fold_that_is_taken_over_takes_exactly_the_batches_it_was_begun_with(open_store: Any, build: Any) -> None:
    # 255 and 256, because of two cells with one timestamp Cassandra keeps the one with the larger bytes.
    store = open_store()
    store.sink.apply([build.stretch(0, 255, series=3)], now_ms=0)
    assert store.upkeep.fold(most_points=3).more
    store.sink.apply([build.stretch(255, 256, series=3)], now_ms=0)
    other = open_store()
    expected = {f"e{each}": 256 for each in range(3)}
    assert build.counts(other) == expected
    other.upkeep.fold(most_points=100)
    assert (other.upkeep.marks().folded, build.counts(other)) == (1, expected)
    other.upkeep.fold(most_points=100)
    assert (other.upkeep.marks().folded, build.counts(other)) == (2, expected)


def test_a_deposit_that_no_batch_named_has_no_effect(open_store: Any, address: Any, build: Any) -> None:
    store = open_store()
    tasks = address.open_deposits()
    first, second = (tasks.deposit(build.stretch(0, 3)) for _ in range(2))
    assert first.deltas == second.deltas == b""
    assert first.deposit != second.deposit
    assert store.sink.apply([first], now_ms=0) == [first]
    assert build.counts(store) == {"e0": 3}
    store.upkeep.fold(most_points=100)
    late = tasks.deposit(build.stretch(0, 3))  # a task that was given up, after the fold
    assert build.counts(store) == {"e0": 3}
    assert store.sink.apply([late], now_ms=0) == []
    assert store.sink.apply([second], now_ms=0) == []
    store.upkeep.fold(most_points=100)
    assert build.counts(open_store()) == {"e0": 3}


def test_large_deltas_become_a_deposit_and_are_deleted_when_nobody_needs_them(open_store: Any, build: Any) -> None:
    store = open_store()
    store.sink.apply([build.stretch(0, 1, series=20_000), build.stretch(0, 2, partition=1)], now_ms=0)
    assert sum(build.counts(store).values()) == 20_002
    assert store.snapshots.journal_since(0)[0][1].height == 20_001

    def is_folded() -> bool:
        try:
            return not store.upkeep.fold(most_points=10_000).more
        except StoreUnreachable:  # a busy machine: 20,000 writes at once, each within 2 s
            return False

    until(is_folded, "all is folded", deadline_s=120)
    assert store.upkeep.prune(now_ms=10**6, journal_keep_ms=0, letter_bytes=0).journal == 2
    assert store.snapshots.journal_since(0) == []
    assert sum(build.counts(store).values()) == 20_002


def test_deltas_that_are_gone_before_they_were_folded_are_not_passed_over(
    open_store: Any, address: Any, build: Any
) -> None:
    store = open_store()
    deposited = address.open_deposits().deposit(build.stretch(0, 3))
    store.sink.apply([deposited], now_ms=0)
    session = connection.connect(address)
    delete = session.prepare("DELETE FROM deposits WHERE store = ? AND key = ?")
    session.execute(delete.bind((address.name, deposited.deposit.split("/")[0])))
    session.close()
    for step in (lambda: build.counts(store), lambda: store.upkeep.fold(most_points=10)):
        with pytest.raises(StoreError, match="vanished before they were folded"):
            step()


def test_a_snapshot_older_than_two_folds_says_so_instead_of_guessing(open_store: Any, build: Any) -> None:
    store = open_store()
    events = store.registry.meter("main", "events")
    question: dict[str, Any] = {"where": {}, "by": ("event",), "start_s": None, "end_s": None, "step_s": None}
    store.sink.apply([build.stretch(0, 1)], now_ms=0)
    store.upkeep.fold(most_points=10)
    with store.snapshots.take() as snapshot:
        store.sink.apply([build.stretch(1, 2)], now_ms=0)
        store.upkeep.fold(most_points=10)
        assert snapshot.read(Question.between(events, **question))["n"].to_list() == [1]
        store.sink.apply([build.stretch(2, 3)], now_ms=0)
        store.upkeep.fold(most_points=10)
        with pytest.raises(SnapshotOutdated, match="take a new one"):
            snapshot.read(Question.between(events, **question))
    with store.snapshots.take() as snapshot:
        store.sink.apply([build.stretch(3, 4)], now_ms=0)
        store.upkeep.fold(most_points=10)
        store.sink.apply([build.stretch(4, 5)], now_ms=0)
        store.upkeep.prune(now_ms=10**6, journal_keep_ms=0, letter_bytes=0)
    assert build.counts(store) == {"e0": 5}


def test_folds_keep_a_pause_so_that_readers_can_finish(open_store: Any, build: Any) -> None:
    now = [0.0]
    store = open_store(pause_s=2.0, clock=lambda: now[0])
    store.sink.apply([build.stretch(0, 1)], now_ms=0)
    assert store.upkeep.fold(most_points=10).points == 0
    now[0] += 2
    assert store.upkeep.fold(most_points=10).points > 0
    store.sink.apply([build.stretch(1, 2)], now_ms=0)
    now[0] += 1.9
    assert store.upkeep.fold(most_points=10).points == 0
    now[0] += 0.1
    assert store.upkeep.fold(most_points=10).points > 0


@pytest.mark.parametrize("done", [True, False], ids=["it was done", "it was not"])
def test_a_conditional_write_without_an_answer_is_settled(
    open_store: Any, build: Any, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    store = open_store()
    store.sink.apply([build.stretch(0, 2)], now_ms=0)
    asked = connection.Link.compare_and_set
    lost = iter([True, False, False, False])

    def unanswered(self: connection.Link, *asks: Any) -> bool:
        if next(lost):
            return asked(self, *asks) and False if done else False
        return asked(self, *asks)

    monkeypatch.setattr(connection.Link, "compare_and_set", unanswered)
    batch = [build.stretch(2, 5)]
    assert store.sink.apply(batch, now_ms=0) == batch
    monkeypatch.undo()
    assert store.sink.apply(batch, now_ms=0) == []
    assert (store.snapshots.journal_end(), store.sink.applied("log"), build.counts(store)) == (2, {0: 5}, {"e0": 5})


def test_two_that_write_at_once_without_a_lease_decide_again(open_store: Any, build: Any) -> None:
    one, two = open_store(), open_store()
    one.sink.apply([build.stretch(0, 2)], now_ms=0)
    two.sink.apply([build.stretch(2, 3), build.stretch(0, 4, partition=1)], now_ms=0)
    # What the first one remembers is not true any more.
    assert [
        each.stretch.partition
        for each in one.sink.apply([build.stretch(2, 3), build.stretch(0, 1, partition=2)], now_ms=0)
    ] == [2]
    assert one.sink.applied("log") == {0: 3, 1: 4, 2: 1}
