"""Tenants in the counting: each tenant's events meet that tenant's meters, and every event is in one ledger."""

import dataclasses
from collections import Counter
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallymark.events import columns, frame
from tallymark.ledger import Ledger
from tallymark.pipeline.counting import count as module
from tallymark.pipeline.counting import decode as decoding
from tallymark.pipeline.counting.count import only_fresh
from tallymark.pipeline.counting.decode import decode
from tallymark.pipeline.counting.needs import Needs, needs
from tallymark.pipeline.counting.split import by_tenant
from tallymark.store.model import MAYBE_DUPLICATE

HOUR_MS = 3_600_000


def plan(build, *definitions, tenants=("main", "demo")):
    """The same meters for each tenant: those of `main` from number 1, of the next from 11, …"""
    return tuple(
        meter
        for place, tenant in enumerate(tenants)
        for meter in build.meters(*definitions, tenant=tenant, first=1 + 10 * place)
    )


def test_two_tenants_with_meters_of_one_name_count_their_own_events(path, build):
    path.meters = plan(build, {"name": "views", "event": "view", "by": ["video"]})
    mine = [build.event("1", video="A"), build.event("2", video="B")]
    theirs = build.of_tenant("demo", build.event("1", video="A"), build.event("3", video="A"), build.event("4"))
    path.process([[mine[0], theirs[0], mine[1], *theirs[1:]]])
    assert path.series(2) == {("A",): 1, ("B",): 1}
    assert path.series(12) == {("A",): 2, ("",): 1}
    assert (path.series(1), path.series(11)) == ({("view",): 2}, {("view",): 3})


def test_an_id_is_an_event_within_its_tenant(path, build):
    path.meters = plan(build)
    path.process([[build.event("a"), *build.of_tenant("demo", build.event("a"), build.event("a"))]])
    assert path.ledgers() == {"main": Ledger(1, 1), "demo": Ledger(2, 1, duplicate=1)}


def test_an_event_that_only_another_tenants_meter_counts_is_in_no_meter(path, build):
    every = plan(build, {"name": "clicks", "event": "click"})
    path.meters = tuple(each for each in every if each.meter_id in (2, 11, 12))
    path.process([[build.event("1", name="view"), *build.of_tenant("demo", build.event("2", name="view"))]])
    assert path.ledgers() == {"main": Ledger(1, unmatched=1), "demo": Ledger(1, 1)}


def test_each_tenants_frames_may_have_properties_of_their_own(path, build):
    path.meters = (
        *build.meters({"name": "m", "event": "view", "by": ["video"]}),
        *build.meters({"name": "m", "event": "view", "by": ["page"]}, tenant="demo", first=11),
    )
    theirs = build.of_tenant("demo", build.event("1", page="home", video="secret"), build.event("2"))
    path.process([[build.event("1", video="A", page="x")], theirs])
    assert (path.series(2), path.series(12)) == ({("A",): 1}, {("home",): 1, ("",): 1})


def test_named_numbers_stay_with_their_tenant_also_when_a_stretch_is_cut_into_slices(path, build, monkeypatch):
    monkeypatch.setattr(decoding, "MOST_VALUES", 3)
    monkeypatch.setattr(module, "MOST_VALUES", 3)
    path.meters = plan(build, {"name": "m", "event": "load", "each": "values", "compute": ["sum"]})
    sent = [{**build.event(str(number), name="load"), "values": {"cpu": 1.0, "disk": 2.0}} for number in range(6)]
    path.process([[*sent[:1], *build.of_tenant("demo", *sent[1:3])], sent[3:4], build.of_tenant("demo", *sent[4:])])
    sums = {
        meter: {row["series"]: (row["n"], row["sum"]) for row in path.deltas(meter).iter_rows(named=True)}
        for meter in (2, 12)
    }
    assert sums == {2: {"cpu": (2, 2.0), "disk": (2, 4.0)}, 12: {"cpu": (4, 4.0), "disk": (4, 8.0)}}


