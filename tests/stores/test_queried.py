"""A meter with `keep: queried`: each selection of metrics is a version that shares the points of those before it."""

from contextlib import suppress
from dataclasses import replace

import polars as pl
import pytest

from tallymark.aggregates import columns
from tallymark.meters.model import METRICS, Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S
from tallymark.store.model import Ledger, RegisteredMeter, Stretch, StretchResult
from tallymark.store.protocol import Store, StoreError
from tallymark.store.read_plan import Question
from tallymark.store.selections import Selection

SERVERS = Meter("servers", ("metrics",), ("server",), ("count",), each="values", keep="queried")
MIDNIGHT = 1_700_006_400


def selecting(*metrics: str, as_of: int, every: bool = False) -> Selection:
    return Selection(frozenset(metrics), every, as_of)


def state(store: Store) -> tuple[int, set[str] | None]:
    """(version, what it stores)."""
    found = store.registry.meter("main", "servers")
    stored = found.stored_metrics
    return found.version, None if stored is None else set(stored)


def apply(store: Store, registered: RegisteredMeter, at: int, *, kept: int, dropped: int) -> None:
    """A batch as the pipeline makes it."""
    row = {**columns.NOTHING, "bucket_s": MIDNIGHT + at * 60, "version": registered.counts_as}
    body = [
        {**row, "meter": registered.set_id, "series": "s1\0cpu", "n": kept},
        {**row, "meter": registered.dropped_set_id, "series": "\0", "n": dropped},
    ]
    frame = deltas.merge([pl.DataFrame(body, schema=deltas.SCHEMA)])
    ledger = Ledger(accepted=1, counted=1)
    result = StretchResult(Stretch(0, at, at + 1), "log", 1, (registered.meter_id,), deltas.encode(frame), ledger)
    store.sink.apply([result], now_ms=0)


def counts(store: Store) -> tuple[int, int]:
    """(stored, dropped)."""
    registered = store.registry.meter("main", "servers")
    with store.snapshots.take() as snapshot:
        found = [
            snapshot.read(Question(registered, functions=("count",), dropped=dropped)) for dropped in (False, True)
        ]
    return int(found[0]["n"].sum()), int(found[1]["n"].sum())


def test_each_selection_is_a_version_with_a_position_of_its_own(store):
    registry = store.registry
    first = registry.put_meter("main", SERVERS, now_ms=1, selection=selecting("cpu", as_of=1))
    assert state(store) == (1, {"cpu"})
    apply(store, first, 0, kept=1, dropped=9)
    assert registry.select("main", "servers", selecting("cpu", "disk", as_of=2), now_ms=2)
    second = registry.meter("main", "servers")
    assert (second.set_id, second.version) == (first.set_id, 2)
    assert second.kept.since_ms == {"cpu": 1, "disk": 2}
    apply(store, second, 1, kept=2, dropped=8)
    assert (registry.live_from(first.meter_id), registry.live_from(second.meter_id)) == ({0: 0}, {0: 1})
    assert registry.select("main", "servers", selecting("disk", as_of=3), now_ms=3)
    assert registry.meter("main", "servers").kept.since_ms == {"disk": 2}
    assert counts(store) == (3, 17)
    assert [each.kept.since_ms for each in registry.live_meters().meters if each.kept] == [{"disk": 2}]


def test_the_same_selection_again_changes_nothing(store):
    registry = store.registry
    registry.put_meter("main", SERVERS, now_ms=1, selection=selecting("cpu", as_of=1))
    before = registry.live_meters().revision
    assert not registry.select("main", "servers", selecting("cpu", as_of=1), now_ms=2)
    assert not registry.select("main", "servers", selecting("cpu", as_of=7), now_ms=2)
    assert registry.put_meter("main", SERVERS, now_ms=3).version == 1
    assert registry.live_meters().revision == before


def test_queries_that_were_read_earlier_never_replace_those_read_later(store):
    #  one process reads {} at 6 and pauses; the query comes back at 7, which is what the meter stores already
    store.registry.put_meter("main", SERVERS, now_ms=1, selection=selecting("cpu", as_of=5))
    assert not store.registry.select("main", "servers", selecting("cpu", as_of=7), now_ms=2)
    assert not store.registry.select("main", "servers", selecting(as_of=6), now_ms=3)
    assert state(store) == (1, {"cpu"})


def test_a_new_definition_goes_on_with_the_selection(store):
    registry = store.registry
    first = registry.put_meter("main", SERVERS, now_ms=1, selection=selecting("cpu", as_of=1))
    second = registry.put_meter("main", replace(SERVERS, compute=("count", "sum")), now_ms=2)
    assert (second.set_id, dict(second.kept.since_ms)) == (first.set_id, {"cpu": 1})
    other = registry.put_meter("main", replace(SERVERS, by=("zone",)), now_ms=3)
    assert (other.set_id, dict(other.kept.since_ms)) == (other.meter_id, {"cpu": 3})


