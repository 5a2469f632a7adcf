"""Definitions: what makes a meter, what is refused and why, and that a definition survives the way there and back."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tallymark.meters
from tallymark.meters import AGGREGATES, Meter, MeterError, from_mapping, to_mapping
from tallymark.meters.definition import KEYS
from tallymark.meters.model import EVENTS, METRICS

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
    (with_(distinct="user"), "not_yet", "distinct", "'distinct' in meter 'views' comes in a later version"),
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
    (with_(compute=["p99"]), "not_yet", "compute[0]", "'p99' in meter 'views' comes in a later version; now there"),
    (with_(compute=["p99.9"]), "not_yet", "compute[0]", "later version"),
    (with_(compute=["rate"]), "not_yet", "compute[0]", "later version"),
    (with_(compute=["p100"]), "unknown_aggregate", "compute[0]", "unknown aggregate 'p100'"),
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
        from_mapping({"name": "V", "event": "x y", "by": [1], "compute": ["p50", "summ"], "where": "(", "decimal": 2})
    paths = sorted(flaw.path for flaw in caught.value.flaws)
    assert paths == ["by[0]", "compute[0]", "compute[1]", "decimal", "event", "name", "where"]
    assert str(caught.value).count("\n") == 8  # seven flaws, one with two lines for the caret


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
    for other in ({"by": ["q", "p"]}, {"event": "x"}, {"where": "b = 1"}, {"decimals": 0}, {"value": "v"}):
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
        "compute": st.lists(st.sampled_from(AGGREGATES), min_size=1, unique=True),
        "where": st.sampled_from(["a=1", "not(b in(1,'x'))", "a is null OR \"b c\" < 'z'"]),
        "decimals": st.integers(0, 9),
    },
)


@given(definitions, st.sampled_from([{}, {"each": "values"}]) | property_names.map(lambda name: {"value": name}))
def test_a_definition_survives_the_way_there_and_back(definition, number):
    meter = from_mapping(definition | number)
    assert from_mapping(to_mapping(meter)) == meter
    assert to_mapping(from_mapping(to_mapping(meter))) == to_mapping(meter)


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
