"""A stretch with very many named numbers is counted slice by slice, to the same result."""

import dataclasses

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallymark.pipeline.counting import count as counting
from tallymark.pipeline.counting import decode as decoding
from tallymark.pipeline.counting import measure as measuring
from tallymark.pipeline.counting.needs import needs
from tallymark.store import deltas

GAUGES = {"name": "gauges", "event": "metrics", "by": ["server"], "each": "values", "compute": ["sum", "min", "max"]}


@pytest.fixture
def small(monkeypatch):
    """Slices of five named numbers."""
    for module in (decoding, counting, measuring):
        monkeypatch.setattr(module, "MOST_VALUES", 5)


def snapshot(build, number: str, values: int, **more):
    numbers = {f"m{index}": float(index + len(number)) for index in range(values)}
    return {**build.event(number, name="metrics", server="web-1"), "values": numbers, **more}


def test_a_slice_ends_with_the_record_that_fills_it(build, small):
    sizes = [2, 2, 2, 0, 9, 1, 1]
    records = [build.record([snapshot(build, str(n), size)], n) for n, size in enumerate(sizes)]
    found = list(decoding.slices(records, needs=needs(build.meters(GAUGES))))
    assert [part.values.height for part in found] == [6, 9, 2]
    assert [part.accepted for part in found] == [3, 2, 2]
    assert [part.values["row"].to_list() for part in found] == [[0, 0, 1, 1, 2, 2], [1] * 9, [0, 1]]


@pytest.mark.parametrize("records", [0, 5])
def test_a_stretch_that_ends_with_a_full_slice_has_no_empty_one_and_an_empty_stretch_has_one(build, small, records):
    given_records = [build.record([snapshot(build, str(n), 5)], n) for n in range(records)]
    found = list(decoding.slices(given_records, needs=needs(build.meters(GAUGES))))
    assert [part.accepted for part in found] == ([1] * records or [0])


def test_what_is_joined_and_grouped_at_one_time_is_bounded_also_within_a_record(path, build, small, monkeypatch):
    heights = []
    aggregated = measuring._aggregated

    def seen(rows, registered, *, set_id):
        if registered.meter.each:
            heights.append(rows.height)
        return aggregated(rows, registered, set_id=set_id)

    monkeypatch.setattr(measuring, "_aggregated", seen)
    path.meters = build.meters(GAUGES)
    path.process([[snapshot(build, "a", 13), snapshot(build, "b", 4)], [snapshot(build, "c", 3)]])
    assert (sum(heights), max(heights)) == (20, 5)


def test_what_waits_to_be_merged_is_bounded(small):
    """Twenty slices of the same four rows: beside these no more than one slice waits."""
    tally = counting.Tally()
    part = pl.DataFrame({"meter": 1, "series": list("abcd"), "bucket_s": 0, "n": 1}).select(
        *("meter", "series", "bucket_s", "n"), *(pl.lit(None).alias(name) for name in deltas.SCHEMA.names()[4:])
    )
    part = part.cast(dict(deltas.SCHEMA))
    for _ in range(20):
        tally.add([part])
        assert sum(each.height for each in tally._parts) <= 4 + 5
    assert tally.deltas().sort("series")["n"].to_list() == [20, 20, 20, 20]


copies = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=12)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=copies, frame_size=st.integers(1, 4), cuts=st.lists(st.integers(0, 6), max_size=2))
def test_slices_change_no_number(path, build, tmp_path_factory, monkeypatch, sent, frame_size, cuts):
    """Copies across slices are duplicates, also in the stretch after it; late ones are set aside."""
    path.meters = build.meters(GAUGES)
    long_ago = {"resent": build.at_ms("00:00:00")}
    events = [snapshot(build, str(n), n, **(long_ago if late else {})) for n, late in sent]
    frames = [events[n : n + frame_size] for n in range(0, len(events), frame_size)]

    def outcome(most_values: int):
        for module in (decoding, counting, measuring):
            monkeypatch.setattr(module, "MOST_VALUES", most_values)
        path.folder = tmp_path_factory.mktemp("claims")
        path.records, path.results = [], []
        path.process(frames, cuts=sorted(cut for cut in cuts if cut <= len(frames)))
        found = [path.deltas(meter).sort("series", "bucket_s").rows() for meter in (1, 2)]
        return found, path.ledger(), [result.received for result in path.results], path.results[-1].dead

    assert outcome(3) == outcome(10**9)


def test_a_meter_that_fails_on_one_slice_counts_nothing_of_the_stretch(path, build, small, monkeypatch):
    measure, tried = counting.measure, []

    def fails_on_the_second_slice(events, matched, registered):
        if registered.meter.name == "gauges":
            tried.append(events.accepted)
            if len(tried) == 2:
                raise RuntimeError("no such thing")
        yield from measure(events, matched, registered)

    monkeypatch.setattr(counting, "measure", fails_on_the_second_slice)
    path.meters = build.meters(GAUGES)
    path.process([[snapshot(build, str(n), 5)] for n in range(4)])
    (result,) = path.results
    assert len(tried) == 2
    assert (result.broken, result.missed) == ({2: "RuntimeError: no such thing"}, {2: 4})
    assert path.deltas(2).is_empty()
    assert path.counts(1) == {"12:00": 4}


def test_what_only_a_meter_took_that_failed_on_a_later_slice_is_unmatched(path, build, small, monkeypatch):
    measure, tried = counting.measure, []

    def fails_on_the_second_slice(events, matched, registered):
        tried.append(registered.meter.name)
        if tried[-1] == "gauges" and tried.count("gauges") == 2:
            raise RuntimeError("no such thing")
        yield from measure(events, matched, registered)

    monkeypatch.setattr(counting, "measure", fails_on_the_second_slice)
    every, gauges = build.meters(GAUGES)
    path.meters = (gauges,)
    stretch = [[snapshot(build, str(n), 5)] for n in (0, 1, 1, 2)]
    path.process(stretch)
    ledger = path.ledger()
    assert (ledger.counted, ledger.unmatched, ledger.duplicate, ledger.missing) == (0, 3, 1, 0)
    assert (path.results[0].broken.keys(), path.results[0].missed) == ({2}, {2: 3})
    assert path.results[0].deltas.is_empty()
    # Its ids were claimed once: copies are duplicates, what is new is not.
    path.meters, path.broken = (every,), (gauges,)
    path.process([*stretch, [snapshot(build, "3", 5)]])
    assert (path.ledger().counted, path.ledger().duplicate) == (1, 5)


def test_the_ids_of_all_slices_are_known_to_the_next_stretch(path, build, small):
    path.meters = build.meters(GAUGES)
    first = [[snapshot(build, str(n), 5)] for n in range(4)]
    path.process(first).process(first)
    assert (path.ledger().counted, path.ledger().duplicate) == (4, 4)
    assert dataclasses.asdict(path.stretch(4, 8).ledger) == dataclasses.asdict(path.results[-1].ledger)
