"""What one stretch adds: the counting itself, without Spark."""

import dataclasses
import math
from collections import Counter
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallymark.aggregates import exact
from tallymark.pipeline.counting import count as module
from tallymark.pipeline.counting.claims import Claims
from tallymark.pipeline.counting.history import LogHistory
from tallymark.testing import MemoryLog


def test_a_retried_event_counts_once_even_in_a_later_stretch(path, build):
    #  12:00               12:01
    #  [-------------------)[----------
    #   a      a (retry)      b
    event = build.event
    path.process([[event("a", "12:00:01")], [event("a", "12:00:01"), event("b", "12:01:01")]], cuts=[1])
    assert path.counts() == {"12:00": 1, "12:01": 1}
    assert path.ledger().duplicate == 1


def test_a_copy_within_the_same_frame_counts_once(path, build):
    path.process([[build.event("a"), build.event("a"), build.event("b")]])
    assert path.counts() == {"12:00": 2}


def test_the_same_id_under_another_event_name_is_another_event(path, build):
    path.process([[build.event("a", name="view"), build.event("a", name="click")]])
    assert path.series(1) == {("click",): 1, ("view",): 1}


def test_a_copy_after_the_horizon_counts_again(path, build):
    path.process([[build.event("a")], [build.event("a")], [build.event("a")]], gap_ms=600_001)
    assert path.ledger().counted == 3


def test_a_late_event_is_counted_in_its_own_minute(path, build):
    path.process([[build.event("a", "02:15:59"), build.event("b", "12:29:59")]])
    assert path.counts() == {"02:15": 1, "12:29": 1}
    assert path.ledger().late == 1


def test_labels_are_text_whatever_kind_the_property_has(path, build):
    path.meters = build.meters({"name": "codes", "event": "view", "by": ["status"]})
    kinds = [200, 200.0, "200", True, "true", 0.5, "", None, 1e300]
    # One kind a frame makes typed columns; all in one frame makes strays.
    frames = [[build.event(f"t{n}", status=kind)] for n, kind in enumerate(kinds)]
    path.process([*frames, [build.event(f"m{n}", status=kind) for n, kind in enumerate(kinds)]])
    assert path.series(2) == {("200",): 6, ("true",): 4, ("0.5",): 2, ("",): 4, ("1e+300",): 2}


def test_a_series_has_its_labels_in_the_order_of_the_meter(path, build):
    path.meters = build.meters({"name": "views", "event": "view", "by": ["video", "country"]})
    path.process([[build.event("1", video="A", country="KR"), build.event("2", country="KR"), build.event("3")]])
    assert path.series(2) == {("A", "KR"): 1, ("", "KR"): 1, ("", ""): 1}


def test_values_are_counted_apart_from_events(path, build):
    path.meters = build.meters({"name": "m", "event": "rpc", "value": "ms", "compute": ["count", "sum", "min", "max"]})
    sent = [("1", 10), ("2", None), ("3", "20.5"), ("4", "fast"), ("5", -3), ("6", True)]
    path.process([[build.event(number, name="rpc", ms=ms)] for number, ms in sent])
    (row,) = path.deltas(2).iter_rows(named=True)
    assert (row["n"], row["n_value"], row["sum"], row["min"], row["max"]) == (6, 3, 27.5, -3.0, 20.5)


def test_a_minute_without_values_has_null_aggregates_not_zero(path, build):
    path.meters = build.meters({"name": "m", "event": "rpc", "value": "ms", "compute": ["sum", "min"]})
    path.process([[build.event("1", name="rpc")]])
    (row,) = path.deltas(2).iter_rows(named=True)
    assert (row["n"], row["n_value"], row["sum"], row["min"]) == (1, 0, None, None)


def test_money_is_summed_as_whole_units(path, build):
    path.meters = build.meters({"name": "m", "event": "sale", "compute": ["sum"], "decimals": 2})
    path.process([[build.event(str(n), name="sale", value=0.1) for n in range(1000)]])
    (row,) = path.deltas(2).iter_rows(named=True)
    assert (row["exact_high"], row["exact_low"], row["sum"]) == (0, 10_000, None)


