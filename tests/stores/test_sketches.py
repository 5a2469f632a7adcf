"""Sketches through every part of a store: journal, fold, late deltas, rolled hours and days, sums over all series."""

import pytest

from tallymark.aggregates import columns, sketch
from tallymark.aggregates.functions import FUNCTIONS, Function
from tallymark.meters.model import Meter
from tallymark.store import answer, deltas
from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S
from tallymark.store.model import Ledger, RegisteredMeter, Stretch, StretchResult
from tallymark.store.protocol import Store
from tallymark.store.read_plan import Question
from tallymark.store.reference import WIDTH, Reference, cell
from tallymark.store.sqlite import points
from tallymark.store.sqlite.store import SqliteStore

MIDNIGHT = 1_700_006_400
FIRST = sketch.FIRST_REGISTER


@pytest.fixture
def meter(store: Store, monkeypatch: pytest.MonkeyPatch) -> RegisteredMeter:
    """One that keeps a sketch, whatever functions there are."""
    function = Function(lambda _: ("n", columns.SKETCH), lambda rows, _: rows["n"].to_list(), lambda _: [])
    monkeypatch.setitem(FUNCTIONS, "slots", function)
    return store.registry.put_meter("main", Meter("latency", ("call",), ("server",), ("count", "slots")), now_ms=0)


def batch(meter: RegisteredMeter, start: int, *rows: tuple[str, int, dict[int, int] | None]) -> StretchResult:
    cells = [
        (meter.meter_id, series, MIDNIGHT + at_s, 1, 0, *[None] * 5, None if slots is None else sketch.from_map(slots))
        for series, at_s, slots in rows
    ]
    body = deltas.encode(deltas.merge([deltas.from_rows(cells)]))
    ledger = Ledger(accepted=len(rows), counted=len(rows))
    return StretchResult(Stretch(0, start, start + 1), "log", 1, (meter.meter_id,), body, ledger)


def assert_exact(store: Store, meter: RegisteredMeter, batches: list[StretchResult]) -> None:
    reference = Reference()
    reference.apply(batches)
    with store.snapshots.take() as snapshot:
        for by in ((), ("server",)):
            for where in ({}, {"server": ["web-1"]}):
                for step_s in (None, MINUTE_S, HOUR_S, DAY_S):
                    question = Question(meter, where=where, by=by, step_s=step_s)
                    found = {row[:-WIDTH]: cell(*row[-WIDTH:]) for row in snapshot.read(question).rows()}
                    assert found == reference.read(question)
                    assert found, "nothing was compared"
                    assert all(row[columns.NAMES.index(columns.SKETCH)] for row in found.values())


def test_they_merge_wherever_they_lie(store, meter):
    batches = [
        batch(meter, 0, ("web-1", 0, {3: 1, -7: 2}), ("web-1", 60, {3: 5, FIRST: 4}), ("web-2", 0, {3: 1, FIRST: 2})),
        batch(meter, 1, ("web-1", 0, {3: 2, FIRST + 9: 1}), ("web-2", HOUR_S, {1_000: 1})),
        # Late, into what is rolled by then; and a server that is new there.
        batch(meter, 2, ("web-1", 60, {3: 1, FIRST: 9}), ("web-3", 120, {-60_000: 7})),
        batch(meter, 3, ("web-1", DAY_S, {5: 1})),
    ]
    for number, each in enumerate(batches):
        store.sink.apply([each], now_ms=0)
        assert_exact(store, meter, batches[: number + 1])
        if number != 2:
            while store.upkeep.fold(most_points=1).more:
                pass
            assert_exact(store, meter, batches[: number + 1])
            while store.upkeep.roll(now_ms=(MIDNIGHT + DAY_S + HOUR_S) * 1000, delay_s=0, slice_series=1):
                pass
            assert_exact(store, meter, batches[: number + 1])
    assert store.upkeep.marks().rolled[DAY_S] == MIDNIGHT + DAY_S


def test_a_meter_that_asks_for_none_reads_none(store, meter):
    plain = store.registry.put_meter("main", Meter("calls", ("call",), ("server",)), now_ms=0)
    both = [batch(meter, 0, ("web-1", 0, {3: 1})), batch(plain, 1, ("web-1", 0, {3: 1}))]
    store.sink.apply(both[:1], now_ms=0)
    store.sink.apply(both[1:], now_ms=0)
    for work in (lambda: None, lambda: store.upkeep.fold(most_points=100)):
        work()
        with store.snapshots.take() as snapshot:
            for asked, has_sketch in ((meter, True), (plain, False)):
                row = snapshot.read(Question(asked, by=[]))
                assert (row["n"].item(), row[columns.SKETCH].item() is not None) == (1, has_sketch)


def test_few_are_held_at_once_for_an_answer(store, meter, monkeypatch):
    """20,000 rows of numbers take 2 MB, but as many sketches of distinct values 160 MB."""
    monkeypatch.setattr(answer, "SKETCHES_AT_ONCE", 10)
    held: list[int] = []
    merge = columns.merge
    monkeypatch.setattr(columns, "merge", lambda rows, keys: held.append(rows.height) or merge(rows, keys))
    for number in range(5):
        rows = [(f"web-{server}", 60 * (20 * number + minute), {3: 1}) for server in (1, 2) for minute in range(20)]
        store.sink.apply([batch(meter, number, *rows)], now_ms=0)
        store.upkeep.fold(most_points=1000)
    held.clear()
    with store.snapshots.take() as snapshot:
        found = snapshot.read(Question(meter, by=("server",)))
    assert [sketch.to_map(blob) for blob in found[columns.SKETCH]] == [{3: 100}, {3: 100}]
    if isinstance(store, SqliteStore):  # Cassandra hands on a page at a time
        assert 0 < max(held) <= 2 * 10


def test_a_roll_merges_those_of_all_series_some_at_a_time(store, meter, monkeypatch):
    monkeypatch.setattr(points, "SERIES_AT_ONCE", 2)
    rows = [(f"web-{server}", at_s, {server: 1, at_s: 2}) for server in range(1, 6) for at_s in (0, 60, 120)]
    whole = batch(meter, 0, *rows)
    store.sink.apply([whole], now_ms=0)
    store.upkeep.fold(most_points=1000)
    while store.upkeep.roll(now_ms=(MIDNIGHT + HOUR_S) * 1000, delay_s=0, slice_series=1000):
        pass
    assert_exact(store, meter, [whole])
