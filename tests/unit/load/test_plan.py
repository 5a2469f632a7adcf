"""Event i is a function of (seed, i) and of nothing else."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallymark.load.encoding import Encoder
from tallymark.load.expected import distinct_sources, expected
from tallymark.load.plan import LATE_TO_MS, Plan

PLAN = Plan(run="t", seed=7, start_ms=1_763_208_000_123, rate=500.0, sends=5_000, keys=50, duplicates=0.1, late=0.05)
SERVERS = replace(PLAN, rate=20.0, sends=400, servers=20, metrics=3)


def numbers(start: int, end: int) -> np.ndarray:
    return np.arange(start, end, dtype=np.uint64)


def events(plan: Plan, start: int, end: int) -> list[dict]:
    return json.loads(Encoder(plan).encode(plan.sources(numbers(start, end))))


@given(st.integers(0, 4_000), st.integers(1, 500), st.integers(0, 500), st.sampled_from([PLAN, SERVERS]))
def test_an_event_does_not_depend_on_the_batch_it_is_made_in(start, length, inside, plan):
    end = min(start + length, plan.sends)
    start = min(start, end - 1)
    one = min(start + inside, end - 1)
    assert events(plan, start, end)[one - start] == events(replace(plan), one, one + 1)[0]


def test_another_seed_gives_other_events():
    assert events(PLAN, 0, 100) != events(replace(PLAN, seed=8), 0, 100)


def test_ids_differ_unless_a_duplicate_is_meant():
    plain = replace(PLAN, duplicates=0.0)
    assert len({event["id"] for event in events(plain, 0, plain.sends)}) == plain.sends


def test_a_duplicate_is_an_earlier_event_to_the_byte_and_about_as_frequent_as_asked():
    sent = events(PLAN, 0, PLAN.sends)
    first: dict[str, dict] = {}
    copies = 0
    for event in sent:
        copies += event["id"] in first
        assert first.setdefault(event["id"], event) == event
    assert 0.08 < copies / PLAN.sends < 0.12


def test_keys_follow_zipf():
    plan = replace(PLAN, sends=200_000, keys=1000, duplicates=0.0)
    counts = np.bincount(plan.key_indices(numbers(0, plan.sends)), minlength=plan.keys)
    share = 1 / sum(1 / rank for rank in range(1, 1001))
    for rank in (1, 2, 5, 10, 100):
        assert abs(counts[rank - 1] / plan.sends - share / rank) < 4 * (share / rank / plan.sends) ** 0.5
    assert counts.min() >= 0
    assert len(counts) == 1000


def test_times_follow_the_rate_and_late_events_are_up_to_days_old():
    times = PLAN.times(numbers(0, PLAN.sends))
    due = PLAN.start_ms + np.arange(PLAN.sends) * 2
    late = due - times
    assert set(late[late != 0] >= 60_000) == {True}
    assert late.max() <= LATE_TO_MS
    assert late.max() > 5 * 86_400_000
    assert 0.03 < (late > 0).mean() < 0.07


def test_every_server_sends_once_a_second():
    plan = replace(SERVERS, duplicates=0.0, late=0.0)
    sent = events(plan, 0, plan.sends)
    pairs = Counter((event["props"]["server"], (event["time"] - plan.start_ms) // 1000) for event in sent)
    assert set(pairs.values()) == {1}
    assert len(pairs) == 20 * 20
    assert all(list(event["values"]) == ["m0", "m1", "m2"] for event in sent)


@given(
    st.sampled_from([PLAN, SERVERS]),
    st.lists(st.tuples(st.integers(0, 399), st.integers(1, 60)), max_size=6),
)
def test_expected_counts_are_those_of_a_counter_over_distinct_ids(plan, starts):
    ranges = [(start, min(start + length, plan.sends)) for start, length in starts]
    distinct = {event["id"]: event for start, end in ranges for event in events(plan, start, end)}
    minutes, keys, sums = Counter(), Counter(), Counter()
    for event in distinct.values():
        for value in event.get("values", {"": event.get("value")}).values():
            minutes[event["time"] // 60_000 * 60_000] += 1
            keys[event["props"][plan.key_label]] += 1
            sums[event["time"] // 86_400_000 * 86_400_000] += value
    right = expected(plan, distinct_sources(plan, ranges))
    assert right.events == len(distinct)
    assert {minute: tally.count for minute, tally in right.minutes.items()} == minutes
    assert {plan.key_name(key): tally.count for key, tally in right.keys.items()} == keys
    assert {day: tally.sum for day, tally in right.days.items() if tally.sum} == +sums
    assert right.total.count == sum(minutes.values())
    assert sum(tally.count for tally in right.hours.values()) == right.total.count
