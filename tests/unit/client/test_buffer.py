"""Batches are cut by number, by bytes and by age, and nothing changes places."""

from hypothesis import given
from hypothesis import strategies as st

from tallymark.client.buffer import Buffer


def buffer(now=lambda: 0.0, **limits) -> Buffer:
    return Buffer(**{"batch_events": 3, "batch_bytes": 100, "linger_s": 0.1, **limits}, now=now)


def drained(buffer: Buffer) -> list[list[bytes]]:
    batches = []
    while buffer.ready_at() is not None:
        batches.append(buffer.take().events)
    return batches


@given(st.lists(st.binary(min_size=1, max_size=150), max_size=40), st.integers(1, 5), st.integers(1, 200))
def test_whatever_goes_in_comes_out_in_order_in_batches_within_the_limits(events, batch_events, batch_bytes):
    filled = buffer(batch_events=batch_events, batch_bytes=batch_bytes)
    for number, event in enumerate(events, start=1):
        filled.add(event, len(event))
        assert filled.events == number
    batches = drained(filled)
    assert [event for batch in batches for event in batch] == events
    for batch in batches:
        assert len(batch) <= batch_events
        assert len(batch) == 1 or sum(map(len, batch)) <= batch_bytes


def test_the_sender_is_woken_by_the_first_event_and_by_a_full_batch_only():
    filled = buffer()
    assert [filled.add(b"x", 1) for _ in range(6)] == [True, False, True, True, False, True]


def test_a_batch_goes_when_its_oldest_event_has_lingered():
    times = iter([5.0, 9.0])
    filled = buffer(now=lambda: next(times))
    assert filled.ready_at() is None
    filled.add(b"x", 1)
    filled.add(b"y", 1)
    assert filled.ready_at() == 5.1
    filled.add(b"z", 1)
    assert filled.ready_at() == 0.0, "it is full, so it need not wait"
