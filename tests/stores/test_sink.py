"""The sink's rule: what follows is applied, what lies before is skipped, anything else changes nothing."""

from typing import Any

import pytest

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.cassandra import dead_letter_rows
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import PositionConflict, Store, WrongLog
from tallymark.store.read_plan import Question

NOW_MS = 1_763_208_000_000


def result(start: int, end: int, *, partition: int = 0, log: str = "log-1", **more: object) -> StretchResult:
    """One event an offset, all in one series and minute."""
    frame = deltas.from_rows([(1, "view", 60, end - start, 0, None, None, None, None, None)])
    fields: dict[str, object] = {
        "meters_revision": 1,
        "meter_ids": (1,),
        "deltas": deltas.encode(frame),
        "ledger": Ledger(accepted=end - start, counted=end - start),
    }
    return StretchResult(Stretch(partition, start, end), log, **(fields | more))  # type: ignore[arg-type]


def counted(store: Store) -> int:
    with store.snapshots.take() as snapshot:
        events = store.registry.meter("main", "events")
        total = snapshot.read(Question(events))
        return int(total["n"].item())


@pytest.mark.parametrize(
    ("stretches", "outcome"),
    [
        ([(10, 15)], "applied"),
        ([(10, 15), (15, 20)], "applied"),
        ([(15, 20), (10, 15)], "applied"),
        ([(0, 10)], "skipped"),
        ([(5, 10)], "skipped"),
        ([(3, 4)], "skipped"),
        ([(10, 10)], "skipped"),
        ([(5, 15)], "conflict"),
        ([(11, 15)], "conflict"),
        ([(10, 15), (16, 20)], "conflict"),
        ([(10, 9)], "skipped"),
    ],
)
def test_a_stretch_after_ten_applied_offsets(store: Store, stretches: list[tuple[int, int]], outcome: str) -> None:
    store.sink.apply([result(0, 10)], now_ms=NOW_MS)
    batch = [result(start, end) for start, end in stretches]
    if outcome == "conflict":
        with pytest.raises(PositionConflict, match=r"up to 10|up to 15"):
            store.sink.apply(batch, now_ms=NOW_MS)
    else:
        fresh = store.sink.apply(batch, now_ms=NOW_MS)
        assert len(fresh) == (len(batch) if outcome == "applied" else 0)
    end = max(end for _, end in stretches) if outcome == "applied" else 10
    assert store.sink.applied("log-1") == {0: end}
    assert counted(store) == end
    with store.snapshots.take() as snapshot:
        assert snapshot.ledger() == {0: Ledger(accepted=end, counted=end)}
    assert store.snapshots.journal_end() == (2 if outcome == "applied" else 1)


def test_a_batch_is_applied_as_a_whole_or_not_at_all(store: Store) -> None:
    with pytest.raises(PositionConflict):
        store.sink.apply([result(0, 5, partition=0), result(7, 9, partition=1)], now_ms=NOW_MS)
    assert store.sink.applied("log-1") == {}
    assert counted(store) == 0


def test_of_a_replayed_batch_only_the_missing_partition_is_applied(store: Store) -> None:
    store.sink.apply([result(0, 5, partition=0)], now_ms=NOW_MS)
    fresh = store.sink.apply([result(0, 5, partition=0), result(0, 3, partition=1)], now_ms=NOW_MS)
    assert [found.stretch.partition for found in fresh] == [1]
    assert counted(store) == 8


def test_positions_of_another_log_are_refused(store: Store) -> None:
    store.sink.apply([result(0, 10)], now_ms=NOW_MS)
    with pytest.raises(WrongLog, match=r"log-1.*log-2"):
        store.sink.applied("log-2")
    with pytest.raises(WrongLog):
        store.sink.apply([result(10, 12, log="log-2")], now_ms=NOW_MS)
    with pytest.raises(WrongLog):
        store.sink.begin("log-2", 1, 5)
    assert counted(store) == 10


def test_a_partition_begins_at_zero_unless_a_beginning_is_recorded(store: Store) -> None:
    with pytest.raises(PositionConflict, match="applied nothing"):
        store.sink.apply([result(7, 9)], now_ms=NOW_MS)
    store.sink.begin("log-1", 0, 7)
    store.sink.begin("log-1", 0, 7)
    assert store.sink.applied("log-1") == {0: 7}
    assert store.sink.apply([result(7, 9)], now_ms=NOW_MS)
    with pytest.raises(PositionConflict, match="up to 9"):
        store.sink.begin("log-1", 0, 7)


