"""What a meter counts, beside a plain Python model: grains, weights, late events, percentiles, distinct counts."""

import math
from bisect import bisect_left
from collections import defaultdict
from decimal import Decimal, localcontext

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from tallymark.aggregates import sketch
from tallymark.events.labels import label
from tallymark.meters import from_mapping
from tallymark.meters.evaluate import number
from tallymark.meters.model import Meter
from tallymark.store import deltas

RECEIVED = "12:30:00"
"""of all events; so how late one is, its time says"""

with localcontext() as digits:
    digits.prec = 40
    BOUNDS = [float(Decimal(2) ** (Decimal(step) / 32)) for step in range(32)]


def bucket_of(value: float) -> int:
    """The slot of a number, by the words of the decision."""
    if abs(value) < 2.0**-1022:
        return 0
    half, power = math.frexp(abs(value))
    slot = 131_072 + 32 * (power - 1) + bisect_left(BOUNDS, 2 * half) - 1
    return slot if value > 0 else -slot


def register_of(text: str) -> tuple[int, int]:
    """(slot, rank) of a text, by the words of the decision."""
    bits = f"{xxh3_64_intdigest(text.encode()):064b}"
    return sketch.FIRST_REGISTER + int(bits[:12], 2), (bits[12:] + "1").index("1") + 1


class Cell:
    """What a series and bucket should hold."""

    def __init__(self) -> None:
        self.n = 0
        self.numbers: list[float] = []
        self.slots: defaultdict[int, int] = defaultdict(int)

    def add(self, value: float | None, meter: Meter, text: str) -> None:
        self.n += 1
        if value is not None:
            self.numbers.append(value)
            if any(name.startswith("p") for name in meter.compute):
                self.slots[bucket_of(value)] += 1
        if meter.distinct and text:
            slot, rank = register_of(text)
            self.slots[slot] = max(self.slots[slot], rank)


def model(events: list[dict], meter: Meter, set_id: int, received_ms: int) -> dict[tuple[int, str, int], Cell]:
    cells: defaultdict[tuple[int, str, int], Cell] = defaultdict(Cell)
    for event in events:
        if event["event"] not in meter.events:
            continue
        late = meter.late is not None and received_ms - event["time"] > meter.late.after_s * 1000
        then = meter.late.then if late and meter.late else None
        bucket = event["time"] // (1000 * meter.grain_s) * meter.grain_s
        props = {**event["props"], "event": event["event"]}
        labels = [label(props.get(name)) for name in meter.by]
        text = label(props.get(meter.distinct)) if meter.distinct else ""
        for more, given_number in numbers_of(event, meter):
            value = number(given_number)
            most = 1e280 if meter.decimals is None else 2**53 / 10**meter.decimals
            value = value if value is not None and abs(value) < most else None
            series = deltas.SEPARATOR.join([*labels, *more])
            if then in (None, "count"):
                cells[set_id, series, bucket].add(value, meter, text)
            if then == "aside":
                cells[-set_id, series, bucket].add(value, meter, text)
            elif then:
                cells[-set_id, deltas.SEPARATOR.join("" for _ in meter.labels), bucket].n += 1
    return dict(cells)


def numbers_of(event: dict, meter: Meter) -> list[tuple[list[str], object]]:
    if meter.each:
        return [([name], value) for name, value in event.get("values", {}).items()]
    if meter.weights:
        return [([], dict(meter.weights)[event["event"]])]
    return [([], event["props"].get(meter.value) if meter.value else event.get("value"))]


ODD = [0, -0.0, 1, 2, 2.0000000000000004, -3.5, 0.1, 9.9e279, 1e280, 1e300, 5e-324, -1e-310, 2.0**-1022]
values = st.sampled_from(ODD) | st.floats(-1e6, 1e6)
props = st.fixed_dictionaries(
    {},
    optional={
        "server": st.sampled_from(["web-1", "web-2", "", None, 7]),
        "ms": values | st.sampled_from(["20.5", "fast", "inf", "nan", True, None, "1e400", ""]),
        "user": st.sampled_from(["ann", "bob", "사용자", "", None, 7, 7.5, True]) | st.integers(0, 50),
    },
)
events = st.lists(
    st.fixed_dictionaries(
        {"event": st.sampled_from(["view", "like", "other"]), "at_s": st.integers(0, 1800), "props": props},
        optional={"value": values, "values": st.dictionaries(st.sampled_from(["cpu", "mem"]), values, max_size=2)},
    ),
    max_size=25,
)
numbered = st.sampled_from(
    [{}, {"value": "ms"}, {"each": "values"}, {"decimals": 2}, {"weights": {"view": 1, "like": 2.5}}]
)
meters = st.fixed_dictionaries(
    {
        "compute": st.sets(st.sampled_from(["count", "sum", "min", "max", "last", "p50", "p99.9"]), min_size=1).map(
            sorted
        )
    },
    optional={
        "by": st.sampled_from([["server"], ["event"], ["server", "user"]]),
        "distinct": st.just("user"),
        "grain": st.sampled_from(["1s", "10s", "1m"]),
        "late": st.fixed_dictionaries(
            {"after": st.sampled_from(["5m", "15m"]), "then": st.sampled_from(["count", "aside", "drop"])}
        ),
    },
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=events,
    meter=meters,
    numbered=numbered,
    cuts=st.sets(st.integers(1, 24)),
    slices=st.sampled_from([2, 500_000]),
)
def test_however_a_stretch_is_cut_a_meter_counts_what_the_model_counts(
    path, build, tmp_path_factory, monkeypatch, events, meter, numbered, cuts, slices
):
    for module in ("decode", "measure", "count"):
        monkeypatch.setattr(f"tallymark.pipeline.counting.{module}.MOST_VALUES", slices)
    definition = {"name": "m", "event": ["like", "view"], **meter, **numbered}
    sent = [
        {
            **{k: v for k, v in event.items() if k != "at_s"},
            "id": str(n),
            "time": build.at_ms("12:00:00") + event["at_s"] * 1000,
        }
        for n, event in enumerate(events)
    ]
    path.folder, path.records, path.results = tmp_path_factory.mktemp("claims"), [], []
    path.meters = build.meters(definition)
    path.process([[event] for event in sent], cuts=sorted(cut for cut in cuts if cut < len(sent)))
    checked = from_mapping(definition)
    expected = model(sent, checked, 2, build.at_ms(RECEIVED))
    found = deltas.merge(result.deltas for result in path.results).filter(pl.col("meter").abs() == 2)
    assert {row[:3] for row in found.iter_rows()} == expected.keys()
    for row in found.iter_rows(named=True):
        check(row, expected[row["meter"], row["series"], row["bucket_s"]], checked)


