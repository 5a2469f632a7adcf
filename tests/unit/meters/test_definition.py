"""Definitions: what makes a meter, what is refused and why, and that a definition survives the way there and back."""

import subprocess
import sys
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tallymark.meters
from tallymark.aggregates.functions import NAMES, percentile_name
from tallymark.meters import Meter, MeterError, from_mapping, to_mapping
from tallymark.meters.definition import KEYS
from tallymark.meters.late import CHOICES
from tallymark.meters.model import EVENTS, METRICS, Late

GOOD = [
    (
        {"name": "views", "event": "view", "by": ["video", "country"], "compute": ["count"]},
        Meter("views", ("view",), ("video", "country"), ("count",)),
    ),
    (
        {
            "name": "latency",
            "event": "rpc",
            "by": ["server"],
            "value": "ms",
            "where": "status='ok'",
            "compute": ["min"],
        },
        Meter("latency", ("rpc",), ("server",), ("min",), value="ms", where="status = 'ok'"),
    ),
    (
        {"name": "revenue", "event": ["sale", "refund"], "value": "amount", "decimals": 2, "compute": ["sum", "count"]},
        Meter("revenue", ("refund", "sale"), (), ("count", "sum"), value="amount", decimals=2),
    ),
    (
        {"name": "metrics", "event": "metrics", "by": ["server"], "each": "values", "compute": ["avg", "max", "min"]},
        Meter("metrics", ("metrics",), ("server",), ("min", "max", "avg"), each="values"),
    ),
    ({"name": "a", "event": "x"}, Meter("a", ("x",))),
    ({"name": "a", "event": "x", "by": "p, q"}, Meter("a", ("x",), ("p", "q"))),
    ({"name": "a", "event": "x", "by": []}, Meter("a", ("x",))),
    (
        {"name": "a", "event": "x", "by": ["event", "from", "k", "odd name", "a,b"]},
        Meter("a", ("x",), ("event", "from", "k", "odd name", "a,b")),
    ),
    ({"name": "a", "event": "x", "compute": "sum"}, Meter("a", ("x",), compute=("sum",))),
    ({"name": "a", "event": "x", "compute": ["sum"], "value": "value"}, Meter("a", ("x",), compute=("sum",))),
    ({"name": "a", "event": "x", "by": ["metric"]}, Meter("a", ("x",), ("metric",))),
    (
        {"name": "a", "event": "x", "compute": ["p99", "rate", "p99.9", "p10", "p5", "count"]},
        Meter("a", ("x",), compute=("count", "rate", "p5", "p10", "p99", "p99.9")),
    ),
    (
        {"name": "visitors", "event": "view", "by": ["video"], "distinct": "user"},
        Meter("visitors", ("view",), ("video",), ("count", "distinct"), distinct="user"),
    ),
    (
        {"name": "a", "event": "x", "distinct": "user", "compute": ["max"]},
        Meter("a", ("x",), compute=("max", "distinct"), distinct="user"),
    ),
    ({"name": "a", "event": "x", "grain": "1s"}, Meter("a", ("x",), grain_s=1)),
    ({"name": "a", "event": "x", "grain": "10s"}, Meter("a", ("x",), grain_s=10)),
    ({"name": "a", "event": "x", "grain": "1m"}, Meter("a", ("x",))),
    (
        {"name": "trending", "by": "video", "weights": {"view": 1, "like": 3, "comment": 5.5}},
        Meter(
            "trending",
            ("comment", "like", "view"),
            ("video",),
            ("count", "sum"),
            weights=(("comment", 5.5), ("like", 3), ("view", 1)),
        ),
    ),
    (
        {"name": "a", "event": ["y", "x"], "weights": {"x": -0.0, "y": -1e200}, "distinct": "u"},
        Meter("a", ("x", "y"), (), ("count", "sum", "distinct"), distinct="u", weights=(("x", 0.0), ("y", -1e200))),
    ),
    (
        {"name": "a", "weights": {"x": 0.25}, "decimals": 2, "compute": "sum"},
        Meter("a", ("x",), compute=("sum",), decimals=2, weights=(("x", 0.25),)),
    ),
    (
        {"name": "a", "event": "x", "late": {"after": "60m", "then": "aside"}},
        Meter("a", ("x",), late=Late(3600, "aside")),
    ),
    ({"name": "a", "event": "x", "late": {"then": "drop", "after": "1s"}}, Meter("a", ("x",), late=Late(1, "drop"))),
    (
        {"name": "a", "event": "x", "each": "values", "keep": "queried"},
        Meter("a", ("x",), each="values", keep="queried"),
    ),
    ({"name": "a", "event": "x", "keep": "all"}, Meter("a", ("x",))),
    ({"name": "a", "event": "x", "max_series": 10_000_000}, Meter("a", ("x",), max_series=10_000_000)),
    ({"name": "a" * 64, "event": "Video.play:done-1"}, Meter("a" * 64, ("Video.play:done-1",))),
]


