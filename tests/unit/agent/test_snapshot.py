"""Snapshots: nothing is lost between the sources and the events."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.agent import snapshot
from tallymark.agent.refusals import Refusals
from tallymark.agent.snapshot import events, merge
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.validation import validate

NAMES = st.one_of(
    st.sampled_from(["cpu", "a", "x" * 128, "x" * 129, "", "n\0l", "\udcff", "agent_refused"]),
    st.text("xyz", max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(NAMES, st.floats(), max_size=8), max_size=4))
def test_every_value_is_merged_or_counted(sources):
    refusals = Refusals()
    merged = merge(sources, refusals)
    assert len(merged) + refusals.totals.total() == sum(map(len, sources))
    assert all(math.isfinite(value) and 0 < len(name) <= 128 for name, value in merged.items())


def test_a_name_that_is_no_text_is_refused_and_stops_nothing(refusals):
    merged = merge([{'process_count{name="\udcff"}': 1, "größe": 2}], refusals)
    assert merged == {"größe": 2}
    assert refusals.totals == {"bad_name": 1}
    assert [event.values for event in events(merged, id="a/1", time_ms=1)] == [{"größe": 2}]


def test_earlier_sources_win_and_the_agents_own_names_are_nobody_elses(refusals):
    assert merge([{"cpu": 0.4}, {"cpu": 9, "agent_cpu": 9}], refusals) == {"cpu": 0.4}
    assert refusals.totals == {"name_taken": 2}


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text("abcdé", min_size=1, max_size=8), st.integers(), max_size=40), st.integers(1, 9))
def test_splitting_loses_nothing_and_ids_are_distinct(values, most):
    limit, snapshot.MAX_VALUES = snapshot.MAX_VALUES, most
    try:
        parts = list(events(values, id="web-1/7", time_ms=7000))
    finally:
        snapshot.MAX_VALUES = limit
    assert [pair for part in parts for pair in part.values.items()] == list(values.items())
    assert all(1 <= len(part.values) <= most for part in parts)
    assert len({part.id for part in parts}) == len(parts) == math.ceil(len(values) / most)
    assert [part.id for part in parts][:2] == ["web-1/7", "web-1/7.2"][: len(parts)]


def test_the_longest_names_in_the_widest_script_are_accepted_by_the_collector():
    import msgspec

    values = {f"{number:08}" + "\U0001f4c8" * 120: float(number) for number in range(4_096)}
    parts = list(events(values, id="web-1/7", time_ms=0))
    assert sum(len(part.values) for part in parts) == 4_096
    assert len(parts) > 1
    body = msgspec.json.encode([{"event": "metrics", "id": part.id, "values": part.values} for part in parts])
    clocks = Clocks(accept_past_ms=1, accept_future_ms=1, tolerance_ms=1)
    assert validate(Delivery(body, 0), clocks, max_events=10).refusals == []