def test_a_tenant_without_any_meter_is_named(path, build):
    path.process([[build.event("1"), *build.of_tenant("b", build.event("2")), *build.of_tenant("a", build.event("3"))]])
    assert path.results[0].new_tenants == ("a", "b")


def test_a_tenant_whose_only_meter_is_broken_is_not_new(path, build):
    path.broken = build.meters(tenant="demo", first=11)
    path.process([[build.event("1"), *build.of_tenant("demo", build.event("2"), build.event("3"))]])
    assert path.results[0].new_tenants == ()
    assert path.results[0].missed == {11: 2}


def test_a_broken_meter_misses_its_own_tenants_events_only(path, build):
    every = plan(build, {"name": "v", "event": "view"}, tenants=("main", "demo", "idle"))
    path.meters = tuple(each for each in every if each.meter.name == "events")
    path.broken = tuple(each for each in every if each.meter.name == "v")
    theirs = build.of_tenant("demo", build.event("1"), build.event("2"), build.event("2"), build.event("3", name="x"))
    path.process([[build.event("1"), *theirs]])
    assert path.results[0].missed == {2: 1, 12: 2, 22: 0}


def test_a_meter_that_fails_stops_that_of_the_same_name_of_no_other_tenant(path, build, monkeypatch):
    path.meters = plan(build, {"name": "v", "event": "view"})
    measure = module.measure

    def fails_for_demo(events, matched, registered):
        if registered.meter_id == 12:
            raise RuntimeError("no such thing")
        return measure(events, matched, registered)

    monkeypatch.setattr(module, "measure", fails_for_demo)
    path.process([[build.event("1"), *build.of_tenant("demo", build.event("1"), build.event("2"))]])
    assert (path.results[0].broken, path.results[0].missed) == ({12: "RuntimeError: no such thing"}, {12: 2})
    assert path.counts(2) == {"12:00": 1}


def test_what_cannot_be_decoded_is_mains(path, build):
    path.meters = plan(build)
    path.process([build.of_tenant("demo", build.event("1")), build.of_tenant("demo", build.event("2"))])
    path.records[1] = dataclasses.replace(path.records[1], payload=b"damaged")
    path.results = [path.stretch(0, 2)]
    assert path.ledgers() == {"demo": Ledger(1, 1), "main": Ledger(1, dead=1)}
    (letter,) = path.results[0].dead
    assert letter.tenant == "main"
    assert path.results[0].new_tenants == ()


def resent(build, number: str, *, ago_ms: int = 3 * HOUR_MS, **props):
    """An event that was first tried so long ago that nobody can tell whether it was counted."""
    return {**build.event(number, **props), "resent": build.at_ms("12:30:00") - ago_ms}


def test_a_letter_holds_nothing_of_another_tenant(path, build):
    path.meters = plan(build)
    mine = [build.event("1", name="mine", secret="x"), resent(build, "2", name="mine", secret="y")]
    theirs = [resent(build, "3", ago_ms=9 * HOUR_MS, name="theirs", page="home"), build.event("4", name="theirs")]
    theirs.append(resent(build, "5", name="theirs", page="cart"))
    path.process([[*mine, *build.of_tenant("demo", *theirs)]])
    letters = {letter.tenant: letter for letter in path.results[0].dead}
    assert {tenant: (letter.reason, letter.events) for tenant, letter in letters.items()} == {
        "main": (MAYBE_DUPLICATE, 1),
        "demo": (MAYBE_DUPLICATE, 2),
    }
    assert letters["main"].detail.startswith("1 of 2 events were first tried up to 10,800 s before")
    assert letters["demo"].detail.startswith("2 of 3 events were first tried up to 32,400 s before")
    found = {tenant: list(columns.rows(frame.decode(letter.raw))) for tenant, letter in letters.items()}
    assert {tenant: [(row["id"], row["props"]) for row in rows] for tenant, rows in found.items()} == {
        "main": [("2", {"secret": "y"})],
        "demo": [("3", {"page": "home"}), ("5", {"page": "cart"})],
    }
    for word in (b"mine", b"secret", b"main"):
        assert word not in _plain(letters["demo"].raw), word
    for word in (b"theirs", b"page", b"demo"):
        assert word not in _plain(letters["main"].raw), word
    assert path.ledgers() == {"main": Ledger(2, 1, aside=1), "demo": Ledger(3, 1, aside=2)}