def test_a_stretch_with_nothing_fresh_still_moves_the_position(store: Store) -> None:
    nothing = result(0, 4, deltas=b"", ledger=Ledger(accepted=4, duplicate=4))
    assert store.sink.apply([nothing], now_ms=NOW_MS) == [nothing]
    assert store.sink.apply([nothing], now_ms=NOW_MS) == []
    assert store.sink.applied("log-1") == {0: 4}
    with store.snapshots.take() as snapshot:
        assert snapshot.ledger()[0].missing == 0


def test_every_term_of_the_ledger_is_added_up(store: Store) -> None:
    one, other = Ledger(1, 2, 3, 4, 5, 6, 7), Ledger(70, 60, 50, 40, 30, 20, 10)
    store.sink.apply([result(0, 5, ledger=one), result(0, 3, partition=1, ledger=one)], now_ms=NOW_MS)
    store.sink.apply([result(5, 9, ledger=other)], now_ms=NOW_MS)
    with store.snapshots.take() as snapshot:
        assert snapshot.ledger() == {0: Ledger(71, 62, 53, 44, 35, 26, 17), 1: one}


def test_records_that_were_buried_are_known_by_their_offset(store: Store, stores: Any) -> None:
    store.sink.apply([result(0, 3)], now_ms=NOW_MS)
    store.sink.apply([result(3, 4, buried=True), result(4, 6), result(0, 1, partition=1, buried=True)], now_ms=NOW_MS)
    store.sink.apply([result(6, 7, buried=True)], now_ms=NOW_MS)
    for seen in (store, stores.open()):
        assert (seen.sink.buried(0), seen.sink.buried(1), seen.sink.buried(2)) == ([3, 6], [0], [])


def test_dead_letters_come_once_and_are_counted_for_ever(store: Store) -> None:
    letters = tuple(
        DeadLetter("pipeline", "frame_damaged", "bad crc", 3, b"x" * 100, NOW_MS, 0, place) for place in (1, 2)
    )
    batch = [result(0, 4, dead=letters)]
    store.sink.apply(batch, now_ms=NOW_MS)
    store.sink.apply(batch, now_ms=NOW_MS)
    assert [letter for _, letter in store.dead_letters.newest()] == [letters[1], letters[0]]
    assert len(store.dead_letters.newest(limit=1)) == 1
    assert store.upkeep.prune(now_ms=NOW_MS, journal_keep_ms=0, letter_bytes=150).letters == 1
    assert [letter for _, letter in store.dead_letters.newest()] == [letters[1]]
    assert store.dead_letters.counts(tenant=None) == {("pipeline", "frame_damaged"): 6}


def test_letters_within_their_room_are_not_dropped_at_the_next_pruning(store: Store) -> None:
    letters = tuple(DeadLetter("pipeline", "why", "", 1, b"x" * 100, NOW_MS, 0, place) for place in range(3))
    store.sink.apply([result(0, 4, dead=letters)], now_ms=NOW_MS)
    dropped = [store.upkeep.prune(now_ms=NOW_MS, journal_keep_ms=0, letter_bytes=150).letters for _ in range(2)]
    assert dropped == [2, 0]
    assert [letter for _, letter in store.dead_letters.newest()] == [letters[2]]


def test_when_the_last_dead_letter_came_is_when_it_was_found_however_old_the_record(store: Store) -> None:
    assert store.dead_letters.last_ms(tenant=None) == {}
    for start, found_ms in ((0, NOW_MS), (1, NOW_MS + 5), (2, NOW_MS - 7)):
        old = DeadLetter("pipeline", "undecodable", "…", 1, b"x", NOW_MS - 86_400_000, 0, start)
        store.sink.apply([result(start, start + 1, dead=(old,))], now_ms=found_ms)
    store.dead_letters.take_in(
        "dead-log", Stretch(0, 0, 1), [DeadLetter("collector", "bad_time", "…", 1, b"{}", NOW_MS + 60)]
    )
    assert store.dead_letters.last_ms(tenant=None) == {
        ("pipeline", "undecodable"): NOW_MS + 5,
        ("collector", "bad_time"): NOW_MS + 60,
    }


