"""What may be in an event, and how it looks on the wire. The judge is the collector's own validation."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.client import encoding
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.validation import validate

NOW_MS = 1_763_208_000_000
CLOCKS = Clocks(accept_past_ms=10**15, accept_future_ms=10**15, tolerance_ms=5_000)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=1500)


def refusals(body: bytes) -> list[object]:
    return list(validate(Delivery(body, NOW_MS), CLOCKS, max_events=1_000).refusals)


@given(
    st.text(max_size=140) | st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_.:-]{0,127}\Z"),
    st.dictionaries(st.text(max_size=130), SCALARS, max_size=5),
    st.floats() | st.none() | st.integers(),
    st.dictionaries(st.text(max_size=130), st.floats() | st.integers(), max_size=3),
    st.integers(0, 2**62),
)
def test_what_the_call_takes_the_collector_takes_too(name, props, value, values, resent_ms):
    try:
        event = encoding.encode_event(name, "id", time=NOW_MS, value=value, values=values, props=props)
    except (TypeError, ValueError):
        return
    assert refusals(encoding.body([event, event])) == []
    resent = json.loads(encoding.body([event, event], resent_ms=resent_ms))
    plain = json.loads(event)
    assert resent == [{**plain, "resent": resent_ms} if resent_ms else plain] * 2


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"name": 7}, TypeError, "7"),
        ({"name": "9lives"}, ValueError, "9lives"),
        ({"name": ""}, ValueError, "must match"),
        ({"name": "x" * 129}, ValueError, "must match"),
        ({"id": ""}, ValueError, "0 characters"),
        ({"id": 5}, TypeError, "string"),
        ({"id": "x" * 257}, ValueError, "257 characters"),
        ({"value": float("nan")}, ValueError, "finite"),
        ({"value": "12"}, TypeError, "finite"),
        ({"value": True}, TypeError, "finite"),
        ({"value": 10**400}, ValueError, "finite"),
        ({"values": {"cpu": float("inf")}}, ValueError, "cpu"),
        ({"values": {"cpu": None}}, TypeError, "cpu"),
        ({"values": {f"m{number}": 1 for number in range(4097)}}, ValueError, "4,097"),
        ({"props": {"a": [1]}}, TypeError, "'a'"),
        ({"props": {"a": {}}}, TypeError, "'a'"),
        ({"props": {"a": float("nan")}}, ValueError, "'a'"),
        ({"props": {"a": b"x"}}, TypeError, "'a'"),
        ({"props": {"a": "x" * 1025}}, ValueError, "1,025 bytes"),
        ({"props": {"a": "é" * 513}}, ValueError, "1,026 bytes"),
        ({"props": {"a": "\0"}}, ValueError, "U\\+0000"),
        ({"props": {"": 1}}, ValueError, "1 to 128"),
        ({"values": {"": 1}}, ValueError, "1 to 128"),
        ({"props": {7: 1}}, TypeError, "7"),
        ({"props": {"x" * 129: 1}}, ValueError, "128"),
        ({"props": {"a": 2**64 + 1}}, ValueError, "as text"),
        ({"props": {f"p{number}": 1 for number in range(65)}}, ValueError, "65 properties"),
        ({"time": "yesterday"}, ValueError, "yesterday"),
        ({"time": datetime(2026, 11, 16)}, ValueError, "zone"),
        ({"time": "2026-11-16T12:00:00"}, ValueError, "zone"),
    ],
)
def test_what_is_wrong_is_said_at_the_call(wrong, error, says):
    given = {"name": "view", "id": "1", **wrong}
    with pytest.raises(error, match=says):
        encoding.encode_event(given.pop("name"), given.pop("id"), **given)


def test_numbers_of_other_kinds_become_pythons():
    class Meters(float):
        pass

    assert json.loads(encoding.encode_event("run", "1", props={"far": Meters(1.5)}))["props"] == {"far": 1.5}


@pytest.mark.parametrize("time", [NOW_MS, datetime.fromtimestamp(NOW_MS / 1000, UTC)])
def test_a_time_is_milliseconds_on_the_wire(time):
    assert json.loads(encoding.encode_event("view", "1", time=time))["time"] == NOW_MS


def test_a_count_has_a_name_an_id_a_time_and_its_properties():
    event = json.loads(encoding.encode_count("view", "1", {"video": "A"}))
    assert abs(event.pop("time") - datetime.now(UTC).timestamp() * 1000) < 60_000
    assert event == {"event": "view", "id": "1", "props": {"video": "A"}}