def _plain(raw: bytes) -> bytes:
    """A frame's content uncompressed, with the names in its schema and its dictionaries."""
    batch = frame.decode(raw)
    dictionaries = [str(each.dictionary) for each in batch.columns if pa.types.is_dictionary(each.type)]
    return f"{batch.schema} {dictionaries} {batch.to_pylist()}".encode()


def test_with_one_tenant_nothing_is_split(build):
    theirs = build.of_tenant("demo", build.event("1"), build.event("2"))
    events = decode([build.record(theirs), build.record(theirs, 1)], needs=Needs({}))
    assert (events.tenants, events.owner) == (("demo",), None)
    ((tenant, part),) = by_tenant(events)
    assert tenant == "demo"
    assert part is events


def test_with_several_each_has_its_own_events_numbers_and_names(build):
    sent = [{**build.event(str(number), name=f"e{number % 3}"), "values": {f"v{number}": 1.0}} for number in range(6)]
    mixed = [build.of_tenant("ab"[number % 2], each)[0] for number, each in enumerate(sent)]
    events = only_fresh(decode([build.record(mixed)], needs=Needs({}, frozenset({("*", "*")}))), np.arange(6) == 5)
    found = {
        tenant: ([*part.table["row"]], [*part.values["metric"]], sorted(part.names))
        for tenant, part in by_tenant(events)
    }
    assert found == {
        "a": ([0, 2, 4], ["v0", "v2", "v4"], ["e0", "e1", "e2"]),
        "b": ([1, 3], ["v1", "v3", "v5"], ["e0", "e1"]),
    }


def test_names_that_only_the_dictionary_of_a_frame_has_are_no_tenants(build):
    mixed = build.record([build.event("1"), *build.of_tenant("demo", build.event("2"))])
    cut = frame.encode(frame.decode(mixed.payload).slice(1))
    events = decode([dataclasses.replace(mixed, payload=cut, events=1)], needs=Needs({}))
    assert (events.tenants, events.owner) == (("demo",), None)


@pytest.mark.parametrize("tenant", [pa.array([None, "demo"]).dictionary_encode(), pa.array([None, None], pa.string())])
def test_an_event_of_nobody_is_mains(build, tenant):
    record = build.record([build.event("1"), build.event("2")])
    batch = frame.decode(record.payload)
    place = batch.schema.get_field_index("tenant")
    tenant = tenant if pa.types.is_dictionary(tenant.type) else tenant.dictionary_encode()
    changed = frame.encode(batch.set_column(place, batch.schema.field(place), tenant))
    events = decode([dataclasses.replace(record, payload=changed)], needs=Needs({}))
    owners = ["main", "main"] if events.owner is None else [events.tenants[place] for place in events.owner]
    assert owners == ["main", tenant[1].as_py() or "main"]


