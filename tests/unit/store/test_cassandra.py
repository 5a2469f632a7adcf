"""What the store on Cassandra asks for, and what it makes of bad answers; on a server in memory."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, OperationTimedOut, WriteFailure

import cassandras
from stores.memory_cassandra import Server, Session, statements
from tallymark.events.frame import MAX_FRAME_BYTES
from tallymark.meters.model import BUILT_IN, EVENTS, METRICS, Meter
from tallymark.query.live import Wanted, news
from tallymark.store import deltas
from tallymark.store.cassandra import bootstrap, dead_letter_rows, schema
from tallymark.store.cassandra.connection import Link
from tallymark.store.cassandra.dead_letter_rows import DeadLetterFacts, DeadLetterRows
from tallymark.store.cassandra.failures import BEHIND_S, patiently
from tallymark.store.cassandra.points import Points
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.grains import GRAINS, HOUR_S
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import StoreError, StoreUnreachable
from tallymark.store.read_plan import Question

LOCAL, QUORUM, SERIAL = ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.QUORUM, ConsistencyLevel.SERIAL
LOCAL_SERIAL = ConsistencyLevel.LOCAL_SERIAL


def opened(server: Server, before: Callable[[Any], None] = lambda request: None, **more: Any) -> CassandraStore:
    address = cassandras.address(0, name="store", **more)
    return CassandraStore(address, connect=lambda _: Session(server, before), pause_s=0)


def stretch(start: int, end: int, *minutes: int) -> StretchResult:
    rows = [(1, "e", minute_s, end - start, 0, *[None] * 5) for minute_s in minutes or (60,)]
    frame = deltas.from_rows(rows)
    ledger = Ledger(accepted=end - start, counted=end - start)
    return StretchResult(Stretch(0, start, end), "log", 1, (1,), deltas.encode(frame), ledger)


def ask(store: CassandraStore, **more: Any) -> int:
    with store.snapshots.take() as snapshot:
        return int(snapshot.read(Question(store.registry.meter("main", "events"), **more))["n"].sum())


def test_a_store_of_an_older_version_gets_the_meter_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    with monkeypatch.context() as older:
        older.setattr(bootstrap, "due_built_ins", lambda known: [] if known else [EVENTS])
        store = opened(server)
        views = store.registry.put_meter("main", Meter("views", ("view",)), now_ms=1)
        assert [each.meter for each in store.registry.meters("main")] == [EVENTS, views.meter]
        before = store.registry.live_meters().revision
    for _ in range(2):
        store = opened(server)
        assert [each.meter for each in store.registry.meters("main")] == [EVENTS, METRICS, views.meter]
        assert store.registry.meter("main", "metrics").meter_id == views.meter_id + 1
        assert store.registry.live_meters().revision == before + 1


def test_a_users_own_meter_of_metrics_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    with monkeypatch.context() as older:
        older.setattr(bootstrap, "due_built_ins", lambda known: [] if known else [EVENTS])
        own = opened(server).registry.put_meter("main", Meter("metrics", ("metrics",), ("host",)), now_ms=1)
    store = opened(server)
    assert store.registry.meter("main", "metrics") == own
    store.registry.delete_meter("main", "metrics", now_ms=2)
    again = opened(server).registry.meter("main", "metrics")
    assert (again.version, again.meter) == (2, METRICS)
    with pytest.raises(StoreError, match="built in"):
        store.registry.delete_meter("main", "metrics", now_ms=3)


def test_a_built_in_meter_that_another_version_defined_gets_a_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    narrow = replace(METRICS, compute=("min", "max"))
    with monkeypatch.context() as older:
        older.setitem(BUILT_IN, "metrics", narrow)
        before = opened(server).registry.meter("main", "metrics")
    assert (before.meter, before.built_in) == (narrow, True)
    for _ in range(2):
        store = opened(server)
        after = store.registry.meter("main", "metrics")
        assert (after.version, after.meter, after.built_in) == (2, METRICS, True)
        assert after.meter_id == before.meter_id + 1
    with pytest.raises(StoreError, match="built in"):
        store.registry.put_meter("main", narrow, now_ms=3)


@pytest.mark.parametrize(
    ("setting", "firm", "asked"),
    [
        ("one", {LOCAL, LOCAL_SERIAL}, ConsistencyLevel.ONE),
        ("local_quorum", {LOCAL, LOCAL_SERIAL}, LOCAL),
        ("quorum", {QUORUM, SERIAL}, QUORUM),
        ("all", {QUORUM, SERIAL}, ConsistencyLevel.ALL),
    ],
)
def test_the_consistency_that_is_set_is_that_of_questions_and_all_else_meets_in_a_majority(
    setting: str, firm: set[int], asked: int
) -> None:
    levels: set[int] = set()
    store = opened(Server(), lambda request: levels.add(request.consistency_level), consistency=setting)
    assert store.lease("keeper", "me", lease_s=10).take()
    for number in range(3):
        store.sink.apply([stretch(number, number + 1, 60, 7200)], now_ms=0)
        store.upkeep.fold(most_points=100)
    while store.upkeep.roll(now_ms=10**10, delay_s=0, slice_series=100):
        pass
    store.upkeep.prune(now_ms=10**9, journal_keep_ms=0, letter_bytes=0)
    assert levels == firm
    levels.clear()
    assert ask(store, where={"event": ["e"]}, by=("event",)) == 6
    assert levels == {max(firm & {LOCAL, QUORUM}), asked}


def test_a_fold_is_not_fooled_by_a_copy_that_is_behind_what_questions_may_read() -> None:
    server = Server()

    class Behind(Session):
        def execute_async(self, request: Any) -> Any:
            if request.consistency_level == ConsistencyLevel.ONE:
                return Session(Server()).execute_async(request)
            return super().execute_async(request)

    address = cassandras.address(0, name="store", consistency="one")
    for number in range(2):
        keeper = CassandraStore(address, connect=lambda _: Behind(server), pause_s=0)
        keeper.sink.apply([stretch(3 * number, 3 * number + 3)], now_ms=0)
        keeper.upkeep.fold(most_points=100)
    assert ask(opened(server)) == 6


def test_the_windows_that_change_are_read_before_those_that_do_not() -> None:
    server, windows = Server(), list[int]()
    hours = [3600 * hour for hour in range(50)]
    opened(server).sink.apply([stretch(0, 1, *hours)], now_ms=0)
    keeper = opened(server)
    keeper.upkeep.fold(most_points=1000)
    while keeper.upkeep.roll(now_ms=40 * 3_600_000, delay_s=0, slice_series=1000):
        pass

    def note(request: Any) -> None:
        ((cql, values),) = statements(request)
        if " FROM points_" in cql:
            windows.append(values[3])

    assert ask(opened(server, note), by=("event",)) == 50
    assert windows == sorted(windows, reverse=True)
    assert windows[0] == hours[-1]


def test_an_hour_that_comes_in_many_pages_is_rolled_as_in_one() -> None:
    minutes = range(0, 7200, 60)
    for page_rows in (1, 7, 5000):
        store = opened(Server(page_rows=page_rows))
        store.sink.apply([stretch(0, 3, *minutes)], now_ms=0)
        store.upkeep.fold(most_points=1000)
        while store.upkeep.roll(now_ms=2 * 3_600_000, delay_s=0, slice_series=1):
            pass
        assert store.upkeep.marks().rolled[HOUR_S] == 7200
        for by in ((), ("event",)):
            for step_s in (60, 3600, None):
                assert ask(store, by=by, step_s=step_s) == 3 * len(minutes)


def test_a_follower_hears_of_batches_that_were_pruned_while_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallymark.store.cassandra.journal.AT_ONCE", 20)
    server = Server()
    keeper = opened(server)
    for number in range(50):
        keeper.sink.apply([stretch(number, number + 1)], now_ms=number)
    keeper.upkeep.fold(most_points=100)
    reads: list[object] = []

    def prune(request: Any) -> None:
        reads.extend(cql for cql, _ in statements(request) if "ORDER BY kind, a" in cql)
        if len(reads) == 2:
            keeper.upkeep.prune(now_ms=40, journal_keep_ms=0, letter_bytes=10**9)

    follower = opened(server, prune)
    found = news(follower, [wanted := Wanted("main", "events", (), 0)])[wanted]
    assert (found.then.sequence, b'"gap":true' in found.text) == (20, False)
    found = news(follower, [found.then])[found.then]
    assert (found.then.sequence, b'"gap":true' in found.text) == (50, True)


TIMES = {"window_s", "bucket_s", "at_ms", "found_ms"}


def partition_keys() -> dict[str, list[str]]:
    """Table -> the columns that say on which nodes a row lies."""
    keys = {}
    for table, definition in schema._TABLES.items():
        found = re.search(r"PRIMARY KEY \((?:\(([^)]+)\)|(\w+))", definition)
        assert found, table
        keys[table] = [name.strip() for name in (found[1] or found[2]).split(",")]
    return keys


def test_no_partition_key_begins_with_a_time() -> None:
    keys = partition_keys()
    assert {f"points_{grain_s}" for grain_s in GRAINS} <= set(keys)
    for table, columns in keys.items():
        assert not TIMES & set(columns[:2]), table
        # Where a time is part of it, what spreads comes before: else all that is written now goes to the same nodes.
        if TIMES & set(columns):
            assert columns[:3] == ["store", "meter", "shard"], table


def test_what_is_counted_in_one_minute_is_spread_over_all_shards() -> None:
    rows = [(1, f"series {number}", 60, 1, 0, *[None] * 5) for number in range(1_000)]
    frame = deltas.from_rows(rows)
    placed = Points(None, "store", 16).placed(frame, GRAINS[0])  # type: ignore[arg-type]
    by_place = placed.group_by("meter", "shard", "window_s").len()
    assert by_place.height == 16
    assert by_place["window_s"].n_unique() == 1
    assert int(by_place["len"].max()) < 1_000 / 16 * 2  # type: ignore[arg-type]


def test_letters_are_written_in_batches_that_a_node_takes() -> None:
    sizes: list[list[int]] = []

    class Noting:
        def write(self, batches: Iterator[Any]) -> None:
            sizes.extend([len(values[6]) for _, values in batch] for batch in batches)

    large = [DeadLetter("pipeline", "why", "", 1, b"x" * (MAX_FRAME_BYTES // 2), 0, 0, each) for each in range(9)]
    small = [DeadLetter("pipeline", "why", "", 1, b"x", 0, 0, each) for each in range(dead_letter_rows.BLOCK)]
    DeadLetterRows(Noting(), "store").write("events", DeadLetterFacts(), [*large, *small], epoch=1, now_ms=1)  # type: ignore[arg-type]
    assert sum(map(len, sizes)) == len(large) + len(small)
    assert max(map(sum, sizes)) <= dead_letter_rows.BYTES_AT_ONCE
    assert max(map(len, sizes)) == dead_letter_rows.AT_ONCE
    assert [len(each) for each in sizes][:8] == [1] * 8


def test_a_letter_of_a_batch_that_was_not_applied_is_neither_listed_nor_found() -> None:
    store = opened(Server())
    kept, left = (DeadLetter("pipeline", "why", which, 1, b"x", 0, 0, 0) for which in ("kept", "left"))
    store.sink.apply([replace(stretch(0, 1), dead=(kept,))], now_ms=1)
    # What a driver writes before it dies.
    store.dead_letters._letters.write("events", DeadLetterFacts(end=1), [left], epoch=1, now_ms=2)
    (listed,) = store.dead_letters.search(tenant=None)
    assert store.dead_letters.get(listed.letter_id) == kept
    assert store.dead_letters.get(listed.letter_id + len(dead_letter_rows.BOOKS)) is None


class Failing(Session):
    """Fails at a request, or where it is prepared."""

    def __init__(self, error: Exception, *, preparing: bool) -> None:
        super().__init__(Server())
        self._error, self._preparing = error, preparing

    def prepare(self, cql: str) -> Any:
        if self._preparing:
            raise self._error
        return super().prepare(cql)

    def execute(self, request: Any) -> Any:
        raise self._error


@pytest.mark.parametrize("preparing", [False, True])
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OperationTimedOut({}, "h"), StoreUnreachable, "did not answer within 20 s at consistency quorum "),
        (WriteFailure("no"), StoreUnreachable, "answered, but its nodes failed the request.*a write larger than"),
        (InvalidRequest("Batch too large"), StoreError, "refuses a request .*Batch too large"),
        (InvalidRequest("table book does not exist"), StoreUnreachable, "a schema disagreement"),
    ],
    ids=["time-out", "write failure", "too large", "behind"],
)
def test_what_goes_wrong_is_said_in_the_stores_words(
    error: Exception, kind: type[StoreError], words: str, preparing: bool
) -> None:
    link = Link(cassandras.address(9042), lambda _: Failing(error, preparing=preparing))
    cql = "SELECT role, at_ms, facts FROM beats WHERE store = ?"
    for request in (
        lambda: link.rows(cql, "s"),
        lambda: link.settled(cql, "s"),
        lambda: list(link.stream([(cql, ("s",))])),
        lambda: link.write([[(cql, ("s",))]]),
    ):
        with pytest.raises(kind, match=words) as found:
            request()
        assert type(found.value) is kind
        assert "127.0.0.1:9042" in str(found.value)
    if kind is StoreUnreachable and not isinstance(error, InvalidRequest):
        assert link.compare_and_set((cql, ("s",))) is False
    else:
        with pytest.raises(kind, match=words):
            link.compare_and_set((cql, ("s",)))


def test_hosts_whose_names_nobody_knows_are_named() -> None:
    address = cassandras.address(9042, hosts=("no-such-host.invalid",), timeout_s=2.0)
    for opening in (address.open_store, address.open_sink, address.open_deposits, address.open_heartbeats):
        with pytest.raises(StoreUnreachable, match=r"cannot resolve store\.hosts: no-such-host\.invalid:9042"):
            opening()


def test_a_node_that_has_not_heard_of_a_table_is_asked_again_for_some_seconds() -> None:
    now, tries = [0.0], list[float]()

    def ask_at(known_from_s: float) -> str:
        tries.append(now[0])
        if now[0] < known_from_s:
            raise InvalidRequest("table book does not exist")
        return "known"

    def sleep(seconds: float) -> None:
        now[0] += seconds

    assert patiently(lambda: ask_at(3), clock=lambda: now[0], sleep=sleep) == "known"
    with pytest.raises(InvalidRequest):
        patiently(lambda: ask_at(10**9), clock=lambda: now[0], sleep=sleep)
    assert tries[-1] <= 3.2 + BEHIND_S + 0.2
    tries.clear()

    def refuse() -> None:
        tries.append(now[0])
        raise InvalidRequest("Batch too large")

    with pytest.raises(InvalidRequest):
        patiently(refuse, clock=lambda: now[0], sleep=sleep)
    assert len(tries) == 1


def test_a_lease_whose_taking_was_not_answered_is_ours_when_the_store_is_back() -> None:
    server, away = Server(), [0]

    def fail(request: Any) -> None:
        if away[0] and statements(request)[0][0].startswith(("UPDATE", "SELECT DISTINCT")):
            away[0] -= 1
            if away[0] == 1:  # the taking itself: done, and not answered
                server.execute(request)
            if away[0] < 2:
                raise OperationTimedOut({}, "h")

    store = opened(server, fail)
    lease = store.lease("keeper", "me", lease_s=10)
    away[0] = 3  # it looks, takes, and looks again
    with pytest.raises(StoreUnreachable):
        lease.take()
    assert away == [0]
    assert lease.take()
    store.sink.apply([stretch(0, 1)], now_ms=0)
    store.upkeep.fold(most_points=10)
    assert store.upkeep.marks().folded == 1


def test_looking_for_letters_of_a_rare_reason_fetches_a_bounded_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letter_rows, "MOST_BYTES_LOOKED_AT", 50_000)
    pages = 0

    def note(request: Any) -> None:
        nonlocal pages
        pages += sum(cql.startswith("SELECT number, found_ms, body") for cql, _ in statements(request))

    store = opened(Server(), note)
    kinds = ["rare", *["common"] * 200, "newest", *["common"] * 3]
    found = [DeadLetter("pipeline", reason, "why", 1, b"x" * 1_000, n) for n, reason in enumerate(kinds)]
    store.dead_letters.take_in("dead-log", Stretch(0, 0, len(found)), found)
    assert store.dead_letters.search(tenant=None, reasons=["rare"]) == []
    assert pages <= 3, "50,000 bytes are 50 letters, and these are 3 pages"
    assert [each.reason for each in store.dead_letters.search(tenant=None, reasons=["newest"])] == ["newest"]
    assert 40 <= len(store.dead_letters.search(tenant=None, limit=100)) <= 50
    monkeypatch.setattr(dead_letter_rows, "MOST_BYTES_LOOKED_AT", 1)
    assert len(store.dead_letters.search(tenant=None)) == 1, "one is looked at however large it is"