def check(row: dict, cell: Cell, meter: Meter) -> None:
    assert row["n"] == cell.n
    assert (sketch.to_map(row["sketch"]) if row["sketch"] else {}) == cell.slots
    if meter.decimals is None:
        if set(meter.compute) & {"sum", "min", "max"}:
            assert row["n_value"] == len(cell.numbers)
        if "min" in meter.compute:
            assert row["min"] == min(cell.numbers, default=None)
        if "max" in meter.compute:
            assert row["max"] == max(cell.numbers, default=None)
        if meter.weights and "sum" in meter.compute and cell.numbers:
            assert row["sum"] == sum(cell.numbers)


@pytest.mark.parametrize(
    ("then", "main", "late_set", "counted"),
    [
        ("count", {"a": 2, "b": 1}, {"": 1}, 3),
        ("aside", {"a": 1, "b": 1}, {"a": 1}, 3),
        ("drop", {"a": 1, "b": 1}, {"": 1}, 2),
    ],
)
def test_late_events_are_counted_put_aside_or_dropped_and_seen_either_way(path, build, then, main, late_set, counted):
    #  12:00         12:10             12:30
    #  |-----late------|-----------------|
    #                a  a               b  received
    late = {"after": "20m", "then": then}
    path.meters = build.meters({"name": "m", "event": "buy", "by": ["shop"], "late": late})[1:]
    sent = [("1", "12:09:59", "a"), ("2", "12:10:00", "a"), ("3", "12:29:00", "b")]
    path.process([[build.event(number, at, name="buy", shop=shop) for number, at, shop in sent]])
    assert {series: n for (series,), n in path.series(2).items()} == main
    assert {series: n for (series,), n in path.series(-2).items()} == late_set
    assert (path.ledger().counted, path.ledger().unmatched) == (counted, 3 - counted)


def test_a_dropped_event_is_counted_if_another_meter_takes_it(path, build):
    late = {"after": "20m", "then": "drop"}
    path.meters = build.meters({"name": "m", "event": "view", "late": late}, {"name": "n", "event": "view"})[1:]
    path.process([[build.event("1", "12:00:00"), build.event("2", "12:29:00")]])
    assert (path.counts(2), path.counts(3)) == ({"12:29": 1}, {"12:00": 1, "12:29": 1})
    assert (path.ledger().counted, path.ledger().unmatched) == (2, 0)


def test_late_events_of_a_meter_with_several_labels_are_in_one_series_in_which_all_are_empty(path, build):
    late = {"after": "20m", "then": "drop"}
    path.meters = build.meters({"name": "m", "event": "view", "by": ["a", "b", "c"], "late": late})
    path.process([[build.event("1", a="x", b="y", c="z")], [build.event("2", a="u")]], cuts=[1])
    assert path.series(-2) == {("", "", ""): 2}
    assert path.deltas(-2).select("n_value", "sum", "sketch").rows() == [(0, None, None)]


def test_each_meter_has_buckets_of_its_own_grain(path, build):
    definitions = [
        {"name": name, "event": "view", "grain": grain} for name, grain in zip("abc", ["1s", "10s", "1m"], strict=True)
    ]
    path.meters = build.meters(*definitions)
    path.process([[build.event("1", "12:00:07"), build.event("2", "12:00:59"), build.event("3", "12:00:07")]])
    start_s = build.at_ms("12:00:00") // 1000
    found = [dict(path.deltas(meter).select(pl.col("bucket_s") - start_s, "n").iter_rows()) for meter in (1, 2, 3, 4)]
    assert found == [{0: 3}, {7: 2, 59: 1}, {0: 2, 50: 1}, {0: 3}]


def test_events_count_with_their_weight(path, build):
    definition = {"name": "m", "weights": {"view": 1, "like": 3, "comment": 5}, "compute": ["count", "sum", "max"]}
    path.meters = build.meters(definition, {**definition, "name": "exact", "decimals": 1})
    names = ["view", "like", "like", "comment", "click"]
    path.process([[build.event(str(n), name=name, value=99) for n, name in enumerate(names)]])
    (row,) = path.deltas(2).iter_rows(named=True)
    assert (row["n"], row["sum"], row["max"]) == (4, 12.0, 5.0)
    (row,) = path.deltas(3).iter_rows(named=True)
    assert (row["n"], row["exact_low"]) == (4, 120)


def test_a_meter_with_a_sketch_over_no_matching_events_adds_nothing(path, build):
    path.meters = build.meters({"name": "m", "event": "buy", "compute": ["p99"], "distinct": "user", "where": "x = 1"})
    path.process([[build.event("1", name="buy", x=2)]])
    assert path.deltas(2).is_empty()
