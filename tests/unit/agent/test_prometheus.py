"""Prometheus: what an exposition says, and by how much counters have grown."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.agent.prometheus import REMEMBERED_SCRAPES, Increases, parse
from tallymark.agent.refusals import Refusals

EXPOSITION = """\
# HELP http_requests_total The number of requests, with a "quote" and a { brace.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{ code = "400" , method="post", }    3
# TYPE http_requests_created gauge
http_requests_created 1.7e9
# TYPE temperature gauge
temperature -3.5e1
msdos_file_access_time_seconds{path="C:\\\\DIR\\\\} \\"x\\"",error="a b\\nc"} 1.458255915e9
# TYPE rpc_seconds summary
rpc_seconds{quantile="0.99"} 0.2
rpc_seconds{quantile="0.5"} NaN
rpc_seconds_sum 17
rpc_seconds_count 20
# TYPE size_bytes histogram
size_bytes_bucket{le="1"} 4
size_bytes_bucket{le="+Inf"} 9
size_bytes_sum 53
size_bytes_count 9
size_bytes_created 1.7e9
# TYPE jobs counter
jobs_total{} 5 # {trace_id="x"} 1.0
untyped_total 8
"""


def test_an_exposition_is_read(refusals):
    found = parse(EXPOSITION, refusals)
    assert found.counters == {
        'http_requests_total{method="post",code="200"}': 1027,
        'http_requests_total{code="400",method="post"}': 3,
        "rpc_seconds_sum": 17,
        "rpc_seconds_count": 20,
        "size_bytes_sum": 53,
        "size_bytes_count": 9,
        "jobs_total": 5,
    }
    assert found.gauges == {
        "temperature": -35,
        'msdos_file_access_time_seconds{path="C:\\\\DIR\\\\} \\"x\\"",error="a b\\nc"}': 1.458255915e9,
        'rpc_seconds{quantile="0.99"}': 0.2,
        "untyped_total": 8,
    }
    assert not refusals.totals


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0abc 1", "malformed"),
        ("abc", "malformed"),
        ("abc one", "malformed"),
        ("abc 1_000", "malformed"),
        ("abc \u0661", "malformed"),
        ("abc 1 garbage x", "malformed"),
        ("abc 1 2 3", "malformed"),
        ("abc 1 1_0", "malformed"),
        ('abc{x="1} 1', "malformed"),
        ("abc{x=1} 1", "malformed"),
        ("<html>", "malformed"),
        ("abc +Inf", "not_finite"),
        ("good 2", "name_taken"),
    ],
)
def test_a_bad_line_is_counted_and_spoils_no_other(refusals, line, reason):
    assert parse(f"good 1\n{line}\nfine 2\r\n", refusals).gauges == {"good": 1, "fine": 2}
    assert refusals.totals == {reason: 1}


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='ab_{}="\\, 1.#TYPEcounter\n', max_size=80))
def test_any_text_is_read_or_counted(text):
    refusals = Refusals()
    found = parse(text, refusals)
    lines = [line.strip() for line in text.split("\n")]
    samples = [line for line in lines if line and not line.startswith("#")]
    assert len(found.counters) + len(found.gauges) + refusals.totals.total() == len(samples)


def test_the_first_look_says_nothing_since_nothing_is_known():
    increases = Increases()
    assert increases.of({"a": 100}) == {}
    assert increases.of({"a": 103, "b": 4}) == {"a": 3, "b": 4}
    assert increases.of({"a": 103}) == {"a": 0}
    assert increases.of({"a": 2, "b": 5}) == {"a": 2, "b": 1}  # a began anew; b came back where it was


def test_series_that_never_come_back_are_not_kept_for_ever():
    increases = Increases()
    for number in range(5_000):
        increases.of({f"job{number}": 1.0})
    assert len(increases._last) == len(increases._seen) <= REMEMBERED_SCRAPES + 1


def test_counters_that_come_back_within_their_time_are_known_however_many_are_missing():
    increases = Increases()
    everything = {f"c{number}": 1e6 for number in range(5_000)}
    increases.of(everything)
    for _ in range(REMEMBERED_SCRAPES):
        increases.of({"c0": 1e6})
    assert set(increases.of(everything).values()) == {0.0}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1000), min_size=1, max_size=5), max_size=6))
def test_increases_add_up_to_what_was_counted_in_all_lives_of_a_program(lives):
    # Each life is what the program counts before each of its scrapes. A new life shows because it has counted less
    # than the last one had; one that overtakes it between two scrapes nobody can tell.
    increases, found, wanted, last = Increases(), 0.0, 0, 0
    increases.of({})
    for life in lives:
        life[0] = min(life[0], max(0, last - 1))
        if last == 0:
            life[0] = 7
        counter = 0
        for counted in life:
            counter, wanted = counter + counted, wanted + counted
            found += increases.of({"a": counter})["a"]
        last = counter
    assert found == wanted
