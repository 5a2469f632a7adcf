"""A meter that broke: what it missed is counted as its loss, and it can be resumed."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tallymark.meters.model import Meter
from tallymark.store.model import Gap, Ledger, Stretch, StretchResult
from tallymark.store.protocol import Store, UnknownMeter
from tests.stores.conftest import Stores, open_stores

VIEWS = Meter("views", ("view",))


@pytest.fixture(params=["sqlite", "memory", "cassandra"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    opened = open_stores(request.param, tmp_path)
    yield opened
    opened.close()


def apply(store: Store, start: int, end: int, *, partition: int = 0, **more: Any) -> None:
    nothing = StretchResult(Stretch(partition, start, end), "log-1", 1, (1,), b"", Ledger(), **more)
    assert store.sink.apply([nothing], now_ms=1) == [nothing]


def test_what_a_broken_meter_misses_adds_up_to_its_loss(store: Store) -> None:
    views = store.registry.put_meter("main", VIEWS, now_ms=0).meter_id
    apply(store, 0, 10)
    apply(store, 10, 20, broken={views: "no such column"}, missed={views: 7})
    apply(store, 20, 25, missed={views: 5})
    apply(store, 0, 4, partition=1, missed={views: 0})
    assert store.registry.meter("main", "views").missed == 12
    assert store.registry.gaps(views) == [Gap(0, 10, 25, 12), Gap(1, 0, 4, 0)]
    (broken,) = store.registry.live_meters().broken
    assert (broken.meter.name, broken.broken) == ("views", "no such column")
    assert [each.missed for each in store.registry.meters("main") if each.meter.name != "views"] == [0, 0]


def test_a_resumed_meter_counts_on_and_its_gap_stays_on_record(store: Store, stores: Stores) -> None:
    views = store.registry.put_meter("main", VIEWS, now_ms=0).meter_id
    apply(store, 0, 10, broken={views: "no such column"}, missed={views: 7})
    other = stores.open()
    before = other.registry.live_meters()
    resumed = store.registry.resume_meter("main", "views")
    assert (resumed.meter_id, resumed.version, resumed.broken, resumed.missed) == (views, 1, None, 7)
    after = other.registry.live_meters()
    assert after.revision > before.revision
    assert views in [each.meter_id for each in after.meters]
    assert after.broken == ()
    assert store.registry.broken_since(views) == {}
    # It counts a while, and breaks again: another gap.
    apply(store, 10, 20)
    apply(store, 20, 30, broken={views: "again"}, missed={views: 2})
    apply(store, 30, 40, missed={views: 3})
    assert store.registry.broken_since(views) == {0: (20, "again")}
    assert store.registry.gaps(views) == [Gap(0, 0, 10, 7), Gap(0, 20, 40, 5)]
    assert (store.registry.meter("main", "views").broken, store.registry.meter("main", "views").missed) == ("again", 12)


def test_the_sink_goes_on_after_another_process_resumed_a_meter(store: Store, stores: Stores) -> None:
    """It remembers the page that it wrote last, and now somebody else has written."""
    views = store.registry.put_meter("main", VIEWS, now_ms=0).meter_id
    apply(store, 0, 10, broken={views: "no such column"}, missed={views: 7})
    stores.open().registry.resume_meter("main", "views")
    # Planned before it was resumed: it missed this one too.
    apply(store, 10, 20, missed={views: 1})
    apply(store, 20, 30)
    assert store.registry.meter("main", "views").broken is None
    assert store.registry.gaps(views) == [Gap(0, 0, 20, 8)]
    assert store.sink.applied("log-1") == {0: 30}


def test_resuming_what_is_not_broken_changes_nothing(store: Store) -> None:
    store.registry.put_meter("main", VIEWS, now_ms=0)
    revision = store.registry.live_meters().revision
    assert store.registry.resume_meter("main", "views").broken is None
    assert store.registry.live_meters().revision == revision
    with pytest.raises(UnknownMeter):
        store.registry.resume_meter("main", "clicks")


def test_a_break_noted_by_a_version_without_gaps_leaves_a_gap_when_it_is_resumed(store: Store) -> None:
    views = store.registry.put_meter("main", VIEWS, now_ms=0).meter_id
    apply(store, 0, 10)
    apply(store, 10, 20, broken={views: "no such column"})  # as the older version had it: without `missed`
    apply(store, 20, 30)
    store.registry.resume_meter("main", "views")
    assert store.registry.gaps(views) == [Gap(0, 10, 30, 0)]


def test_a_break_noted_by_a_version_without_gaps_goes_on_as_a_gap_from_there(store: Store) -> None:
    views = store.registry.put_meter("main", VIEWS, now_ms=0).meter_id
    apply(store, 0, 10, broken={views: "no such column"})
    apply(store, 10, 20)
    apply(store, 20, 30, missed={views: 4})
    assert store.registry.gaps(views) == [Gap(0, 0, 30, 4)]
    # A burial is a result without a word of the meter; the gap goes over it.
    apply(store, 30, 31)
    apply(store, 31, 40, missed={views: 1})
    assert store.registry.gaps(views) == [Gap(0, 0, 40, 5)]


def test_a_meter_that_fails_again_at_once_has_one_gap_and_misses_nothing_twice(store: Store) -> None:
    views = store.registry.put_meter("main", VIEWS, now_ms=0).meter_id
    for start in (0, 10):
        apply(store, start, start + 10, broken={views: "no such column"}, missed={views: 7})
        store.registry.resume_meter("main", "views")
    apply(store, 20, 30, broken={views: "no such column"}, missed={views: 100})
    assert store.registry.gaps(views) == [Gap(0, 0, 30, 114)]
    assert store.registry.meter("main", "views").missed == 114


def test_a_burial_in_a_gap_that_two_breaks_made_does_not_split_it(store: Store) -> None:
    views = store.registry.put_meter("main", VIEWS, now_ms=0).meter_id
    apply(store, 0, 10, broken={views: "no such column"}, missed={views: 7})
    store.registry.resume_meter("main", "views")
    apply(store, 10, 20, broken={views: "no such column"}, missed={views: 7})
    apply(store, 20, 21)
    apply(store, 21, 30, missed={views: 1})
    assert store.registry.gaps(views) == [Gap(0, 0, 30, 15)]


# What a stretch is to a meter. R: it is resumed first. u: a break as an older version noted it, without what it missed.
RESUMED, COUNTS, BREAKS, BREAKS_UNCOUNTED, MISSES, BURIED = "Rcbumx"
LIVES = [
    "bRbRb",
    "bmRbmRbxm",
    "bxRbxm",
    "bRcbRm",
    "bRmbm",
    "bRmcb",
    "bRuRb",
    "bRum",
    "uxRm",
    "umRbRu",
    "uRuRb",
    "uxmRmb",
    "cbmRcb",
]


def test_sqlite_and_cassandra_have_the_same_gaps_whatever_becomes_of_a_meter(tmp_path: Path) -> None:
    found: list[list[list[Gap]]] = []
    for stores in (open_stores("sqlite", tmp_path), open_stores("memory", tmp_path)):
        found.append([lived(stores.open(), life, start) for start, life in zip(count(0, 100), LIVES, strict=False)])
        stores.close()
    assert all(found[0])
    assert found[0] == found[1]


def lived(store: Store, life: str, start: int) -> list[Gap]:
    """The gaps of a meter after this life in the log from `start` on."""
    views = store.registry.put_meter("main", VIEWS, now_ms=0).meter_id
    steps: list[str] = []
    for step in life:
        if step == RESUMED:
            store.registry.resume_meter("main", "views")
            continue
        at = start + len(steps) * 10
        broken = {views: "no such column"} if step in (BREAKS, BREAKS_UNCOUNTED) else {}
        missed = {views: 3 ** len(steps)} if step in (BREAKS, MISSES) else {}
        apply(store, at, at + 10, broken=broken, missed=missed)
        steps.append(step)
    after = store.registry.resume_meter("main", "views")
    apply(store, start + len(steps) * 10, start + 100)
    gaps = store.registry.gaps(views)
    store.registry.delete_meter("main", "views", now_ms=1)
    missed_of_all = sum(3**number for number, step in enumerate(steps) if step in (BREAKS, MISSES))
    assert sum(gap.missed for gap in gaps) == missed_of_all == after.missed, life
    places = [(place - start) // 10 for gap in gaps for place in range(gap.start, gap.end, 10)]
    assert places == sorted(set(places)), f"{life}: gaps overlap"
    lost = {number for number, step in enumerate(steps) if step not in (COUNTS, BURIED)}
    counted = {number for number, step in enumerate(steps) if step == COUNTS}
    assert lost <= set(places), life
    assert not counted & set(places), life
    return gaps