def test_kept_letters_are_listed_newest_first_by_hop_and_reason(store: Store) -> None:
    assert store.dead_letters.search(tenant=None) == []
    for number in range(12):
        reason = "undecodable" if number % 3 else "damaged"
        dead = (DeadLetter("pipeline", reason, f"p{number}", 2, b"x" * number, NOW_MS, 0, number),)
        store.sink.apply([result(number, number + 1, dead=dead)], now_ms=NOW_MS + number * 10)
        refused = DeadLetter("collector", "bad_time", f"c{number}", 1, b"{}", NOW_MS + number * 10 + 5)
        store.dead_letters.take_in("dead-log", Stretch(0, number, number + 1), [refused])

    def found(**wanted: Any) -> list[str]:
        return [each.detail for each in store.dead_letters.search(tenant=None, **wanted)]

    assert found(limit=4) == ["c11", "p11", "c10", "p10"]
    assert len(found()) == 24
    assert found(hops=["collector"], limit=2) == ["c11", "c10"]
    assert found(reasons=["damaged"]) == ["p9", "p6", "p3", "p0"]
    assert found(reasons=["damaged", "bad_time"], limit=4) == ["c11", "c10", "c9", "p9"]
    assert found(hops=["collector"], reasons=["damaged"]) == found(reasons=["never"]) == []
    (newest,) = store.dead_letters.search(tenant=None, hops=["pipeline"], limit=1)
    assert (newest.events, newest.raw_bytes, newest.partition, newest.offset) == (2, 11, 0, 11)


def test_a_kept_letter_is_found_by_its_number_until_it_is_dropped(store: Store) -> None:
    dead = tuple(DeadLetter("pipeline", "damaged", "why", 1, b"x" * 100, NOW_MS, 0, place) for place in range(3))
    store.sink.apply([result(0, 4, dead=dead)], now_ms=NOW_MS)
    refused = DeadLetter("collector", "bad_time", "why", 1, b"{}", NOW_MS + 1)
    store.dead_letters.take_in("dead-log", Stretch(0, 0, 1), [refused])
    ids = [each.letter_id for each in store.dead_letters.search(tenant=None)]
    assert [store.dead_letters.get(each) for each in ids] == [refused, *reversed(dead)]
    assert len(set(ids)) == 4
    assert store.dead_letters.get(max(ids) + 1000) is None
    store.upkeep.prune(now_ms=NOW_MS, journal_keep_ms=0, letter_bytes=150)
    kept = [each.letter_id for each in store.dead_letters.search(tenant=None)]
    assert kept == ids[:2]
    assert [store.dead_letters.get(each) for each in ids] == [refused, dead[2], None, None]


def test_letters_are_listed_over_the_borders_of_pages_and_blocks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_rows, "BLOCK", 6)
    monkeypatch.setattr(dead_letter_rows, "LISTED_AT_ONCE", 3)
    monkeypatch.setattr(dead_letter_rows, "MOST_LOOKED_AT", 30)
    many = [DeadLetter("collector", "bad_time", f"{number}", 1, b"{}", NOW_MS + number) for number in range(40)]
    for number, letter in enumerate(many):
        store.dead_letters.take_in("dead-log", Stretch(0, number, number + 1), [letter])
    assert [each.detail for each in store.dead_letters.search(tenant=None, limit=20)] == [
        str(n) for n in range(39, 19, -1)
    ]
    ids = [each.letter_id for each in store.dead_letters.search(tenant=None, limit=100)]
    if isinstance(store, CassandraStore):
        assert len(ids) == 30, "only so many are looked through"
    assert [store.dead_letters.get(each) for each in ids] == many[::-1][: len(ids)]


def test_letters_of_the_dead_stream_are_taken_once(store: Store) -> None:
    letter = DeadLetter("collector", "bad_time", "…", 1, b"{}", NOW_MS)
    assert store.dead_letters.position("dead-log") == 0
    assert store.dead_letters.take_in("dead-log", Stretch(0, 0, 1), [letter])
    assert not store.dead_letters.take_in("dead-log", Stretch(0, 0, 1), [letter])
    assert store.dead_letters.position("dead-log") == 1
    assert len(store.dead_letters.newest()) == 1
    assert store.sink.applied("log-1") == {}
    with pytest.raises(WrongLog):
        store.dead_letters.position("another")