@pytest.mark.parametrize("amount", [9e13, -9e13])
def test_a_stretch_of_the_largest_amounts_is_summed_to_the_cent(path, build, amount):
    path.meters = build.meters({"name": "m", "event": "sale", "compute": ["sum"], "decimals": 2})
    path.process([[build.event(str(n), name="sale", value=amount) for n in range(1100)]])
    (row,) = path.deltas(2).iter_rows(named=True)
    assert exact.whole(row["exact_high"], row["exact_low"]) == 1100 * 100 * int(amount)  # beyond 64 bits


@pytest.mark.parametrize("amount", [90_071_992_547_409.92, -1e15, 1e300])  # 2^53 cents and more
def test_a_value_too_large_to_be_exact_counts_as_no_value(path, build, amount):
    path.meters = build.meters({"name": "m", "event": "sale", "compute": ["sum", "min", "max"], "decimals": 2})
    path.process([[build.event("1", name="sale", value=amount), build.event("2", name="sale", value=1.25)]])
    (row,) = path.deltas(2).iter_rows(named=True)
    assert (row["n"], row["n_value"], row["exact_high"], row["exact_low"]) == (2, 1, 0, 125)
    assert (row["min"], row["max"]) == (1.25, 1.25)


def units(path, build, tmp_path_factory, decimals: int, amounts: list[float]) -> list[int | None]:
    """What the real path, from JSON on, makes of each amount."""
    path.folder, path.records, path.results = tmp_path_factory.mktemp("claims"), [], []
    path.meters = build.meters({"name": "m", "event": "sale", "by": ["n"], "compute": ["sum"], "decimals": decimals})
    path.process([[build.event(str(n), name="sale", value=each, n=n) for n, each in enumerate(amounts)]])
    found = {int(row["series"]): row for row in path.deltas(2).iter_rows(named=True)}
    return [exact.whole(found[n]["exact_high"], found[n]["exact_low"]) for n in range(len(amounts))]


def as_written(amount: float, decimals: int) -> int:
    return int(Decimal(repr(amount)).scaleb(decimals).to_integral_value())