@pytest.mark.parametrize(("mapping", "meter"), GOOD)
def test_a_good_definition_is_a_meter(mapping, meter):
    assert from_mapping(mapping) == meter
    assert from_mapping(to_mapping(meter)) == meter


def with_(**keys):
    return {"name": "views", "event": "view", **keys}


BAD = [
    # mapping, code, path, message
    (None, "wrong_type", "", "a meter is a mapping with keys like name and event"),
    (["views"], "wrong_type", "", "not a list"),
    ({"event": "view"}, "missing_key", "", "no 'name'; every meter needs a name"),
    ({"name": "views"}, "missing_key", "", "no 'event' in meter 'views'; say which event it counts"),
    (with_(computes=[]), "unknown_key", "computes", "unknown key 'computes' in meter 'views'; did you mean compute?"),
    (with_(zzzz=1), "unknown_key", "zzzz", "known: name, event, by, compute, value, each, where, decimals"),
    (with_(where=None), "empty", "where", "where in meter 'views' is empty"),
    (with_(name="Views"), "bad_name", "name", "'Views' is not a meter name: a lower-case letter, then up to"),
    (with_(name="1st"), "bad_name", "name", "a lower-case letter"),
    (with_(name="a" * 65), "bad_name", "name", "up to 63"),
    (with_(name="a\n"), "bad_name", "name", "a lower-case letter"),
    (with_(name=5), "bad_name", "name", "5 is not a meter name"),
    (with_(name="events"), "built_in", "name", "the meter 'events' is built in and cannot be redefined"),
    (with_(event="x y"), "bad_event", "event", "'x y' is not an event name"),
    (with_(event=["x", "y!"]), "bad_event", "event[1]", "'y!' is not an event name"),
    (with_(event="*"), "bad_event", "event", "only the built-in meter 'events' counts every event"),
    (with_(event=[]), "empty", "event", "event in meter 'views' is an empty list"),
    (with_(event=["x", "x"]), "repeated", "event[1]", "'x' is listed twice in event in meter 'views'"),
    (with_(event={"x": 1}), "wrong_type", "event", "or a list of them, not a mapping"),
    (with_(event=[f"e{i}" for i in range(65)]), "too_many", "event", "65 names in event in meter 'views', at most 64"),
    (with_(by=["a", "b", "a"]), "repeated", "by[2]", "'a' is listed twice in by"),
    (with_(by="a,,b"), "bad_property", "by", "1 to 128 characters"),
    (with_(by=""), "bad_property", "by", "1 to 128 characters"),
    (with_(by=["a\0"]), "bad_property", "by[0]", "no NUL"),
    (with_(by=["\ud800"]), "bad_property", "by[0]", "no NUL"),
    (with_(by=[200]), "wrong_type", "by[0]", "200 is not the name of a property; a text is needed (quote it)"),
    (with_(by=[f"k{i}" for i in range(17)]), "too_many", "by", "17 names in by in meter 'views', at most 16"),
    (with_(by=["metric"], each="values"), "reserved", "by[0]", "'metric' is the label that each adds"),
    (with_(compute=["count", "maxx"]), "unknown_aggregate", "compute[1]", "in meter 'views'; did you mean max?"),
    (with_(compute=["count", "p99.90"]), "unknown_aggregate", "compute[1]",
     "unknown aggregate 'p99.90' in meter 'views'; write p99.9"),
    (with_(compute=["p05"]), "unknown_aggregate", "compute[0]", "; write p5"),
    (with_(compute=["P99"]), "unknown_aggregate", "compute[0]", "; write p99"),
    (with_(compute=["percentile(99)"]), "unknown_aggregate", "compute[0]", "; write p99"),
    (with_(compute=["median"]), "unknown_aggregate", "compute[0]", "; write p50"),
    (with_(compute=["p0"]), "unknown_aggregate", "compute[0]", "'p0' in meter 'views'; the least value is min"),
    (with_(compute=["p100"]), "unknown_aggregate", "compute[0]", "; the greatest value is max"),
    (with_(compute=["p100.0"]), "unknown_aggregate", "compute[0]", "; the greatest value is max"),
    (with_(compute=["p101"]), "unknown_aggregate", "compute[0]", "over 0 and under 100, with at most 3 decimals"),
    (with_(compute=["p99.9999"]), "unknown_aggregate", "compute[0]", "with at most 3 decimals"),
    (with_(compute=["zzzz"]), "unknown_aggregate", "compute[0]",
     "; known: count, sum, min, max, avg, last, rate, distinct, p50, p99, p99.9"),
    (with_(compute=[f"p{i}" for i in range(1, 66)]), "too_many", "compute", "65 names in compute"),
    (with_(compute=["distinct"]), "missing_key", "compute[0]",
     "distinct in compute in meter 'views' needs the property it counts; add distinct: PROPERTY"),
    (with_(distinct=["user"]), "wrong_type", "distinct", "the property whose values are counted, not a list"),
    (with_(distinct=""), "bad_property", "distinct", "1 to 128 characters"),
    (with_(distinct=None, compute=["distinct"]), "empty", "distinct", "distinct in meter 'views' is empty"),
    (with_(distinct="metric", each="values"), "reserved", "distinct", "it cannot be in distinct"),
    (with_(grain="5s"), "bad_grain", "grain",
     "grain is the finest step that is kept: 1s, 10s or 1m, not '5s'; coarser steps are made from it"),
    (with_(grain=60), "bad_grain", "grain", "1s, 10s or 1m, not 60"),
    (with_(grain=["1s"]), "bad_grain", "grain", "not a list"),
    (with_(weights=3), "wrong_type", "weights", "a mapping from events to numbers, like {view: 1, like: 3}, not 3"),
    (with_(weights={}), "empty", "weights", "weights in meter 'views' is empty; write it like {view: 1, like: 3}"),
    (with_(weights={"view": "1"}), "bad_weight", "weights.view",
     "the weight of 'view' in meter 'views' is a finite number under 1e280, not '1'"),
    (with_(weights={"view": True}), "bad_weight", "weights.view", "not True"),
    (with_(weights={"view": None}), "bad_weight", "weights.view", "not nothing"),
    (with_(weights={"view": float("nan")}), "bad_weight", "weights.view", "not nan"),
    (with_(weights={"view": float("-inf")}), "bad_weight", "weights.view", "not -inf"),
    (with_(weights={"view": 1e280}), "bad_weight", "weights.view", "not 1e+280"),
    (with_(weights={"view": 10**5000}), "bad_weight", "weights.view", "not a number of more than 60 digits"),
    (with_(weights={"view": 2**53 // 100 + 1}, decimals=2), "bad_weight", "weights.view",
     "is too large for exact sums with 2 decimals; use fewer decimals or smaller weights"),
    (with_(weights={5: 1, "view": 1}), "wrong_type", "weights", "5 is not the name of an event"),
    (with_(weights={"view": 1, "like": 3}), "conflict", "weights.like",
     "'like' has a weight but is not in event in meter 'views'; add it there, or leave event out"),
    (with_(event=["view", "like"], weights={"view": 1}), "conflict", "weights",
     "the event 'like' in meter 'views' has no weight; every event needs one"),
    ({"name": "a", "weights": {"x y": 1}}, "bad_event", "weights.x y", "'x y' is not an event name"),
    ({"name": "a", "weights": {f"e{i}": 1 for i in range(65)}}, "too_many", "weights", "65 names in weights"),
    (with_(weights={"view": 1}, value="ms"), "conflict", "value", "so there is no `value`; drop one"),
    (with_(weights={"view": 1}, value="value"), "conflict", "value", "so there is no `value`; drop one"),
    (with_(weights={"view": 1}, each="values"), "conflict", "each", "so there is no `each`; drop one"),
    (with_(late="1h"), "wrong_type", "late", "late is a mapping like {after: 1h, then: count}, not '1h'"),
    (with_(late={"after": "1h"}), "missing_key", "late",
     "no 'then' in late in meter 'views'; write it like {after: 1h, then: count}"),
    (with_(late={"then": "drop"}), "missing_key", "late", "no 'after' in late"),
    (with_(late={"after": "1h", "then": "drop", "thn": 1}), "unknown_key", "late.thn",
     "unknown key 'thn' in late in meter 'views'; did you mean then?"),
    (with_(late={"after": "1.5h", "then": "drop"}), "bad_late", "late.after",
     "after is a whole number and s, m, h, d or w, like 90s, 5m, 1h or 7d, not '1.5h'"),
    (with_(late={"after": 3600, "then": "drop"}), "bad_late", "late.after", "not 3600"),
    (with_(late={"after": "0m", "then": "drop"}), "bad_late", "late.after", "at least 1s and at most 3660d, not '0m'"),
    (with_(late={"after": "3661d", "then": "drop"}), "bad_late", "late.after", "at most 3660d"),
    (with_(late={"after": "1h", "then": "dorp"}), "bad_late", "late.then",
     "then is count, aside or drop, not 'dorp'; did you mean drop?"),
    (with_(late={"after": "1h", "then": True}), "bad_late", "late.then", "count, aside or drop, not True"),
    (with_(each="values", keep="querried"), "bad_keep", "keep", "not 'querried'; did you mean queried?"),
    (with_(each="values", keep=["cpu"]), "bad_keep", "keep", "keep is all or queried, not a list"),
    (with_(keep="queried"), "conflict", "keep", "each: values, which is not there in meter 'views'; add each"),
    (with_(max_series=0), "bad_max_series", "max_series", "a whole number from 1 to 10,000,000, not 0"),
    (with_(max_series=10_000_001), "bad_max_series", "max_series", "not 10000001"),
    (with_(max_series=True), "bad_max_series", "max_series", "not True"),
    (with_(max_series="9"), "bad_max_series", "max_series", "not '9'"),
    (with_(compute=[]), "empty", "compute", "empty list"),
    (with_(compute=["sum", "sum"]), "repeated", "compute[1]", "'sum' is listed twice"),
    (with_(value=["a"]), "wrong_type", "value", "value is the name of the property"),
    (with_(value=""), "bad_property", "value", "1 to 128 characters"),
    (with_(value="a", each="values"), "conflict", "value", "drop one"),
    (with_(each="props"), "bad_each", "each", "each can only be 'values', not 'props'"),
    (with_(each=True), "bad_each", "each", "not True"),
    (with_(where=True), "wrong_type", "where", "where is an expression as text, not True"),
    (with_(where="a = b"), "bad_where", "where", "text needs quotes: 'b'"),
    (with_(where="metric = 'cpu'", each="values"), "reserved", "where", "before each"),
    (with_(decimals=10), "bad_decimals", "decimals", "from 0 to 9, not 10"),
    (with_(decimals=-1), "bad_decimals", "decimals", "not -1"),
    (with_(decimals=True), "bad_decimals", "decimals", "not True"),
    (with_(decimals="2"), "bad_decimals", "decimals", "not '2'"),
]  # fmt: skip


@pytest.mark.parametrize(("mapping", "code", "path", "message"), BAD)
def test_a_bad_definition_says_what_where_and_the_way_out(mapping, code, path, message):
    with pytest.raises(MeterError) as caught:
        from_mapping(mapping)
    (flaw,) = caught.value.flaws
    assert (flaw.code, flaw.path, flaw.place) == (code, path, "")
    assert message in flaw.detail
    assert (caught.value.code, caught.value.path) == (code, path)


def test_all_flaws_are_told_at_once():
    with pytest.raises(MeterError) as caught:
        from_mapping({"name": "V", "event": "x y", "by": [1], "compute": ["p0", "summ"], "where": "(", "decimal": 2})
    paths = sorted(flaw.path for flaw in caught.value.flaws)
    assert paths == ["by[0]", "compute[0]", "compute[1]", "decimal", "event", "name", "where"]
    assert str(caught.value).count("\n") == 8  # seven flaws, one with two lines for the caret


def test_nested_flaws_are_told_with_the_others():
    with pytest.raises(MeterError) as caught:
        from_mapping(
            {
                "name": "a",
                "event": ["x", "y"],
                "grain": "1h",
                "late": {"after": "soon", "then": "later", "when": 1},
                "weights": {"x": "1", "z": 1},
                "max_series": -1,
            }
        )
    paths = sorted(flaw.path for flaw in caught.value.flaws)
    assert paths == ["grain", "late.after", "late.then", "late.when", "max_series", "weights", "weights.x", "weights.z"]


def test_a_misspelt_weight_is_told_with_the_event_it_was_meant_for():
    with pytest.raises(MeterError) as caught:
        from_mapping({"name": "a", "event": ["like", "view"], "weights": {"view": 1, "lkie": 3}})
    assert [flaw.detail for flaw in caught.value.flaws] == [
        "'lkie' has a weight but is not in event in meter 'a'; did you mean like?",
        "the event 'like' in meter 'a' has no weight; every event needs one",
    ]


def test_a_message_does_not_repeat_a_megabyte():
    with pytest.raises(MeterError) as caught:
        from_mapping({"name": "x" * 10**6, "y" * 10**6: 1, "event": "z" * 10**6, "value": "v" * 10**6})
    assert len(str(caught.value)) < 1_500


def test_the_name_may_come_from_the_address():
    assert from_mapping({"event": "x"}, name="a") == Meter("a", ("x",))
    assert from_mapping({"event": "x", "name": "a"}, name="a") == Meter("a", ("x",))
    with pytest.raises(MeterError, match="the definition says 'b', but the address says 'a'"):
        from_mapping({"event": "x", "name": "b"}, name="a")
    with pytest.raises(MeterError, match="'A' is not a meter name"):
        from_mapping({"event": "x"}, name="A")


def test_the_built_in_meter_can_be_sent_back_but_not_changed():
    shown = to_mapping(EVENTS)
    assert shown == {"name": "events", "event": "*", "by": ["event"], "compute": ["count"]}
    assert from_mapping(shown) == EVENTS
    del shown["name"]
    assert from_mapping(shown, name="events") == EVENTS
    with pytest.raises(MeterError, match="cannot be redefined"):
        from_mapping({"event": "x"}, name="events")


def test_the_documented_meter_of_metrics_is_the_built_in_one():
    written = {
        "name": "metrics",
        "event": "metrics",
        "by": ["server"],
        "each": "values",
        "compute": ["avg", "max", "min", "sum", "count"],
    }
    assert from_mapping(written) == METRICS


def test_only_what_counts_differently_is_another_definition():
    written = {
        "name": "a",
        "event": ["x", "y"],
        "by": ["p", "q"],
        "compute": ["sum", "count"],
        "where": "b=1 and c=2.0",
    }
    same = {**written, "event": ["y", "x"], "compute": ["count", "sum"], "where": "(b = 1) AND (c = 2)"}
    assert from_mapping(written) == from_mapping(same)
    for other in (
        {"by": ["q", "p"]},
        {"event": "x"},
        {"where": "b = 1"},
        {"decimals": 0},
        {"value": "v"},
        {"grain": "1s"},
    ):
        assert from_mapping(written) != from_mapping({**written, **other})


property_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
definitions = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[a-z][a-z0-9_]{0,63}", fullmatch=True).filter(lambda name: name != "events"),
        "event": st.lists(
            st.from_regex(r"[A-Za-z_][A-Za-z0-9_.:-]{0,20}", fullmatch=True), min_size=1, max_size=4, unique=True
        ),
    },
    optional={
        "by": st.lists(property_names.filter(lambda name: name != "metric"), max_size=16, unique=True),
        "compute": st.lists(
            st.sampled_from([name for name in NAMES if name != "distinct"])
            | st.integers(1, 99_999).map(lambda n: percentile_name(Decimal(n) / 1000)),
            min_size=1,
            max_size=20,
            unique=True,
        ),
        "where": st.sampled_from(["a=1", "not(b in(1,'x'))", "a is null OR \"b c\" < 'z'"]),
        "decimals": st.integers(0, 9),
        "distinct": property_names.filter(lambda name: name != "metric"),
        "grain": st.sampled_from(["1s", "10s", "1m"]),
        "late": st.fixed_dictionaries(
            {
                "after": st.from_regex(r"[1-9][0-9]{0,2}[smhdw]", fullmatch=True).filter(lambda a: a[-1] != "w"),
                "then": st.sampled_from(CHOICES),
            }
        ),
        "max_series": st.integers(1, 10_000_000),
    },
)
weight = st.integers(-(10**6), 10**6) | st.floats(-(10**6), 10**6)
numbers = (
    st.sampled_from([{}, {"each": "values"}, {"each": "values", "keep": "queried"}])
    | property_names.map(lambda name: {"value": name})
    | st.lists(weight, min_size=4, max_size=4).map(lambda each: {"weights": each})
)


