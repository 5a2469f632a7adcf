"""What a body is made of is counted before it is cut, so that small pieces do not become much memory."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.events import pieces, validation
from tallymark.events.bodies import BadBody, Delivery, TooManyEvents
from tallymark.events.clocks import Clocks
from tallymark.events.validation import Accepted, validate

CLOCKS = Clocks(accept_past_ms=1000, accept_future_ms=1000, tolerance_ms=1000)
MB = 1_000_000

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a,"\\[]{}é'), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def judge(body: bytes, *, lines: bool = False, max_events: int = 10_000) -> Accepted:
    return validate(Delivery(body, 0, lines), CLOCKS, max_events=max_events)


@given(st.lists(json_values, min_size=1, max_size=8), st.booleans(), st.integers(5, 40))
@settings(max_examples=100, deadline=None)
def test_elements_are_counted_whatever_is_in_them(values: list[Any], escaped: bool, chunk: int) -> None:
    before, pieces._CHUNK_BYTES = pieces._CHUNK_BYTES, chunk
    try:
        body = json.dumps(values, ensure_ascii=escaped).encode()
        assert pieces.elements(body, level=1) == len(values)
        envelope = json.dumps({"sent_at": "a,b", "events": values}, ensure_ascii=escaped).encode()
        assert pieces.elements(envelope, level=2) == len(values)
    finally:
        pieces._CHUNK_BYTES = before


@given(st.lists(st.sampled_from([b"", b" ", b"\t\r", b"a", b" b c ", b"{}\r", b"\xff"]), max_size=8), st.integers(1, 9))
def test_lines_are_those_that_are_not_blank(lines: list[bytes], count: int) -> None:
    wanted = [line.strip() for line in lines if line.strip()]
    assert pieces.first_lines(b"\n".join(lines), count) == wanted[:count]


EVENT = b'{"event":"a"}'
BODIES: dict[str, tuple[Callable[[], bytes], bool]] = {
    "lines of anything": (lambda: b"00\n" * 5_300_000, True),
    "lines of events": (lambda: (EVENT + b"\n") * 1_100_000, True),
    "a list of anything": (lambda: b"[" + b"0," * 7_900_000 + b"0]", False),
    "a list of events": (lambda: b"[" + (EVENT + b",") * 1_100_000 + EVENT + b"]", False),
    "a list of empty objects": (lambda: b"[" + b"{}," * 5_300_000 + b"{}]", False),
    "an envelope of anything": (lambda: b'{"events":[' + b"0," * 7_900_000 + b"0]}", False),
    "an envelope of events": (lambda: b'{"events":[' + (EVENT + b",") * 1_100_000 + EVENT + b"]}", False),
}


SAID = {
    True: "^more than 10,000 events in one request: send smaller batches$",
    False: r"^[0-9,]{7,} events in one request; at most 10,000 are allowed: send smaller batches$",
}


@pytest.mark.parametrize("kind", BODIES)
def test_16_mb_of_small_pieces_are_refused_before_they_are_cut(kind: str) -> None:
    made, lines = BODIES[kind]
    body = made()
    tracemalloc.start()
    try:
        with pytest.raises(TooManyEvents, match=SAID[lines]):
            judge(body, lines=lines)
        assert tracemalloc.get_traced_memory()[1] < 30 * MB
    finally:
        tracemalloc.stop()


def test_16_mb_of_events_on_one_line_are_refused_before_they_are_made() -> None:
    body = (EVENT + b" ") * 1_140_000
    tracemalloc.start()
    try:
        with pytest.raises(BadBody, match="trailing characters") as told:
            judge(body, lines=True)
        assert told.value.code == "bad_json"
        assert tracemalloc.get_traced_memory()[1] < 50 * MB, "the line itself, twice"
    finally:
        tracemalloc.stop()


def test_16_mb_of_blank_lines_take_no_memory_either() -> None:
    body = b"\n" * 16_000_000 + EVENT
    tracemalloc.start()
    try:
        assert len(judge(body, lines=True).events) == 1
        assert tracemalloc.get_traced_memory()[1] < 30 * MB
    finally:
        tracemalloc.stop()


def test_many_commas_and_braces_inside_of_few_events_are_no_reason_to_refuse_them() -> None:
    wordy = {"event": "a", "props": {f"k{n}": "{,}" * 300 for n in range(60)}}
    body = json.dumps([wordy] * 60).encode()
    assert min(body.count(b"{"), body.count(b",")) > pieces.MAX_UNCOUNTED
    assert len(judge(body, max_events=60).events) == 60
    assert len(judge(json.dumps({"events": [wordy] * 60}).encode(), max_events=60).events) == 60


@pytest.mark.parametrize("max_events", [1, 10_000])
def test_the_commas_of_one_event_do_not_make_it_many(max_events: int) -> None:
    event = b'{"event":"a","props":{' + b",".join(b'"%d":1' % n for n in range(120_000)) + b"}}"
    for body in (event, b"[" + event + b"]", b'{"events":[' + event + b"]}"):
        (refusal,) = judge(body, max_events=max_events).refusals
        assert (refusal.code, refusal.detail) == ("bad_props", "`props` has 120,000 entries; at most 64 are allowed")


def test_who_allows_more_events_has_them_judged_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "one_by_one", None)
    body = b"[" + (EVENT + b",") * 149_999 + EVENT + b"]"
    assert len(judge(body, max_events=150_000).events) == 150_000
