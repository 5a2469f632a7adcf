"""StatsD: every line is in the numbers or in the refusals."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.agent import statsd
from tallymark.agent.refusals import Refusals
from tallymark.agent.statsd import Aggregator


@pytest.fixture
def aggregator(refusals):
    return Aggregator(refusals, max_metrics=10, gauge_keep_s=60)


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        ("hits:1|c\nhits:2|c", {"hits": 3}),
        ("hits:1|c|@0.1", {"hits": 10}),
        ("hits:-1|c", {"hits": -1}),
        ("hits:1:2:3|c", {"hits": 6}),
        ("queue:17|g\nqueue:5|g", {"queue": 5}),
        ("queue:17|g\nqueue:+3|g\nqueue:-10|g", {"queue": 10}),
        ("queue:-3|g", {"queue": -3}),
        ("queue:0|g\nqueue:-3|g", {"queue": -3}),
        (
            "rpc:88.1|ms\nrpc:2|ms",
            {"rpc_ms_count": 2, "rpc_ms_sum": 90.1, "rpc_ms_min": 2, "rpc_ms_max": 88.1},
        ),
        ("rpc_ms:3|ms|@0.5", {"rpc_ms_count": 2, "rpc_ms_sum": 6, "rpc_ms_min": 3, "rpc_ms_max": 3}),
        ("size:3:5|h", {"size_count": 2, "size_sum": 8, "size_min": 3, "size_max": 5}),
        ("users:ann|s\nusers:bob|s\nusers:ann|s\nusers:10.0.0.1:80|s", {"users": 3}),
        ("hits:1|c|#b:2,a:1\nhits:1|c|#a:1,b:2", {'hits{a="1",b="2"}': 2}),
        ("hits:1|c|@0.5|#urgent", {"hits{urgent}": 2}),
        ('hits:1|c|#path:"x\\', {'hits{path="\\"x\\\\"}': 1}),
        ("rpc:3|ms|#a:1|c:in-4711", dict.fromkeys(f'rpc_ms_{each}{{a="1"}}' for each in ("sum", "min", "max"))),
        ("hits:1|c\r\n\n  \n", {"hits": 1}),
    ],
)
def test_lines_become_numbers(aggregator, refusals, lines, values):
    aggregator.feed(lines.encode())
    taken = aggregator.take(0)
    if None in values.values():
        assert values.keys() <= taken.keys()
    else:
        assert taken == pytest.approx(values)
    assert not refusals.totals


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hits", "malformed"),
        (b"hits:1", "malformed"),
        (b":1|c", "malformed"),
        (b"hits:|c", "malformed"),
        (b"hits:one|c", "malformed"),
        (b"hits:1_0|c", "malformed"),
        (b"hits:1:1_0|c", "malformed"),
        (b"hits:1|c|@0.1_0", "malformed"),
        (b"hits:1|x", "malformed"),
        (b"hits:1:x|c", "malformed"),
        (b"hits:1|c|@2", "malformed"),
        (b"hits:1|c|@0", "malformed"),
        (b"hits:1|c|@nan", "malformed"),
        (b"hits:1|c|T1656581400", "malformed"),
        (b"_e{5,4}:title|text", "malformed"),
        (b"hits:nan|c", "not_finite"),
        (b"hits:1:inf|ms", "not_finite"),
        (b"hi\xffts:1|c", "bad_name"),
        (b"hi\0ts:1|c", "bad_name"),
        (b"h" * 129 + b":1|c", "name_too_long"),
        (b"hits:1|c|#tag:" + b"x" * 128, "name_too_long"),
    ],
)
def test_what_cannot_be_taken_is_counted_with_its_reason(aggregator, refusals, line, reason):
    aggregator.feed(b"good:1|c\n" + line + b"\ngood:1|c")
    assert aggregator.take(0) == {"good": 2}
    assert refusals.totals == {reason: 1}


def test_a_silent_counter_is_absent_and_a_gauge_stays_until_it_is_forgotten(aggregator):
    aggregator.feed(b"hits:1|c\nqueue:7|g\nrpc:3|ms\nusers:ann|s")
    aggregator.take(0)
    assert aggregator.take(60) == {"queue": 7}
    assert aggregator.take(60.5) == {}


def test_a_gauge_that_is_set_again_is_not_forgotten(aggregator):
    aggregator.feed(b"queue:7|g")
    aggregator.take(50)
    aggregator.feed(b"queue:7|g")
    assert aggregator.take(100) == {"queue": 7}


@pytest.mark.parametrize("pause_s", [1, 3600])
def test_a_gauge_is_in_the_interval_it_was_set_in_however_long_that_was_and_however_late_the_clock(aggregator, pause_s):
    now_s = 100_000.0  # seconds since the machine started: never near 0
    for value in range(3):
        aggregator.feed(b"queue:%d|g" % value)
        now_s += pause_s
        assert aggregator.take(now_s) == {"queue": value}
    assert aggregator.take(now_s + 60) == {"queue": 2}
    assert aggregator.take(now_s + 61) == {}
    aggregator.feed(b"queue:+1|g")  # from 0: what it was is forgotten
    assert aggregator.take(now_s + 62) == {"queue": 1}


def test_nothing_long_is_remembered_whatever_is_sent(aggregator, refusals):
    for number in range(9):
        aggregator.feed(b"hits:1|c|#%d%s" % (number, b"x" * 60_000))
        aggregator.feed(b"%d%s:1|ms" % (number, b"x" * 60_000))
        aggregator.feed(b"users:%d%s|s" % (number, b"x" * 60_000))
        aggregator.feed(b"users:%d%s|s" % (number, b"x" * 60_000))
    assert refusals.totals == {"name_too_long": 18}
    kept = [*aggregator._ordered, *aggregator._in_ms, *aggregator._names, *aggregator._sets[b"users"]]
    assert max(map(len, kept)) <= 64
    assert aggregator.take(0) == {"users": 9}


def test_a_name_of_128_characters_in_whatever_script_is_taken(aggregator, refusals):
    name = "\N{GRINNING FACE}" * 120
    aggregator.feed(f"{name}:1|c|#a:1".encode())
    assert aggregator.take(0) == {name + '{a="1"}': 1}


def test_further_names_than_allowed_are_refused_and_the_old_ones_go_on(aggregator, refusals):
    aggregator.feed("\n".join(f"m{number}:1|c" for number in range(15)).encode() + b"\nm0:1|c")
    taken = aggregator.take(0)
    assert len(taken) == 10
    assert taken["m0"] == 2
    assert refusals.totals == {"too_many": 5}
    for number in range(100):  # names come and go: nothing of the old ones is kept
        aggregator.feed(f"n{number}:1|c".encode())
        assert aggregator.take(0) == {f"n{number}": 1}
    assert len(aggregator._names) <= 20


def test_members_of_sets_are_limited(aggregator, refusals, monkeypatch):
    monkeypatch.setattr(statsd, "MAX_MEMBERS", 2)
    aggregator.feed(b"users:a|s\nusers:b|s\nusers:c|s\nusers:a|s\nothers:d|s")
    assert aggregator.take(0) == {"users": 2}
    assert refusals.totals == {"too_many": 2}
    aggregator.feed(b"users:c|s")
    assert aggregator.take(0) == {"users": 1}


def test_one_name_of_two_kinds_is_sent_once_and_counted(aggregator, refusals):
    aggregator.feed(b"x:1|c\nx:5|g")
    assert aggregator.take(0) == {"x": 1}
    assert refusals.totals == {"name_taken": 1}


def test_the_same_tags_are_the_same_metric_in_whatever_order(aggregator):
    tags = [b"a:1", b"b:2", b"c:3", b"d:4"]
    for order in itertools.permutations(tags):
        aggregator.feed(b"hits:1|c|#" + b",".join(order))
    assert aggregator.take(0) == {'hits{a="1",b="2",c="3",d="4"}': 24}


BYTES = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from(b"a:|cgmsh@#0123.-+,\n\xff\0"), max_size=60).map(bytes),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(BYTES, max_size=5))
def test_any_bytes_are_taken_or_counted(datagrams):
    refusals = Refusals()
    aggregator = Aggregator(refusals, max_metrics=5, gauge_keep_s=1)
    for datagram in datagrams:
        aggregator.feed(datagram)
    lines = sum(bool(line.strip()) for datagram in datagrams for line in datagram.split(b"\n"))
    assert aggregator.lines + refusals.totals.total() == lines
    aggregator.take(0)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1000, 1000)), max_size=50),
    st.lists(st.integers(0, 50), max_size=4),
)
def test_counters_add_up_however_the_intervals_fall(hits, cuts):
    aggregator = Aggregator(Refusals(), max_metrics=10, gauge_keep_s=60)
    found: Counter[str] = Counter()
    for place, (name, value) in enumerate(hits):
        if place in cuts:
            found.update(aggregator.take(0))
        aggregator.feed(f"{name}:{value}|c".encode())
    found.update(aggregator.take(0))
    wanted: Counter[str] = Counter()
    for name, value in hits:
        wanted[name] += value
    assert dict(found) == dict(wanted)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_a_timer_knows_count_sum_least_and_most(times):
    aggregator = Aggregator(Refusals(), max_metrics=10, gauge_keep_s=60)
    for value in times:
        aggregator.feed(f"t:{value!r}|h".encode())
    taken = aggregator.take(0)
    assert (taken["t_count"], taken["t_min"], taken["t_max"]) == (len(times), min(times), max(times))
    assert math.isclose(taken["t_sum"], math.fsum(times), rel_tol=1e-9, abs_tol=1e-6)
