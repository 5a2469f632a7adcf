"""Meters and their versions."""

from typing import Any

import pytest

from tallymark.meters.model import EVENTS, METRICS, Meter
from tallymark.store.protocol import Store, StoreError, UnknownMeter

VIEWS = Meter("views", ("view",), by=("video",), compute=("count", "sum"), where="country = 'KR'", decimals=2)


def test_two_meters_always_exist(store: Store) -> None:
    found = store.registry.live_meters().meters
    assert [(each.meter_id, each.version, each.meter) for each in found] == [(1, 1, EVENTS), (2, 1, METRICS)]
    for each in found:
        with pytest.raises(StoreError, match="built in"):
            store.registry.delete_meter("main", each.meter.name, now_ms=0)
        with pytest.raises(StoreError, match="built in"):
            store.registry.put_meter("main", Meter(each.meter.name, ("view",)), now_ms=0)
        assert store.registry.put_meter("main", each.meter, now_ms=0) == each


def test_the_same_definition_again_changes_nothing(store: Store) -> None:
    first = store.registry.put_meter("main", VIEWS, now_ms=5)
    revision = store.registry.live_meters().revision
    assert store.registry.put_meter("main", VIEWS, now_ms=9) == first
    assert store.registry.live_meters().revision == revision
    assert store.registry.meter("main", "views") == first


def test_another_definition_is_a_new_version_with_an_id_of_its_own(store: Store) -> None:
    first = store.registry.put_meter("main", VIEWS, now_ms=5)
    before = store.registry.live_meters()
    second = store.registry.put_meter("main", Meter("views", ("view",)), now_ms=6)
    assert (first.version, second.version) == (1, 2)
    assert first.meter_id != second.meter_id
    live = store.registry.live_meters()
    assert live.revision > before.revision
    assert [meter.meter_id for meter in live.meters] == [1, 2, second.meter_id]


def test_a_deleted_meter_defined_again_counts_from_zero(store: Store) -> None:
    first = store.registry.put_meter("main", VIEWS, now_ms=5)
    store.registry.delete_meter("main", "views", now_ms=6)
    assert [meter.meter.name for meter in store.registry.meters("main")] == ["events", "metrics"]
    with pytest.raises(UnknownMeter):
        store.registry.delete_meter("main", "views", now_ms=7)
    again = store.registry.put_meter("main", VIEWS, now_ms=8)
    assert again.version == 2
    assert again.meter_id != first.meter_id


def test_a_deleted_meter_is_no_longer_live_at_the_next_look(store: Store, stores: Any) -> None:
    store.registry.put_meter("main", VIEWS, now_ms=5)
    other = stores.open()
    for seen in (store, other):
        assert "views" in [each.meter.name for each in seen.registry.live_meters().meters]
    store.registry.delete_meter("main", "views", now_ms=6)
    for seen in (store, other):
        assert [each.meter.name for each in seen.registry.live_meters().meters] == ["events", "metrics"]


def test_an_unknown_name_is_answered_with_the_nearest(store: Store) -> None:
    store.registry.put_meter("main", VIEWS, now_ms=5)
    with pytest.raises(UnknownMeter, match="did you mean views"):
        store.registry.meter("main", "view")


def test_another_process_sees_a_change_at_its_next_look(store: Store, stores: Any) -> None:
    other = stores.open()
    before = other.registry.live_meters()
    store.registry.put_meter("main", VIEWS, now_ms=5)
    assert len(other.registry.live_meters().meters) == len(before.meters) + 1


def test_beats_say_who_is_alive(store: Store) -> None:
    store.heartbeats.beat("keeper", {"folded": 3}, now_ms=10)
    store.heartbeats.beat("keeper", {"folded": 4}, now_ms=20)
    store.heartbeats.beat("query", {}, now_ms=15)
    assert store.heartbeats.beats() == {"keeper": (20, {"folded": 4}), "query": (15, {})}