tenants = st.sampled_from(["main", "demo", "a", "b"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sent=st.lists(st.tuples(tenants, st.integers(0, 9), st.booleans()), max_size=40),
    frame_size=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_for_any_mix_each_tenant_counts_its_distinct_ids_and_ledgers_add_up(
    path, build, tmp_path_factory, sent, frame_size, cuts
):
    path.folder = tmp_path_factory.mktemp("claims")
    path.records, path.results = [], []
    names = ("main", "demo", "a", "b")
    path.meters = plan(build, {"name": "views", "event": "view", "by": ["video"]}, tenants=names)
    plain = [resent(build, f"late{n}") if late else build.event(str(n), video="AB"[n % 2]) for _, n, late in sent]
    events = [build.of_tenant(tenant, each)[0] for (tenant, _, _), each in zip(sent, plain, strict=True)]
    frames = [events[n : n + frame_size] for n in range(0, len(events), frame_size)]
    path.process(frames, cuts=sorted(cut for cut in cuts if cut <= len(frames)))
    distinct = {(tenant, n) for tenant, n, late in sent if not late}
    for place, name in enumerate(names):
        own = Counter(("AB"[n % 2],) for tenant, n in distinct if tenant == name)
        assert path.series(2 + 10 * place) == dict(own)
    found = path.ledgers()
    accepted = Counter(tenant for tenant, _, _ in sent)
    asides = Counter(tenant for tenant, _ in {(tenant, n) for tenant, n, late in sent if late})
    for tenant, ledger in found.items():
        assert (ledger.accepted, ledger.aside, ledger.missing) == (accepted[tenant], asides[tenant], 0)
    assert reduce(Ledger.__add__, found.values(), Ledger()) == path.ledger()
    letters = [letter for result in path.results for letter in result.dead]
    assert sum(letter.events for letter in letters) == path.ledger().aside
    for letter in letters:
        assert {row["tenant"] for row in columns.rows(frame.decode(letter.raw))} == {letter.tenant}


def test_meters_that_fail_in_several_tenants_are_found_in_one_count(build, monkeypatch, path):
    meters = plan(build, {"name": "m", "event": "view"}, tenants=("main", "demo", "acme"))
    failing = {each.meter_id for each in meters if each.meter.name == "m"}
    matching, asked = module.matching, Counter()

    def fails(table, registered):
        asked[registered.meter_id] += 1
        if registered.meter_id in failing:
            raise ValueError("made to fail")
        return matching(table, registered)

    monkeypatch.setattr(module, "matching", fails)
    path.meters = meters
    events = [build.event("1"), *build.of_tenant("demo", build.event("2")), *build.of_tenant("acme", build.event("3"))]
    path.process([events])
    assert path.results[0].broken.keys() == failing
    assert set(asked.values()) == {1, 2}, "one count finds them all, a second one counts without them"


def test_a_property_that_only_another_tenants_meter_looks_at_is_not_decoded(build):
    meters = (
        *build.meters({"name": "m", "event": "view", "by": ["video"]}),
        *build.meters({"name": "m", "event": "view", "by": ["country"]}, tenant="demo", first=11),
    )
    mine = build.record([build.event("1", video="A", country="KR")])
    assert "text:country" not in decode([mine], needs=needs(meters)).table.columns
    theirs = build.record(build.of_tenant("demo", build.event("1", video="A", country="KR")), 1)
    both = decode([mine, theirs], needs=needs(meters)).table
    assert {"text:video", "text:country"} <= set(both.columns)


def test_frames_of_one_tenant_and_of_several_are_read_as_one_table(build, monkeypatch):
    """Those of `main` alone leave the column out. Frame by frame, the traffic of a demo would cost as many tables."""
    records = [
        build.record(events, place)
        for place, events in enumerate(
            ([build.event("1")], build.of_tenant("demo", build.event("2")), [build.event("3")])
        )
    ]
    assert ["tenant" in frame.decode(each.payload, only={"tenant", "event"}).schema.names for each in records] == [
        False,
        True,
        False,
    ]
    tables = []
    read = decoding._events
    monkeypatch.setattr(decoding, "_events", lambda table, names: tables.append(table.num_rows) or read(table, names))
    events = decode(records, needs=Needs({}))
    assert (tables, events.tenants, events.owner.tolist()) == ([3], ("demo", "main"), [1, 0, 1])
    assert decode(records[::2], needs=Needs({})).owner is None
