"""Whatever is asked, the answer is an answer or a refusal that says why: never an error of ours."""

from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asking import Desk
from tallymark.http import Problem
from tallymark.meters.model import Late, Meter
from tallymark.problems import MEANINGS
from tallymark.query import parsing
from tallymark.query.parameters import PARAMETERS
from tallymark.query.response import Response

NOON = 1_794_744_000
JSON = {"content-type": "application/json"}
METERS = (
    Meter("m", ("e",), by=("key", "k"), compute=("count", "sum", "min", "max", "avg", "last", "rate", "p99")),
    Meter("seconds", ("e",), by=("key",), grain_s=1, compute=("count", "p50"), late=Late(60, "aside")),
    Meter("money", ("e",), by=("key",), grain_s=10, compute=("count", "sum", "avg"), decimals=2),
    Meter("users", ("e",), compute=("count", "distinct"), distinct="user"),
)


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> Desk:
    desk = Desk(tmp_path_factory.mktemp("any"))
    for meter in METERS:
        desk.store.registry.put_meter("main", meter, now_ms=0)
        for second in (0, 10, 60, 600, 1790):
            labels = tuple("ab"[: len(meter.labels)])
            desk.store.count(meter.name, (labels, NOON + second // meter.grain_s * meter.grain_s, [1.5, -2.0, None]))
    desk.send("PUT", "/v1/tables/t?key=key", [{"key": "a", "name": "x", "number": 1.5}], JSON)
    desk.store.count("seconds", (("z",), NOON, [1.0]), late=True)
    return desk


ALLOWED = {"total": parsing.TOTAL, "series": parsing.SERIES, "top": parsing.TOP}

numbers = st.one_of(st.integers(0, 70), st.sampled_from([100, 1000, 86_400, 999_999_999]))
lengths = st.builds(lambda n, unit: f"{n}{unit}", numbers, st.sampled_from(["s", "m", "h", "d", "w", "mo", "y", ""]))
zones = st.sampled_from(["UTC", "Europe/Vienna", "Asia/Kathmandu", "America/St_Johns", "Nowhere", ""])
moments = st.one_of(
    lengths.map(lambda length: f"-{length}"),
    st.sampled_from(
        ["now", "2026-11-15", "2026-11-15T12:00:00Z", "2026-11-15T12:00:01.5Z", "0", "1794744000000", "x", ""]
    ),
    st.integers(0, 10**15).map(str),
)
words = st.sampled_from(
    [*PARAMETERS, "key", "label.key", "label.k", "nonsense", "t.name", "label.t.name", "t.nmae", "t.", ".t", ""]
)
functions = st.lists(
    st.sampled_from(
        ["count", "sum", "min", "avg", "last", "rate", "distinct", "p50", "p99.9", "p0", "p100", "mean", ""]
    ),
    max_size=3,
).map(",".join)
VALUES = {
    "from": moments,
    "to": moments,
    "step": lengths,
    "window": lengths,
    "compare": st.one_of(lengths, st.sampled_from(["previous", "prev", ""])),
    "tz": zones,
    "fn": functions,
    "by": st.sampled_from(
        ["key", "key,k", "k", "", "nonsense", "key,key", "t.name", "key,t.name", "t.nam", "u.x", "."]
    ),
    "with": st.sampled_from(["t.name", "t.number,t.name", "name", "t.", ".", "u.x", ""]),
    "t.name": st.sampled_from(["x", "b", ""]),
    "t.nmae": st.just("x"),
    "k": numbers.map(str),
    "limit": numbers.map(str),
    "key": st.sampled_from(["a", "b", "", "\u00e4"]),
}


def value_of(name: str) -> st.SearchStrategy[tuple[str, str]]:
    parameter = PARAMETERS.get(name)
    known = st.sampled_from([*(parameter.choices if parameter else ()), "a", "", "-1"])
    return st.tuples(st.just(name), VALUES.get(name, known))


anything = st.lists(words.flatmap(value_of), max_size=7)
FITTING = {
    **VALUES,
    "from": st.sampled_from(["-1h", "-90m", "-2d", "2026-11-15", "2026-11-15T12:00:00Z", "2026-11-15T11:59:50Z"]),
    "to": st.sampled_from(["now", "2026-11-15T12:20:00Z", "2026-11-15T12:00:10Z"]),
    "step": st.sampled_from(["1m", "5m", "1h", "10s", "1d", "7m"]),
    "window": st.sampled_from(["1m", "5m", "10m", "1h", "10s", "1d"]),
    "compare": st.sampled_from(["previous", "1d", "1w", "1mo", "90m", "10s"]),
    "tz": st.sampled_from(["UTC", "Europe/Vienna", "Asia/Kathmandu"]),
    "fn": st.sampled_from(["count", "sum", "p50", "rate", "distinct", "avg", "last"]),
    "by": st.sampled_from(["key", "key", "t.name", "t.number,key"]),
    "with": st.just("t.name,t.number"),
}


def fitting(kind: str) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Each parameter of the question once, with a value that often fits."""
    allowed = [name for name in ALLOWED[kind] if name != "tenant"]
    each = {name: FITTING[name] if name in FITTING else st.sampled_from(PARAMETERS[name].choices) for name in allowed}
    return st.fixed_dictionaries({}, optional=each).map(lambda chosen: list(chosen.items()))


kinds = st.sampled_from(list(ALLOWED))
requests = kinds.flatmap(lambda kind: st.tuples(st.just(kind), st.one_of(fitting(kind), fitting(kind), anything)))


@settings(max_examples=400)
@given(st.sampled_from([meter.name for meter in METERS]), requests)
def test_an_answer_or_a_refusal(counted, meter, request_):
    kind, asked = request_
    asked = [pair for pair in asked if pair[0] != "tenant"]
    found = outcome(counted, f"/v1/meters/{meter}/{kind}?{urlencode(asked)}")
    if isinstance(found, Problem):
        assert 400 <= found.status < 500
        assert found.status in MEANINGS[found.code].statuses
        assert len(found.detail) > 10
    else:
        assert found.status == 200
        assert found.body or dict(asked).get("format") == "ndjson"


def outcome(desk: Desk, target: str) -> Problem | Response:
    try:
        return desk.send("GET", target)
    except Problem as problem:
        return problem