@given(definitions, numbers)
def test_a_definition_survives_the_way_there_and_back(definition, number):
    if "weights" in number:
        number = {"weights": dict(zip(definition["event"], number["weights"], strict=False))}
    meter = from_mapping(definition | number)
    assert from_mapping(to_mapping(meter)) == meter
    assert to_mapping(from_mapping(to_mapping(meter))) == to_mapping(meter)
    assert from_mapping(msgspec.json.decode(msgspec.json.encode(to_mapping(meter)))) == meter
    assert msgspec.json.decode(msgspec.json.encode(meter), type=Meter) == meter  # as stores keep it


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*KEYS, "x"]), json))
def test_any_json_is_a_meter_or_an_error(mapping):
    try:
        meter = from_mapping(mapping)
    except MeterError:
        return
    assert from_mapping(to_mapping(meter)) == meter


def test_labels_are_the_keys_and_the_metric():
    assert Meter("a", ("x",), ("p",), each="values").labels == ("p", "metric")
    assert Meter("a", ("x",), ("p",)).labels == ("p",)


def test_the_public_names_are_sorted_and_there():
    assert tallymark.meters.__all__ == sorted(tallymark.meters.__all__)
    assert all(hasattr(tallymark.meters, name) for name in tallymark.meters.__all__)


def test_roles_without_yaml_or_polars_can_import_the_definitions():
    code = "import sys, tallymark.meters; sys.exit(bool({'yaml', 'polars', 'pyspark'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
