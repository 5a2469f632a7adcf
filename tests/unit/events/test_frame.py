"""The frame codec: what goes in comes out, and what is not a frame is said to be none."""

import base64
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.events import columns, frame
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.cutting import compact
from tallymark.events.model import Event
from tallymark.events.validation import Accepted, validate

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
times = st.integers(-(2**53), 2**53)
numbers = st.floats(allow_nan=False, allow_infinity=False)
kinds = texts | st.integers(-(2**64), 2**64) | numbers | st.booleans() | st.none()
names = st.sampled_from(["view", "sale", "a.b:c-d"])
# Few keys over many events, so that columns of one kind, of two kinds and with gaps all happen.
props = st.none() | st.dictionaries(st.sampled_from(["a", "b", "c", "ключ"]) | keys, kinds, max_size=6)
events = st.builds(
    Event,
    event=names,
    id=texts.filter(bool),
    value=st.none() | numbers,
    values=st.none() | st.dictionaries(keys, st.none() | numbers, max_size=4),
    props=props,
    resent=st.none() | times,
)


def accepted(some: list[Event], *, received_ms: int = 7) -> Accepted:
    stamps = list(range(len(some)))
    keys = {key for event in some for key in event.props or ()}
    return Accepted(some, stamps, stamps, [2 * stamp for stamp in stamps], received_ms, keys)


def present(mapping: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (mapping or {}).items() if value is not None}


@given(st.lists(st.lists(events, max_size=5), min_size=1, max_size=4).filter(any))
@settings(max_examples=150, deadline=None)
def test_decoding_gives_back_what_was_encoded(requests: list[list[Event]]) -> None:
    batch = columns.batch([accepted(some, received_ms=n) for n, some in enumerate(requests)])
    decoded = frame.decode(frame.encode(batch))
    assert decoded.equals(batch.replace_schema_metadata(None))
    sent = [
        (received, position, event) for received, some in enumerate(requests) for position, event in enumerate(some)
    ]
    for (received, position, event), row in zip(sent, columns.rows(decoded), strict=True):
        assert (row["event"], row["id"], row["tenant"]) == (event.event, event.id, "main")
        assert (row["time"], row["shift"], row["received"]) == (position, position * 2, received)
        assert (row["value"], row["resent"]) == (event.value, event.resent)
        assert row["props"] == present(event.props)
        assert row["values"] == (None if event.values is None else present(event.values))