def test_lag_is_stated_per_batch_and_over_batches(store: Store) -> None:
    with store.snapshots.take() as snapshot:
        assert snapshot.lag(since_ms=0) is None
    store.sink.apply([result(0, 10, received={NOW_MS - 100: 98, NOW_MS - 900: 2})], now_ms=NOW_MS)
    store.sink.apply([result(10, 20)], now_ms=NOW_MS + 5)
    with store.snapshots.take() as snapshot:
        lag = snapshot.lag(since_ms=0)
        assert lag is not None
        assert (lag.at_ms, lag.events, lag.p50, lag.p95, lag.p99, lag.highest) == (NOW_MS, 100, 100, 100, 900, 900)
    store.sink.apply([result(20, 30, received={NOW_MS - 2000: 900})], now_ms=NOW_MS)
    with store.snapshots.take() as snapshot:
        lag = snapshot.lag(since_ms=NOW_MS)
        assert lag is not None
        assert (lag.events, lag.p50, lag.highest) == (1000, 2000, 2000)
        assert snapshot.lag(since_ms=NOW_MS + 1) is None
    store.upkeep.prune(now_ms=NOW_MS + 3_600_001, journal_keep_ms=0, letter_bytes=10**9)
    with store.snapshots.take() as snapshot:
        assert snapshot.lag(since_ms=0) is None


def test_a_meter_is_live_from_its_first_applied_stretch_in_each_partition(store: Store, stores: Any) -> None:
    store.sink.apply([result(0, 10), result(0, 4, partition=1)], now_ms=NOW_MS)
    views = store.registry.put_meter("main", Meter("views", ("view",)), now_ms=NOW_MS)
    store.sink.apply([result(10, 12, meter_ids=(1, views.meter_id))], now_ms=NOW_MS)
    store.sink.apply([result(12, 20, meter_ids=(1, views.meter_id))], now_ms=NOW_MS)
    assert store.registry.live_from(1) == {0: 0, 1: 0}
    assert store.registry.live_from(views.meter_id) == {0: 10}
    again = stores.open()
    again.sink.apply(
        [result(20, 30, meter_ids=(1, views.meter_id)), result(4, 5, partition=1, meter_ids=(1, views.meter_id))],
        now_ms=NOW_MS,
    )
    assert again.registry.live_from(views.meter_id) == {0: 10, 1: 4}


def test_a_broken_meter_is_not_live_until_it_is_redefined(store: Store) -> None:
    views = store.registry.put_meter("main", Meter("views", ("view",)), now_ms=NOW_MS)
    before = store.registry.live_meters()
    store.sink.apply([result(0, 10, broken={views.meter_id: "no such column"})], now_ms=NOW_MS)
    after = store.registry.live_meters()
    assert after.revision > before.revision
    assert [meter.meter.name for meter in after.meters] == ["events", "metrics"]
    assert store.registry.meter("main", "views").broken == "no such column"
    assert store.registry.broken_since(views.meter_id) == {0: (0, "no such column")}
    assert store.registry.put_meter("main", Meter("views", ("view",)), now_ms=NOW_MS).broken == "no such column"
    fresh = store.registry.put_meter("main", Meter("views", ("view",), by=("video",)), now_ms=NOW_MS)
    assert (fresh.version, fresh.broken) == (2, None)
    assert [meter.meter.name for meter in store.registry.live_meters().meters] == ["events", "metrics", "views"]


def test_followers_get_every_batch_in_order_with_all_its_stretches(store: Store) -> None:
    store.sink.apply([result(0, 3), result(0, 2, partition=1)], now_ms=NOW_MS)
    store.sink.apply([result(3, 4)], now_ms=NOW_MS)
    assert [(sequence, frame["n"].sum()) for sequence, frame in store.snapshots.journal_since(0)] == [(1, 5), (2, 1)]
    assert [sequence for sequence, _ in store.snapshots.journal_since(1)] == [2]
    store.upkeep.fold(most_points=100)
    assert store.upkeep.prune(now_ms=NOW_MS + 29_000, journal_keep_ms=30_000, letter_bytes=0).journal == 0
    assert len(store.snapshots.journal_since(0)) == 2
    assert store.upkeep.prune(now_ms=NOW_MS + 31_000, journal_keep_ms=30_000, letter_bytes=0).journal == 3
    assert store.snapshots.journal_since(0) == []
    assert store.snapshots.journal_end() == 2


def test_what_is_not_folded_is_never_pruned(store: Store) -> None:
    store.sink.apply([result(0, 3)], now_ms=NOW_MS)
    assert store.upkeep.prune(now_ms=NOW_MS * 2, journal_keep_ms=0, letter_bytes=0).journal == 0
    assert counted(store) == 3
