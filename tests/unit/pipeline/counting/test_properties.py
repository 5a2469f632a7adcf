"""Properties as columns: the compiled `where` sees exactly what the plain meaning of `where` sees."""

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallymark.meters import matches, parse
from tallymark.meters.compile import to_polars
from tallymark.pipeline.counting.decode import decode
from tallymark.pipeline.counting.needs import EVERY, Needs
from tallymark.pipeline.counting.properties import PropertyColumns

WHERES = [
    "x = 'a'",
    "x != 'a'",
    "not (x = 'a')",
    "x is null",
    "x is not null and y < 3",
    "x in ('a', '200', 200, 0.5)",
    "x >= 200 or y = 'true'",
    "y = true",
    "y != false",
    "value is null",
    "value = '0.5'",
    "value > 0.25 and event = 'view'",
    "event in ('click', 'view') and not (x is null)",
]
plain = st.sampled_from(
    ["a", "b", "", "200", "200.0", "true", "1e3", "nan", "inf", 200, 200.0, 0.5, 3, -1, True, False]
)
props = st.dictionaries(st.sampled_from(["x", "y", "z"]), plain, max_size=3)
sent_events = st.lists(
    st.tuples(st.sampled_from(["view", "click"]), st.sampled_from([None, 0.5, 0.0, 7.0]), props), min_size=1, max_size=8
)


def kept(build, where: str, events: list[dict]) -> list[bool]:
    expression = parse(where)
    decoded = decode([build.record(events)], needs=Needs.of_every_event(expression.properties()))
    return decoded.table.select(to_polars(expression, PropertyColumns()).fill_null(False)).to_series().to_list()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.sampled_from(WHERES), rows=sent_events)
def test_columns_and_single_events_agree_on_every_where(build, where, rows):
    events = [
        build.event(str(number), name=name, value=value, **props) for number, (name, value, props) in enumerate(rows)
    ]
    assert kept(build, where, events) == [matches(parse(where), event) for event in events]


@pytest.mark.parametrize("where", ["value is null", "value = '1'"])
def test_a_stretch_without_any_value_can_be_asked_for_values(build, where):
    assert kept(build, where, [build.event("1")]) == [where == "value is null"]


def test_only_asked_properties_are_decoded(build):
    decoded = decode([build.record([build.event("1", x="a", y="b")])], needs=Needs.of_every_event(["x"]))
    assert decoded.table.columns == ["event", "time", "received", "value", "text:x", "number:x"]
    assert decoded.table["text:x"].dtype == pl.String


def test_of_events_that_are_not_there_no_property_is_decoded(build):
    needs = Needs(
        {("main", EVERY): frozenset("x"), ("main", "click"): frozenset("y"), ("demo", "view"): frozenset("y")},
        values=frozenset({("main", "metrics")}),
    )
    views = decode([build.record([build.event("1", x="a", y="b")])], needs=needs)
    assert [name for name in views.table.columns if ":" in name] == ["text:x", "number:x"]
    click = build.record([build.event("2", y="b", name="click")], 1)
    both = decode([build.record([build.event("1", x="a")]), click], needs=needs)
    assert both.table["text:y"].to_list() == [None, "b"]
    assert both.names == {"view", "click"}


def test_frames_with_and_without_strays_are_read_together(build):
    """A frame without any leaves their column out."""
    frames = [[build.event("1", x="a")], [build.event("2", x=1), build.event("3", x="b")], [build.event("4", x="c")]]
    records = [build.record(events, number) for number, events in enumerate(frames)]
    decoded = decode(records, needs=Needs.of_every_event(["x"]))
    assert decoded.table["text:x"].to_list() == ["a", "1", "b", "c"]


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e999"])
def test_text_that_reads_as_no_finite_number_is_beside_a_number_null(build, text):
    assert kept(build, "x >= 0 or x < 0", [build.event("1", x=text)]) == [False]