@given(st.lists(events, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_of_the_sparse_columns_only_empty_ones_are_left_out(some: list[Event]) -> None:
    batch = columns.batch([accepted(some)])
    asked = frame.decode(frame.encode(batch), only={"time", "resent", "rest"})
    held = [name for name in ("resent", "rest") if batch.column(name).null_count < len(some)]
    assert asked.schema.names == ["time", *held]
    assert all(asked[name].equals(batch[name]) for name in asked.schema.names)


@given(st.lists(events, min_size=1, max_size=5), st.data())
@settings(max_examples=60, deadline=None)
def test_a_truncated_frame_is_never_taken_for_another_one(some: list[Event], data: st.DataObject) -> None:
    batch = columns.batch([accepted(some)])
    payload = frame.encode(batch)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    try:
        decoded = frame.decode(cut)
    except frame.FrameError:
        return
    assert decoded.equals(batch.replace_schema_metadata(None))


@given(st.lists(events, min_size=1, max_size=5), st.data())
@settings(max_examples=300, deadline=None)
def test_a_changed_byte_raises_a_frame_error_or_still_gives_whole_columns(
    some: list[Event], data: st.DataObject
) -> None:
    # Which of the two is not said: the log's checksum covers the payload. Here it must only never break the reader.
    payload = bytearray(frame.encode(columns.batch([accepted(some)])))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decoded = frame.decode(bytes(payload))
    except frame.FrameError:
        return
    decoded.validate(full=True)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_not_a_frame(payload: bytes) -> None:
    with pytest.raises(frame.FrameDamaged):
        frame.decode(payload)


def stream(batch: pa.RecordBatch, *, version: bytes | None = b"1", times: int = 1) -> bytes:
    metadata = {} if version is None else {b"tallymark.frame": version}
    batch = batch.replace_schema_metadata(metadata)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        for _ in range(times):
            writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def test_another_version_is_named_and_refused() -> None:
    batch = columns.batch([accepted([Event("view", "1")])])
    with pytest.raises(frame.UnknownFrameVersion, match="version b'3'; this release reads b'1' and b'2': upgrade it"):
        frame.decode(stream(batch, version=b"3"))


def version(payload: bytes) -> bytes:
    with pa.ipc.open_stream(payload) as reader:
        return dict(reader.schema.metadata)[b"tallymark.frame"]


Histogram = dict[int, int] | None
histograms = st.none() | st.dictionaries(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1), max_size=5)


def with_histograms(batch: pa.RecordBatch, found: list[Histogram]) -> pa.RecordBatch:
    pairs = [None if each is None else list(each.items()) for each in found]
    place = batch.schema.get_field_index("value") + 1
    return batch.add_column(place, "histogram", pa.array(pairs, columns.HISTOGRAM))


@given(st.lists(st.tuples(events, histograms), min_size=1, max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_ready_made_histograms_come_back_also_from_a_piece(
    some: list[tuple[Event, Histogram]], data: st.DataObject
) -> None:
    batch = with_histograms(columns.batch([accepted([event for event, _ in some])]), [each for _, each in some])
    start = data.draw(st.integers(0, len(some) - 1))
    payload = frame.encode(batch.slice(start))
    assert version(payload) == b"2"
    decoded = frame.decode(payload)
    assert [row["histogram"] for row in columns.rows(decoded)] == [each for _, each in some][start:]
    assert [row["id"] for row in columns.rows(decoded)] == [event.id for event, _ in some][start:]
    assert frame.decode(payload, only={"time"}).schema.names == ["time"]


def test_a_frame_without_histograms_stays_readable_for_the_release_before() -> None:
    payload = frame.encode(columns.batch([accepted([Event("view", "1")])]))
    assert version(payload) == b"1"
    assert [row["histogram"] for row in columns.rows(frame.decode(payload))] == [None]


def test_a_frame_of_version_1_has_no_histograms_so_one_that_does_is_damaged() -> None:
    # That is what the release before says of it, and why version 2 exists.
    batch = with_histograms(columns.batch([accepted([Event("m", "1")])]), [{3: 1}])
    with pytest.raises(frame.FrameDamaged, match="unknown column histogram of type map<int32, int64>"):
        frame.decode(stream(batch, version=b"1"))
    assert frame.decode(stream(batch, version=b"2")).num_rows == 1


def test_histograms_of_another_type_are_damage() -> None:
    batch = columns.batch([accepted([Event("m", "1")])])
    other = batch.append_column("histogram", pa.array([[("a", 1.0)]], columns.VALUES))
    with pytest.raises(frame.FrameDamaged, match="column histogram is not of type map<int32, int64>"):
        frame.decode(stream(other, version=b"2"))


def test_large_histograms_are_cut_into_frames_by_their_weight() -> None:
    rng = np.random.default_rng(5)

    def large() -> Histogram:
        slots = rng.choice(2**31 - 1, 4_000, replace=False).tolist()
        return dict(zip(slots, rng.integers(0, 2**60, 4_000).tolist(), strict=True))

    found = [large() if n % 10 == 0 else None for n in range(400)]
    batch = with_histograms(columns.batch([accepted([Event("m", str(n)) for n in range(400)])]), found)
    split = list(frame.frames(batch))
    assert 2 <= len(split) <= 5
    assert all(len(payload) <= frame.MAX_FRAME_BYTES for _, payload in split)
    rows = [row for _, payload in split for row in columns.rows(frame.decode(payload))]
    assert [(row["id"], row["histogram"]) for row in rows] == [(str(n), each) for n, each in enumerate(found)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: stream(b, version=None), "not a frame"),
        (lambda b: stream(b, times=0), "without a record batch"),
        (lambda b: stream(b, times=2), "more than one record batch"),
        (lambda b: stream(b.drop_columns(["hash_low"])), "without column hash_low"),
        (lambda b: stream(b.set_column(5, "time", b["id"])), "without column time of type int64"),
        (lambda b: stream(b.append_column("surprise", b["id"])), "unknown column surprise"),
        (lambda b: stream(b.append_column("prop.x", pa.array([b"x"]))), "unknown column prop.x"),
        (lambda b: stream(b.append_column("values", b["id"])), "values is not of type"),
        (lambda b: stream(b.append_column("id", b["id"])), "two columns of one name"),
    ],
)
def test_a_stream_with_other_content_is_not_a_frame(change: Any, words: str) -> None:
    with pytest.raises(frame.FrameDamaged, match=words):
        frame.decode(change(columns.batch([accepted([Event("view", "1")])])))


def test_what_is_too_large_for_one_frame_is_split_in_order() -> None:
    rng = np.random.default_rng(1)
    some = [Event("view", rng.bytes(100).hex()) for _ in range(20_000)]
    split = list(frame.frames(columns.batch([accepted(some)])))
    assert len(split) > 1
    assert all(len(payload) <= frame.MAX_FRAME_BYTES for _, payload in split)
    assert [row["id"] for _, payload in split for row in frame.decode(payload).select(["id"]).to_pylist()] == [
        event.id for event in some
    ]
    assert [events for events, _ in split] == [frame.decode(payload).num_rows for _, payload in split]


def test_more_events_than_a_frame_holds_are_split() -> None:
    some = [Event("view", "same")] * (frame.MAX_FRAME_EVENTS + 1)
    assert [events for events, _ in frame.frames(columns.batch([accepted(some)]))] == [32_769, 32_768]


class Encoding:
    """Adds up what `frame.encode` makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = self.calls = 0
        self._encode = frame.encode
        monkeypatch.setattr(frame, "encode", self)

    def __call__(self, batch: pa.RecordBatch) -> bytes:
        payload = self._encode(batch)
        self.bytes += len(payload)
        self.calls += 1
        return payload


def random_text(rng: np.random.Generator, size: int) -> str:
    """Letters that hardly compress."""
    return "e" + base64.b64encode(rng.bytes(size)).decode()[: size - 1]


@pytest.mark.parametrize(("count", "size"), [(10_000, 128), (24_000, 41)])
def test_a_name_for_every_event_costs_what_its_names_take(
    monkeypatch: pytest.MonkeyPatch, count: int, size: int
) -> None:
    rng = np.random.default_rng(1)
    batch = columns.batch([accepted([Event(random_text(rng, size), str(n)) for n in range(count)])])
    encoding = Encoding(monkeypatch)
    split = list(frame.frames(batch))
    assert sum(events for events, _ in split) == count
    assert all(len(payload) <= frame.MAX_FRAME_BYTES for _, payload in split)
    assert len(split) <= batch.nbytes // 500_000 + 1
    assert sum(len(payload) for _, payload in split) < 1.2 * batch.nbytes
    assert encoding.bytes < 2.5 * batch.nbytes, "the whole once, its pieces once"
    names = [name for _, payload in split for name in frame.decode(payload)["event"].dictionary.to_pylist()]
    assert len(names) == count, "each in one frame only"


def test_large_events_among_small_ones_are_encoded_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two halves of a frame side by side, again and again among thousands of small events.
    rng = np.random.default_rng(2)
    large = [{random_text(rng, 128): 1.0 for _ in range(4000)} for _ in range(16)]
    some = [Event("m", str(n), values=large[n // 1000] if n % 1000 < 2 else None) for n in range(16_000)]
    batch = columns.batch([accepted(some)])
    encoding = Encoding(monkeypatch)
    split = list(frame.frames(batch))
    assert all(len(payload) <= frame.MAX_FRAME_BYTES for _, payload in split)
    assert encoding.bytes < 4 * batch.nbytes
    assert len(split) <= 40
    assert [row["id"] for _, payload in split for row in frame.decode(payload).select(["id"]).to_pylist()] == [
        event.id for event in some
    ]


def test_what_compresses_worse_than_the_rest_is_cut_again() -> None:
    rng = np.random.default_rng(3)
    some = [Event("view", "same" * 50) for _ in range(20_000)] + [
        Event("view", rng.bytes(100).hex()) for _ in range(20_000)
    ]
    split = list(frame.frames(columns.batch([accepted(some)])))
    assert all(len(payload) <= frame.MAX_FRAME_BYTES for _, payload in split)
    assert sum(events for events, _ in split) == 40_000


def test_the_largest_event_of_all_fits_into_a_frame() -> None:
    """Whatever validation lets through can be written: here all its limits at once, in what compresses least."""
    rng = np.random.default_rng(4)
    letters = [chr(letter) for letter in (*range(1, 8), *range(14, 32))]

    def dear(size: int) -> str:
        return "".join(rng.choice(letters, size))  # six bytes each in JSON

    largest = {
        "event": "e" * 128,
        "id": "".join(chr(0x10000 + int(n)) for n in rng.integers(0, 60_000, 256)),
        "values": {random_text(rng, 128): float(number) for number in rng.random(4096)},
        "props": {dear(128): dear(1024) for _ in range(64)},
        "value": 0.1,
    }
    others = {"event": "x", "props": {random_text(rng, 128): n for n in range(64)}}
    both = [largest, *[others] * 9]
    clocks = Clocks(accept_past_ms=1, accept_future_ms=1, tolerance_ms=1)
    request = validate(Delivery(msgspec.json.encode(both), 0), clocks, max_events=10)
    assert request.refusals == []
    batch = columns.batch([request]).slice(0, 1)
    # Its properties have no columns, since others are commoner, and so cost most.
    assert len(batch["rest"][0].as_py().encode()) > 400_000
    ((_, payload),) = frame.frames(batch)
    assert 800_000 < len(payload) <= frame.MAX_FRAME_BYTES


def test_one_event_that_is_too_large_is_handed_over_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    monkeypatch.setattr(frame, "MAX_FRAME_BYTES", 10_000)
    some = [Event("m", "1"), Event("m", "2", values={random_text(rng, 128): 1.0 for _ in range(200)}), Event("m", "3")]
    split = list(frame.frames(columns.batch([accepted(some)])))
    assert [events for events, _ in split] == [1, 1, 1]
    assert [len(payload) <= 10_000 for _, payload in split] == [True, False, True]


def test_a_frame_with_events_of_another_tenant_is_not_counted_as_mains_by_the_release_before() -> None:
    """That one reads version 1 without looking whose events they are; at a newer version it stops."""
    mine, theirs = (accepted([Event("view", "1")]) for _ in range(2))
    theirs.tenant = "acme"
    for requests, expected in (([mine], b"1"), ([theirs], b"2"), ([mine, theirs], b"2")):
        ((_, payload),) = frame.frames(columns.batch(requests))
        assert version(payload) == expected
        assert frame.decode(payload).column("tenant").to_pylist() == [each.tenant for each in requests]
    # A piece of a mixed commit that has only events of `main` is as before.
    assert version(frame.encode(compact(columns.batch([mine, theirs]).slice(0, 1)))) == b"1"