def test_between_all_and_queried_the_numbers_go_on_and_what_was_stored_has_no_break(store):
    registry = store.registry
    first = registry.put_meter("main", replace(SERVERS, keep=None), now_ms=1)
    assert first.kept is None
    second = registry.put_meter("main", SERVERS, now_ms=2, selection=selecting("cpu", as_of=1))
    assert (second.set_id, second.kept.since_ms) == (first.set_id, {"cpu": 1})
    assert registry.select("main", "servers", selecting("cpu", "disk", as_of=2), now_ms=3)
    assert registry.meter("main", "servers").kept.since_ms == {"cpu": 1, "disk": 3}
    assert registry.put_meter("main", replace(SERVERS, keep=None), now_ms=4).kept is None
    assert registry.put_meter("main", SERVERS, now_ms=5).kept.since_ms == {}


def test_a_query_of_all_metrics_stores_them_all(store):
    registry = store.registry
    registry.put_meter("main", SERVERS, now_ms=1, selection=selecting("cpu", as_of=1))
    assert registry.select("main", "servers", selecting("cpu", every=True, as_of=2), now_ms=2)
    assert state(store) == (2, None)
    assert registry.select("main", "servers", selecting("cpu", "disk", as_of=3), now_ms=3)
    assert registry.meter("main", "servers").kept.since_ms == {"cpu": 1, "disk": 2}


def test_there_is_nothing_to_select_of_other_meters(store):
    store.registry.put_meter("main", replace(SERVERS, name="plain", keep=None), now_ms=1)
    for name in ("plain", "nobody", "events"):
        assert not store.registry.select("main", name, selecting("cpu", as_of=1), now_ms=2)
    store.registry.put_meter("main", SERVERS, now_ms=1)
    store.registry.delete_meter("main", "servers", now_ms=2)
    assert not store.registry.select("main", "servers", selecting("cpu", as_of=1), now_ms=3)


def test_of_the_built_in_meter_only_keep_can_be_changed(stores):
    store = stores.open()
    queried = replace(METRICS, keep="queried")
    before = store.registry.meter("main", "metrics")
    after = store.registry.put_meter("main", queried, now_ms=5, selection=selecting("cpu", as_of=1))
    assert (after.version, after.set_id, after.built_in, after.kept.since_ms) == (2, before.set_id, True, {"cpu": 0})
    for other in (replace(queried, by=("host",)), replace(METRICS, compute=("count",))):
        with pytest.raises(StoreError, match="is built in"):
            store.registry.put_meter("main", other, now_ms=6)
    with pytest.raises(StoreError, match="is built in"):
        store.registry.delete_meter("main", "metrics", now_ms=6)
    assert store.registry.select("main", "metrics", selecting("cpu", "disk", as_of=2), now_ms=7)
    again = stores.open().registry.meter("main", "metrics")  # opening makes no other version of it
    assert (again.version, again.built_in, again.kept.since_ms) == (3, True, {"cpu": 0, "disk": 7})
    assert store.registry.put_meter("main", METRICS, now_ms=8).kept is None


@pytest.mark.parametrize("grain_s", [1, 60])
def test_what_was_dropped_is_exact_folded_rolled_and_replayed(store, grain_s):
    meter = replace(SERVERS, grain_s=grain_s, max_series=1)
    registered = store.registry.put_meter("main", meter, now_ms=1, selection=selecting("cpu", as_of=1))
    for at in range(3):
        apply(store, registered, at, kept=1, dropped=1_998)
        apply(store, registered, at, kept=1, dropped=1_998)  # again, after a crash: skipped
    assert counts(store) == (3, 5_994)
    while store.upkeep.fold(most_points=1).more:
        assert counts(store) == (3, 5_994)
    while store.upkeep.roll(now_ms=(MIDNIGHT + 2 * DAY_S) * 1000, delay_s=0, slice_series=1):
        assert counts(store) == (3, 5_994)
    assert counts(store) == (3, 5_994)


@pytest.mark.parametrize("stores", ["sqlite", "memory"], indirect=True)
def test_a_crash_at_every_statement_leaves_the_old_selection_or_the_new(stores, fuse, died):
    stores.open().registry.put_meter("main", SERVERS, now_ms=1, selection=selecting("cpu", as_of=1))
    statement, blown = 0, True
    while blown:
        statement += 1
        store = stores.open(fuse=fuse)
        fuse.light(statement)
        with suppress(died):
            store.registry.select("main", "servers", selecting("disk", as_of=2), now_ms=2)
        blown = fuse.blown
        fuse.quench()
        store.close()
        assert state(stores.open()) in [(1, {"cpu"}), (2, {"disk"})]
    assert state(stores.open()) == (2, {"disk"})
    assert statement > 2
