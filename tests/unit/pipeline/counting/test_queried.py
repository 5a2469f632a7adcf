"""`keep: queried`: of the named numbers only those that saved queries select are stored; the others are counted."""

from dataclasses import replace

import pytest

from tallymark.store.selections import Kept

SERVERS = {"name": "servers", "event": "metrics", "by": ["server"], "each": "values", "compute": ["count", "sum"]}
QUERIED = {**SERVERS, "keep": "queried"}


def snapshot(build, id: str, moment: str = "12:00:00", **numbers: float) -> dict:
    return {**build.event(id, moment, name="metrics", server="s1"), "values": numbers}


def storing(registered, *metrics: str, every: bool = False):
    return replace(registered, kept=Kept(dict.fromkeys(metrics, 0), 0 if every else None))


@pytest.fixture
def queried(path, build):
    """The built-in meter, and one that stores `cpu` alone."""
    events, servers = build.meters(QUERIED)
    path.meters = (events, storing(servers, "cpu"))
    return path.meters[1]


def stored(path, meter: int = 2) -> dict[str, int]:
    """Metric -> count."""
    return {row["series"].split("\0")[-1]: row["n"] for row in path.deltas(meter).iter_rows(named=True)}


def dropped(path, registered) -> dict[str, int]:
    return path.counts(registered.dropped_set_id)


def test_only_what_is_selected_is_stored_and_the_others_are_counted(path, build, queried):
    path.process([[snapshot(build, "a", cpu=1, disk=2, load=3), snapshot(build, "b", "12:01:00", cpu=5, disk=6)]])
    assert path.deltas(2).select("series", "n", "sum").sort("sum").rows() == [("s1\0cpu", 1, 1.0), ("s1\0cpu", 1, 5.0)]
    assert dropped(path, queried) == {"12:00": 2, "12:01": 1}
    assert path.ledger().counted == 2


def test_a_retry_drops_nothing_twice_however_the_stretches_are_cut(path, build, queried):
    first, other = snapshot(build, "a", cpu=1, disk=2), snapshot(build, "b", disk=3, load=4)
    path.process([[first], [first, other], [other]], cuts=[1, 2])
    assert dropped(path, queried) == {"12:00": 3}
    assert stored(path) == {"cpu": 1}
    assert path.ledger().duplicate == 2


def test_an_event_that_the_meter_does_not_match_drops_nothing(path, build):
    events, servers = build.meters({**QUERIED, "where": "server = 's2'"})
    path.meters = (events, storing(servers, "cpu"))
    path.process([[snapshot(build, "a", cpu=1, disk=2)]])
    assert dropped(path, path.meters[1]) == {}


def test_without_a_selection_all_is_dropped_and_with_one_of_everything_nothing(path, build, queried):
    path.meters = (path.meters[0], storing(queried))
    path.process([[snapshot(build, "a", cpu=1, disk=2)]])
    assert (stored(path), dropped(path, queried)) == ({}, {"12:00": 2})
    path.meters = (path.meters[0], storing(queried, "cpu", every=True))
    path.process([[snapshot(build, "b", cpu=1, disk=2)]])
    assert (stored(path), dropped(path, queried)) == ({"cpu": 1, "disk": 1}, {"12:00": 2})


def test_another_meter_of_the_same_events_still_gets_them_all(path, build):
    events, servers, everything = build.meters(QUERIED, {**SERVERS, "name": "everything"})
    path.meters = (events, storing(servers, "cpu"), everything)
    path.process([[snapshot(build, "a", cpu=1, disk=2, load=3)]])
    assert stored(path) == {"cpu": 1}
    assert stored(path, 3) == {"cpu": 1, "disk": 1, "load": 1}
    assert dropped(path, path.meters[1]) == {"12:00": 2}


def test_two_that_store_different_metrics_do_not_mix(path, build):
    events, servers, others = build.meters(QUERIED, {**QUERIED, "name": "others"})
    path.meters = (events, storing(servers, "cpu"), storing(others, "disk", "load"))
    path.process([[snapshot(build, "a", cpu=1, disk=2, load=3)]])
    assert (stored(path), stored(path, 3)) == ({"cpu": 1}, {"disk": 1, "load": 1})
    assert [dropped(path, each) for each in path.meters[1:]] == [{"12:00": 2}, {"12:00": 1}]


def test_late_events_drop_what_is_not_selected_too(path, build):
    events, servers = build.meters({**QUERIED, "late": {"after": "1s", "then": "aside"}})
    path.meters = (events, storing(servers, "cpu"))
    path.process([[snapshot(build, "a", cpu=1, disk=2)]])
    assert stored(path) == {}
    assert stored(path, -2) == {"cpu": 1}
    assert dropped(path, path.meters[1]) == {"12:00": 1}


def test_a_record_with_more_numbers_than_a_slice_drops_each_once(path, build, queried, monkeypatch):
    monkeypatch.setattr("tallymark.pipeline.counting.measure.MOST_VALUES", 3)
    numbers = {f"m{number}": number for number in range(10)}
    path.process([[snapshot(build, "a", cpu=1, **numbers), snapshot(build, "b", **numbers, cpu=2)]])
    assert (stored(path), dropped(path, queried)) == ({"cpu": 2}, {"12:00": 20})


def test_events_without_named_numbers_and_with_none_are_no_trouble(path, build, queried):
    path.process([[build.event("a", name="metrics"), snapshot(build, "b")], [build.event("c", name="metrics")]])
    assert (stored(path), dropped(path, queried)) == ({}, {})


def test_the_selection_of_one_tenant_does_not_bound_what_another_reads(path, build):
    (events, servers), (theirs, all_of_them) = build.meters(QUERIED), build.meters(SERVERS, tenant="shop", first=3)
    path.meters = (events, storing(servers, "cpu"), theirs, all_of_them)
    shot = snapshot(build, "a", cpu=1, disk=2)
    path.process([[shot, *build.of_tenant("shop", shot)]])
    assert (stored(path, 2), stored(path, 4)) == ({"cpu": 1}, {"cpu": 1, "disk": 1})
    assert dropped(path, path.meters[1]) == {"12:00": 1}
    assert dropped(path, path.meters[3]) == {}
