"""The series of a set: how many there are, and no more than its meter admits."""

from typing import Any

import pytest

from tallymark.keeper import service
from tallymark.keeper.duties import Rota
from tallymark.meters.model import Late, Meter
from tallymark.store import deltas
from tallymark.store.cassandra import upkeep
from tallymark.store.model import Ledger, RegisteredMeter, Stretch, StretchResult
from tallymark.store.protocol import Store
from tallymark.store.read_plan import Question

FINDS = Meter("finds", ("find",), ("word",), max_series=2, late=Late(after_s=60, then="aside"))


@pytest.fixture
def finds(store: Store) -> RegisteredMeter:
    return store.registry.put_meter("main", FINDS, now_ms=0)


def count(store: Store, set_id: int, *series: str) -> None:
    start = store.sink.applied("log").get(0, 0)
    frame = deltas.merge([deltas.from_rows([(set_id, each, 60, 1) for each in series])])
    ledger = Ledger(accepted=len(series), counted=len(series))
    stretch = Stretch(0, start, start + len(series))
    store.sink.apply([StretchResult(stretch, "log", 1, (1,), deltas.encode(frame), ledger)], now_ms=0)


def found(store: Store, meter: RegisteredMeter, **asked: Any) -> dict[str, int]:
    with store.snapshots.take() as snapshot:
        return dict(snapshot.read(Question(meter, by=["word"], **asked)).select("label.word", "n").rows())


def live(store: Store, after: int = 0) -> list[str]:
    return [series for _, frame in store.snapshots.journal_since(after) for series in frame["series"]]


def test_those_beyond_the_limit_count_together_before_and_after_a_fold(store, finds):
    count(store, finds.set_id, "b")
    count(store, finds.set_id, "c", "a", "d", "a")
    expected = {"b": 1, "a": 2, "__other__": 2}
    assert found(store, finds) == expected
    assert sorted(live(store)) == ["__other__", "__other__", "a", "b"]
    while store.upkeep.fold(most_points=1).more:
        assert found(store, finds) == expected
    assert found(store, finds) == expected
    assert sorted(live(store)) == ["__other__", "__other__", "a", "b"]
    count(store, finds.set_id, "d", "a", "__other__")
    assert found(store, finds) == {"b": 1, "a": 3, "__other__": 4}
    with store.snapshots.take() as snapshot:
        assert snapshot.read(Question(finds))["n"].item() == 8
        assert snapshot.read(Question(finds, where={"word": ["d"]}))["n"].item() == 0


def test_another_process_finds_who_was_admitted(stores, store, finds):
    count(store, finds.set_id, "b")
    store.upkeep.fold(most_points=100)
    count(store, finds.set_id, "a", "c")
    for folds in (False, True):
        other = stores.open()
        if folds:
            other.upkeep.fold(most_points=100)
        assert found(other, finds) == {"b": 1, "a": 1, "__other__": 1}
    other = stores.open()
    count(other, finds.set_id, "c", "b")
    assert found(other, finds) == {"b": 2, "a": 1, "__other__": 2}


def test_what_came_late_has_series_of_its_own(store, finds):
    count(store, finds.set_id, "a", "b", "c")
    count(store, finds.late_set_id, "c", "d", "e")
    for _ in range(2):
        assert found(store, finds) == {"a": 1, "b": 1, "__other__": 1}
        assert found(store, finds, late=True) == {"c": 1, "d": 1, "__other__": 1}
        store.upkeep.fold(most_points=100)


def test_of_a_deleted_meter_the_limit_holds_in_what_is_still_folded(stores, store, finds):
    count(store, finds.set_id, "a", "b", "c")
    store.registry.delete_meter("main", "finds", now_ms=1)
    stores.open().upkeep.fold(most_points=100)
    assert found(store, finds) == {"a": 1, "b": 1, "__other__": 1}


def test_they_are_counted_once_and_as_they_are_added(stores, store, finds, monkeypatch):
    monkeypatch.setattr(upkeep, "COUNT_EVERY_S", 0.0)
    count(store, 1, "x", "y", "z")
    count(store, finds.set_id, "a", "b", "c", "d")
    assert dict(store.upkeep.series()) == {}
    store.upkeep.fold(most_points=100)
    expected = {1: 3, finds.set_id: 3}
    assert dict(store.upkeep.series()) == expected
    count(store, 1, "x", "w")
    store.upkeep.fold(most_points=100)
    assert dict(store.upkeep.series()) == expected | {1: 4}
    assert dict(stores.open().upkeep.series()) == expected | {1: 4}
    facts = service.facts(store, Rota(), standby=False)
    assert facts["series"] == {"1": 4, str(finds.set_id): 3}
    assert service.facts(store, Rota(), standby=True)["series"] == {}
