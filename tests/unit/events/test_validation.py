"""Bodies: what is accepted, what is refused and why; in bulk and one by one the judgement is the same."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.events import validation
from tallymark.events.bodies import BadBody, Delivery, TooManyEvents
from tallymark.events.clocks import Clocks
from tallymark.events.names import Names
from tallymark.events.refusals import CODES, Refused, check
from tallymark.events.validation import Accepted, validate

NOW = 1_763_208_000_000
DAY = 86_400_000
CLOCKS = Clocks(accept_past_ms=7 * DAY, accept_future_ms=300_000, tolerance_ms=5000)
GOOD = {"event": "view", "id": "1"}


def judge(body: Any, *, max_events: int = 1000, **delivery: Any) -> Accepted:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return validate(Delivery(raw, NOW, **delivery), CLOCKS, max_events=max_events)


def codes(accepted: Accepted) -> list[tuple[int, str]]:
    return [(refusal.index, refusal.code) for refusal in accepted.refusals]


def test_the_examples_of_the_contract() -> None:
    accepted = judge(
        [
            {"event": "view", "id": "7c0e", "time": "2025-11-15T12:00:00.123Z", "value": 1, "props": {"video": "A"}},
            {"event": "metrics", "id": "web-1/1", "props": {"server": "web-1"}, "values": {"cpu": 0.42, "q": 17}},
        ]
    )
    assert codes(accepted) == []
    assert accepted.times == [1_763_208_000_123, NOW]
    assert accepted.keys == {"video", "server"}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"event": None}, "bad_event", "required"),
        ({"event": "9lives"}, "bad_event", "must match"),
        ({"event": "a" * 129}, "bad_event", "must match"),
        ({"event": 7}, "bad_event", "it must match"),
        ({"id": ""}, "bad_id", "0 characters; 1 to 256"),
        ({"id": "x" * 257}, "bad_id", "257 characters; 1 to 256"),
        ({"id": 7}, "bad_id", "a number"),
        ({"time": "2025-11-15"}, "bad_time", "RFC 3339"),
        ({"time": "2025-11-15T12:00:00"}, "bad_time", "with a zone"),
        ({"time": True}, "bad_time", "True is not a time"),
        ({"time": [1]}, "bad_time", "an array"),
        ({"time": 1e300}, "bad_time", "is not a time"),
        ({"time": NOW - 7 * DAY - 1}, "too_old", "events.accept_past_s = 604,800"),
        ({"time": NOW // 1000}, "too_old", "looks like seconds"),
        ({"time": NOW + 300_001}, "too_new", "300.0 s ahead of now; events.accept_future_s = 300"),
        ({"time": "2262-04-12T00:00:00Z"}, "too_new", "ahead"),
        ({"sent_at": "never"}, "bad_time", "`sent_at`: 'never'"),
        ({"sent_at": "never", "time": NOW}, "bad_time", "`sent_at`: 'never'"),
        ({"resent": "never"}, "bad_time", "`resent`: 'never'"),
        ({"value": "1"}, "bad_value", "a text"),
        ({"value": True}, "bad_value", "a boolean"),
        ({"value": 10**400}, "bad_number", "beyond a 64-bit float"),
        ({"values": [1]}, "bad_values", "an array"),
        ({"values": {"a": "1"}}, "bad_values", "`values.a` is a text"),
        ({"values": {"a" * 129: 1}}, "bad_values", "129 characters"),
        ({"values": {str(n): n for n in range(4097)}}, "bad_values", "4,097 entries; at most 4,096"),
        ({"values": {f"{n:03}" + "ключ" * 31: 1 for n in range(4000)}}, "bad_values", "bytes; at most 524,288"),
        ({"props": "x"}, "bad_props", "a text"),
        ({"props": {"a": {}}}, "bad_props", "flat"),
        ({"props": {"a": []}}, "bad_props", "an array; `props` is flat"),
        ({"props": {"": 1}}, "bad_props", "0 characters"),
        ({"props": {"k" * 129: 1}}, "bad_props", "129 characters"),
        ({"props": {str(n): n for n in range(65)}}, "bad_props", "65 entries; at most 64"),
        ({"props": {"a": "x" * 1025}}, "bad_text", "1,025 bytes; at most 1,024"),
        ({"props": {"a": "é" * 600}}, "bad_text", "1,200 bytes; at most 1,024"),
        ({"props": {"a": 2**64 + 1}}, "bad_number", "send it as text"),
        ({"props": {"a": "\0"}}, "bad_text", "U+0000"),
        ({"props": {"a\0": 1}}, "bad_text", "U+0000"),
        ({"values": {"a\0": 1}}, "bad_text", "U+0000"),
        ({"id": "a\0"}, "bad_text", "U+0000"),
        ({"evnet": "x"}, "unknown_field", "did you mean event?"),
        ({"zzz": 1}, "unknown_field", "an event has event, id, time"),
    ],
)
def test_why_an_event_is_refused(change: dict[str, Any], code: str, words: str) -> None:
    bad = {**GOOD, **change}
    accepted = judge([GOOD, bad, GOOD])
    assert codes(accepted) == [(1, code)]
    assert words in accepted.refusals[0].detail
    assert json.loads(accepted.refusals[0].raw) == bad
    assert list(accepted.indexes) == [0, 2]
    assert len(accepted.times) == len(accepted.events) == 2
    assert code in CODES


@pytest.mark.parametrize(
    "change",
    [
        {"event": "A_.:-9"},
        {"id": "x" * 256},
        {"id": None, "time": None, "value": None, "values": None, "props": None},
        {"time": "2025-11-15T21:00:00.1+09:00"},
        {"time": "2025-11-15t12:00:00.1234567891z"},
        {"time": NOW - 7 * DAY},
        {"time": NOW + 300_000},
        {"time": NOW + 0.5},
        {"value": 10**30},
        {"values": {"a": None, "b": 1}},
        {"values": {str(n): n for n in range(4096)}},
        {"props": {str(n): n for n in range(64)}},
        {"props": {"a": "x" * 1024, "k" * 128: None, "e": "", "escaped": "\\u0000"}},
        {"props": {"a": 2**64, "b": -(2**64)}},
        {"resent": NOW - DAY},
    ],
)
def test_what_is_just_within_the_rules(change: dict[str, Any]) -> None:
    assert codes(judge({**GOOD, **change})) == []
    assert codes(judge([GOOD, {**GOOD, **change}])) == []


# Only what JSON can say: one NaN or Infinity spoils a whole array, and then nothing in it can be told apart.
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | numbers | st.text(max_size=5)
fields = {
    "event": st.sampled_from(["view", "a b", ""]) | values,
    "id": st.text(max_size=3) | values,
    "time": st.sampled_from([NOW, "2025-11-15T12:00:00Z", "2025-11-15T12:00:00"]) | values,
    "value": values,
    "props": st.dictionaries(st.text(max_size=3), values | st.lists(values, max_size=1), max_size=3) | values,
    "values": st.dictionaries(st.text(max_size=3), values, max_size=3) | values,
    "resent": values,
    "extra": values,
}
maybe_events = st.fixed_dictionaries({}, optional=fields) | values


@given(st.lists(maybe_events, min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_every_event_is_accepted_or_refused_and_the_same_alone_as_in_company(events: list[Any]) -> None:
    raws = [json.dumps(event).encode() for event in events]
    try:
        together = judge(b"[" + b",".join(raws) + b"]")
    except BadBody:
        together = None
    alone = []
    for raw in raws:
        try:
            alone += [(refusal.code, refusal.detail) for refusal in judge(b"[" + raw + b"]").refusals] or [None]
        except BadBody as error:
            alone.append((error.code, error.detail))
    if together is None:
        assert all(alone)
        return
    assert len(together.events) + len(together.refusals) == len(events)
    refused = {refusal.index: (refusal.code, refusal.detail) for refusal in together.refusals}
    assert [refused.get(index) for index in range(len(events))] == alone


@given(maybe_events)
@settings(max_examples=300, deadline=None)
def test_the_reason_is_found_for_whatever_the_decoder_refuses(event: Any) -> None:
    raw = json.dumps(event).encode()
    try:
        check(raw)
    except Refused:
        return
    # Nothing to complain of, so the typed decoder must take it as well.
    msgspec.json.decode(raw, type=validation.WideEvent)


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode), st.booleans())
@settings(max_examples=300, deadline=None)
def test_arbitrary_bytes_are_refused_in_an_orderly_way(body: bytes, lines: bool) -> None:
    for wrapped in (body, b"[" + body + b"]", b'{"event":"view","props":{"a":"' + body + b'"}}'):
        try:
            accepted = judge(wrapped, lines=lines)
        except BadBody:
            continue
        assert all("\0" not in text for event in accepted.events for text in [event.id or "", *(event.props or {})])


def test_in_bulk_and_one_by_one_tell_the_same_of_good_events() -> None:
    good = [{**GOOD, "props": {"a": 1}}, {**GOOD, "time": NOW - 1, "props": {"b": 2}}]
    quick, slow = judge(good), judge([*good, {"event": ""}])
    assert quick.refusals == []
    assert codes(slow) == [(2, "bad_event")]
    assert slow.events == quick.events
    assert slow.keys == quick.keys == {"a", "b"}
    assert slow.times == quick.times == [NOW, NOW - 1]
    assert quick.size_bytes == len(json.dumps(good))
    assert slow.size_bytes == len(json.dumps([*good, {"event": ""}]))


def test_lines_are_told_apart_and_blank_ones_skipped() -> None:
    accepted = judge(b'\n{"event":"a","id":"1"}\r\n\n{"event":"b" "id":"2"}\n{"event":"c","id":"3"}', lines=True)
    assert [event.event for event in accepted.events] == ["a", "c"]
    assert codes(accepted) == [(1, "bad_json")]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"event":"a","id":"1"}{"event":"b","id":"2"}',
        b'{"event":"a","id":"1"} {"event":"b","id":"2"}',
        b'{"event":"a","id":"1"}\r{"event":"b","id":"2"}',
    ],
)
@pytest.mark.parametrize("neighbour", [b'{"event":"c","id":"3"}', b'{"event":"c","id":"3","time":"noon"}'])
def test_a_line_is_one_event_whatever_its_neighbours_are(bad: bytes, neighbour: bytes) -> None:
    accepted = judge(b"\n".join([b'{"event":"first","id":"0"}', bad, b"", neighbour]), lines=True)
    assert codes(accepted)[0] == (1, "bad_json")
    assert accepted.refusals[0].raw == bad
    assert accepted.indexes[0] == 0
    assert len(accepted.events) + len(accepted.refusals) == 3


def test_an_event_is_one_line() -> None:
    # As many events as lines, and still not one on each.
    body = b'{"event":"a","id":"1"}{"event":"b","id":"2"}\n{"event":"c",\n"id":"3"}\n{"event":"d","id":"4"}'
    accepted = judge(body, lines=True)
    assert codes(accepted) == [(0, "bad_json"), (1, "bad_json"), (2, "bad_json")]
    assert [event.event for event in accepted.events] == ["d"]


def test_an_envelope_says_when_it_was_sent() -> None:
    accepted = judge({"sent_at": NOW - 60_000, "events": [{**GOOD, "time": NOW - 61_000}, GOOD]})
    assert accepted.times == [NOW - 1000, NOW]
    assert accepted.shifts == [60_000, 0]


def test_a_property_called_events_does_not_make_an_envelope() -> None:
    assert codes(judge({**GOOD, "props": {"events": 1}})) == []


def test_an_event_with_a_field_called_events_is_no_envelope_but_a_mistake() -> None:
    assert codes(judge({**GOOD, "events": [GOOD]})) == [(0, "unknown_field")]


def test_white_space_may_come_before_an_array() -> None:
    assert len(judge(b" \r\n\t" + json.dumps([GOOD, GOOD]).encode()).events) == 2
    assert codes(judge(b"\n" + json.dumps([GOOD, {"event": ""}]).encode())) == [(1, "bad_event")]


def test_half_a_surrogate_is_called_that() -> None:
    (refusal,) = judge(b'{"event":"view"}\n{"event":"view","id":"\\ud800"}', lines=True).refusals
    assert (refusal.code, "a surrogate" in refusal.detail) == ("bad_json", True)


def test_a_future_clock_is_corrected_before_the_window_is_checked() -> None:
    ahead = {**GOOD, "time": NOW + DAY}
    assert codes(judge(ahead)) == [(0, "too_new")]
    accepted = judge(ahead, sent_at=NOW + DAY)
    assert (accepted.times, accepted.shifts) == ([NOW], [-DAY])


def test_an_events_own_sent_at_goes_before_the_requests() -> None:
    accepted = judge([{**GOOD, "time": NOW, "sent_at": NOW - 10_000}, {**GOOD, "time": NOW}], sent_at=NOW - 20_000)
    assert accepted.shifts == [10_000, 20_000]


@pytest.mark.parametrize(("difference", "shift"), [(5000, 0), (5001, 5001), (-5000, 0), (-5001, -5001)])
def test_up_to_five_seconds_are_network(difference: int, shift: int) -> None:
    assert judge({**GOOD, "time": NOW}, sent_at=NOW - difference).shifts == [shift]


def test_resent_is_told_in_our_clock() -> None:
    accepted = judge({**GOOD, "time": NOW, "resent": "2025-11-15T11:00:00Z"}, sent_at=NOW - 60_000)
    assert accepted.events[0].resent == NOW - 3_600_000 + 60_000


def made(*events: dict[str, Any], key: str = "k", **delivery: Any) -> list[str | None]:
    return [event.id for event in judge(list(events), idempotency_key=key, **delivery).events]


A, B = {"event": "sale", "value": 30}, {"event": "sale", "value": 20, "props": {"x": 1, "y": 2}}


def test_ids_from_a_key_depend_on_the_event_and_not_on_its_place() -> None:
    a, b = made(A, B)
    assert a != b
    assert made(B, A) == [b, a]
    assert made(B) == [b]
    assert made({"event": ""}, B) == [b], "in bulk and one by one"
    assert made({"props": {"y": 2, "x": 1}, "value": 20.0, "event": "sale"}) == [b]
    assert made(A, B, key="other") != [a, b]
    assert made({**A, "id": "own"}, A) == ["own", a]
    assert judge([A, B], idempotency_key="k").random_ids is False
    assert judge(A).random_ids is True


def test_what_each_attempt_renews_does_not_change_an_id() -> None:
    retry = {**A, "sent_at": NOW + 9_000, "resent": NOW}
    assert made(retry) == made(A)
    later = Delivery(json.dumps(A).encode(), NOW + 60_000, idempotency_key="k")
    assert validate(later, CLOCKS, max_events=1).events[0].id == made(A)[0]


def test_equal_events_are_told_apart_by_their_number_and_known_as_twins() -> None:
    accepted = judge([A, B, A, {**A, "id": "own"}, A], idempotency_key="k")
    ids = [event.id for event in accepted.events]
    assert len(set(ids)) == 5
    assert made(A, A, A) == [ids[0], ids[2], ids[4]]
    assert accepted.twins == [[0, 2, 4]]
    assert judge([A, A]).twins == []


def test_names_beyond_the_limit_are_refused_in_order_and_the_others_taken() -> None:
    names = Names(2)
    events = [{"event": name, "id": "1"} for name in ("a", "b", "c", "a", "d")]
    accepted = validate(Delivery(json.dumps(events).encode(), NOW), CLOCKS, max_events=10, names=names)
    assert [event.event for event in accepted.events] == ["a", "b", "a"]
    assert codes(accepted) == [(2, "too_many_names"), (4, "too_many_names")]
    assert "max_event_names = 2" in accepted.refusals[0].detail
    assert json.loads(accepted.refusals[0].raw) == events[2]


def test_the_name_of_a_refused_event_takes_no_room() -> None:
    names = Names(1)
    for bad in ({"event": "a", "time": 1}, {"event": "b", "id": ""}, {"event": "c", "props": 7}):
        body = json.dumps([bad]).encode()
        assert len(validate(Delivery(body, NOW), CLOCKS, max_events=10, names=names).refusals) == 1
    assert len(names) == 0


def test_too_many_events_are_counted_also_when_one_is_bad() -> None:
    for events in ([GOOD] * 4, [GOOD] * 3 + [{"event": ""}]):
        with pytest.raises(TooManyEvents, match="4 events in one request; at most 3"):
            judge(events, max_events=3)


def test_texts_are_measured_in_bytes_however_they_are_written() -> None:
    for escaped in (True, False):
        body = json.dumps([{**GOOD, "props": {"a": "é" * 513}}], ensure_ascii=escaped).encode()
        assert codes(judge(body)) == [(0, "bad_text")]
        body = json.dumps([{**GOOD, "props": {"a": "é" * 512}}], ensure_ascii=escaped).encode()
        assert codes(judge(body)) == []