# Whole units, of every magnitude up to where floats lie a unit apart.
magnitudes = st.integers(0, 52).flatmap(lambda bits: st.integers(2**bits // 2, 2**bits)) | st.integers(2**51, 2**52)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(decimals=st.integers(0, 9), wholes=st.lists(magnitudes, min_size=1, max_size=30), sign=st.sampled_from([1, -1]))
def test_an_amount_is_taken_exactly_as_it_was_written(path, build, tmp_path_factory, decimals, wholes, sign):
    amounts = [float(Decimal(sign * whole).scaleb(-decimals)) for whole in wholes]
    assert [as_written(each, decimals) for each in amounts] == [sign * whole for whole in wholes]
    assert units(path, build, tmp_path_factory, decimals, amounts) == [sign * whole for whole in wholes]


def test_beyond_the_end_of_exactness_the_nearest_unit_is_taken(path, build, tmp_path_factory):
    amounts = [42611129941451.77, 22517998136852.49, 45035996273704.97, 70368744177664.02, 90071992547409.89]
    expected = [as_written(each, 2) for each in amounts]
    assert expected[:2] == [4261112994145177, 2251799813685249]
    assert units(path, build, tmp_path_factory, 2, amounts) == expected
    assert units(path, build, tmp_path_factory, 2, [90071992547409.92]) == [None]


@pytest.mark.parametrize(
    ("decimals", "amounts", "expected"),
    [
        (0, [0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 0.49, 1.51, -2.51], [0, 2, 2, 4, 0, -2, -2, 0, 2, -3]),
        (1, [0.25, 0.75, 1.25, -1.25, -1.75], [2, 8, 12, -12, -18]),
        (2, [0.125, 0.375, 1.125, -1.375, 2.5], [12, 38, 112, -138, 250]),
    ],
)
def test_what_lies_half_way_goes_to_the_even_unit(path, build, tmp_path_factory, decimals, amounts, expected):
    assert units(path, build, tmp_path_factory, decimals, amounts) == expected


huge = st.sampled_from([1.7e308, -1.7e308, 9.9e279, -9.9e279, 1e280, 1.0, -2.5])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(huge, min_size=1, max_size=12), cuts=st.lists(st.integers(0, 12), max_size=3))
def test_no_values_in_any_order_and_cut_make_a_sum_infinite(path, build, tmp_path_factory, sent, cuts):
    path.folder, path.records, path.results = tmp_path_factory.mktemp("claims"), [], []
    path.meters = build.meters({"name": "m", "event": "rpc", "compute": ["sum", "min", "max"]})
    frames = [[build.event(str(n), name="rpc", value=value)] for n, value in enumerate(sent)]
    path.process(frames, cuts=sorted(cut for cut in cuts if cut <= len(frames)))
    (row,) = path.deltas(2).iter_rows(named=True)
    usable = [value for value in sent if abs(value) < 1e280]
    assert (row["n"], row["n_value"]) == (len(sent), len(usable))
    assert (row["min"], row["max"]) == (min(usable, default=None), max(usable, default=None))
    assert (row["sum"] is None) == (not usable)
    assert row["sum"] is None or abs(row["sum"] - math.fsum(usable)) <= 1e265


def test_where_keeps_only_what_is_true(path, build):
    definition = {"name": "m", "event": ["view", "click"], "where": "country in ('KR', 'JP') and age >= 18"}
    path.meters = build.meters(definition)
    sent = [
        build.event("1", country="KR", age=18),
        build.event("2", country="KR", age="17"),
        build.event("3", country="US", age=40),
        build.event("4", country="JP"),
        build.event("5", country="JP", age="99", name="click"),
        build.event("6", country="JP", age="99", name="other"),
    ]
    path.process([sent])
    assert path.counts(2) == {"12:00": 2}


def test_each_counts_every_named_number_under_its_name(path, build):
    path.meters = build.meters(
        {"name": "m", "event": "metrics", "by": ["server"], "each": "values", "compute": ["min", "max"]}
    )
    snapshots = [
        {**build.event("1", name="metrics", server="web-1"), "values": {"cpu": 0.4, "queue": 17}},
        {**build.event("2", name="metrics", server="web-1"), "values": {"cpu": 0.6}},
        build.event("3", name="metrics", server="web-2"),
    ]
    path.process([snapshots[:1], snapshots[1:], [build.event("4", name="other")]])
    rows = {row["series"]: (row["n"], row["min"], row["max"]) for row in path.deltas(2).iter_rows(named=True)}
    assert rows == {"web-1\0cpu": (2, 0.4, 0.6), "web-1\0queue": (1, 17.0, 17.0)}


def test_duplicates_do_not_add_their_named_numbers_again(path, build):
    path.meters = build.meters({"name": "m", "event": "metrics", "each": "values", "compute": ["sum"]})
    first = {**build.event("1", name="metrics"), "values": {"a": 1.0}}
    second = {**build.event("2", name="metrics"), "values": {"a": 10.0, "b": 5.0}}
    path.process([[first, first, second], [first, second]])
    rows = {row["series"]: row["sum"] for row in path.deltas(2).iter_rows(named=True)}
    assert rows == {"a": 11.0, "b": 5.0}


def test_a_frame_that_does_not_decode_becomes_a_dead_letter_and_the_rest_is_counted(path, build):
    path.process([[build.event("a")], [build.event("b"), build.event("c")], [build.event("d")]])
    whole = path.records[1]
    path.records[1] = dataclasses.replace(whole, payload=whole.payload[:100])
    path.results = [path.stretch(0, 3)]
    (letter,) = path.results[0].dead
    assert (letter.reason, letter.partition, letter.offset, letter.events) == ("undecodable", 0, 1, 2)
    assert letter.raw == whole.payload[:100]
    ledger = path.ledger()
    assert (ledger.accepted, ledger.counted, ledger.dead, ledger.missing) == (4, 2, 2, 0)


def test_what_was_dead_claims_nothing_so_that_it_can_be_put_back(path, build):
    path.process([[build.event("a")]])
    path.records[0] = dataclasses.replace(path.records[0], payload=b"damaged")
    for file in path.folder.iterdir():
        file.unlink()
    path.results = [path.stretch(0, 1)]
    path.process([[build.event("a")]])
    assert path.ledger().counted == 1


def test_a_meter_that_fails_is_named_and_stops_no_other(path, build, monkeypatch):
    path.meters = build.meters({"name": "bad", "event": "view", "by": ["x"]}, {"name": "good", "event": "view"})
    measure = module.measure

    def fails_for_the_bad_one(events, matched, registered):
        if registered.meter.name == "bad":
            raise RuntimeError("no such thing")
        return measure(events, matched, registered)

    monkeypatch.setattr(module, "measure", fails_for_the_bad_one)
    path.process([[build.event("a"), build.event("b"), build.event("b"), build.event("c", name="click")]])
    assert path.results[0].broken == {2: "RuntimeError: no such thing"}
    assert path.results[0].missed == {2: 2}  # fresh, and of a name that it counts
    assert path.counts(3) == {"12:00": 2}


@pytest.mark.parametrize("error", [MemoryError("no room"), OSError(24, "too many open files")])
def test_a_machine_that_is_short_of_something_fails_the_task_and_no_meter(path, build, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(module, "measure", fails)
    with pytest.raises(type(error)):
        path.process([[build.event("a")]])


def test_at_the_first_attempt_a_meter_that_fails_fails_the_task(path, build, monkeypatch):
    """It may be anything: the range is tried again before the meter is blamed."""

    def panics(*_):
        raise pl.exceptions.PanicException("index out of bounds")

    path.process([[build.event("a")]])
    monkeypatch.setattr(module, "measure", panics)
    history = LogHistory(MemoryLog(1), 0)
    with (
        Claims(path.folder, 1, start=0, end=0, horizon_ms=1, history=history) as claims,
        pytest.raises(module.MeterFailed, match="meter events: PanicException: index out of bounds"),
    ):
        module.count(path.records, claims=claims, meters=path.meters)


def test_of_a_meter_that_is_broken_only_what_it_misses_is_counted(path, build):
    every, views, clicks = build.meters({"name": "v", "event": ["view", "buy"]}, {"name": "c", "event": "click"})
    path.meters, path.broken = (views,), (every, clicks)
    path.process([[build.event("a"), build.event("b", name="buy")], [build.event("a"), build.event("d", name="other")]])
    assert path.results[0].missed == {every.meter_id: 3, clicks.meter_id: 0}
    assert path.results[0].broken == {}
    assert path.counts(views.meter_id) == {"12:00": 2}


def test_an_empty_stretch_still_has_a_result(path):
    assert path.stretch(0, 0).ledger.accepted == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sent=st.lists(st.integers(0, 15), max_size=40),
    frame_size=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_for_any_order_split_and_repetition_counts_equal_a_counter_over_distinct_ids(
    path, build, tmp_path_factory, sent, frame_size, cuts
):
    path.folder = tmp_path_factory.mktemp("claims")
    path.records, path.results = [], []
    path.meters = build.meters({"name": "views", "event": "view", "by": ["video"]})
    # What an id means must not depend on which copy came first.
    events = [build.event(str(n), f"12:0{n % 4}:00", video="AB"[n % 2]) for n in sent]
    frames = [events[n : n + frame_size] for n in range(0, len(events), frame_size)]
    path.process(frames, cuts=sorted(cut for cut in cuts if cut <= len(frames)))
    distinct = set(sent)
    assert path.series(2) == dict(Counter(("AB"[n % 2],) for n in distinct))
    assert path.counts() == dict(Counter(f"12:0{n % 4}" for n in distinct))
    ledger = path.ledger()
    assert ledger.accepted == len(sent) == ledger.counted + ledger.duplicate
    assert ledger.missing == 0


@pytest.mark.parametrize("number", [0.1, 1e-7, 123456789.125, -0.5, 2**53 + 2, 1e22, 5e-324])
def test_float_labels_agree_with_the_rule_for_one_value(path, build, number):
    from tallymark.events.labels import label

    path.meters = build.meters({"name": "m", "event": "view", "by": ["x"]})
    path.process([[build.event("1", x=float(number))]])
    assert path.series(2) == {(label(float(number)),): 1}


def test_last_is_the_value_with_the_latest_event_time(path, build):
    path.meters = build.meters({"name": "level", "event": "level", "value": "cm", "compute": ["last"]})
    sent = [("12:00:30", 1.0), ("12:00:50", 4.0), ("12:00:50", 3.0), ("12:00:10", 9.0), ("12:00:55", None)]
    events = [build.event(f"{n}", at, name="level", cm=cm) for n, (at, cm) in enumerate(sent)]
    path.process([events[:2], events[2:]])
    (row,) = path.deltas(2).iter_rows(named=True)
    assert (row["last"], row["last_ms"], row["n"], row["n_value"]) == (4.0, build.at_ms("12:00:50"), 5, 4)
