"""A stretch stays within its limits, also where what comes later is larger than what came first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.log.kafka.record import HEADER, Header, encode
from tallymark.log.kafka.stretch import MOST_RECORDS, fitting_end


class Message:
    def __init__(self, offset, events, size):
        self._offset, self._events, self._size = offset, events, size

    def offset(self):
        return self._offset

    def headers(self):
        return [(HEADER, encode(Header(self._events, 1, 1, 1, "id")))]

    def __len__(self):
        return self._size


def ended(size_at, *, max_bytes=64_000_000, max_events=10**9, records=10_000):
    def peek(start, end):
        assert 0 <= start <= end <= records
        return [Message(offset, 1, size_at(offset)) for offset in range(start, end)]

    end = fitting_end(peek, 0, records, max_events=max_events, max_bytes=max_bytes)
    return end, sum(map(size_at, range(end)))


@pytest.mark.parametrize("small", [10, 20, 40, 100, 1_000, 4_000])
def test_small_frames_before_large_ones(small):
    end, size = ended(lambda offset: 300 if offset < small else 1_000_000)
    assert end >= min(small, 64)
    assert size <= 1.25 * 64_000_000


def test_large_frames_in_the_middle():
    _, size = ended(lambda offset: 1_000_000 if 1_000 < offset < 3_000 else 300)
    assert size <= 1.25 * 64_000_000


def test_small_frames_make_a_long_stretch():
    assert ended(lambda offset: 300)[0] == MOST_RECORDS
    assert ended(lambda offset: 300, max_events=500)[0] == 500


@given(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=200), st.integers(1, 10**8))
def test_there_is_always_a_record_and_never_one_beyond_the_end(sizes, max_bytes):
    end, _ = ended(lambda offset: sizes[offset], max_bytes=max_bytes, records=len(sizes))
    assert 1 <= end <= len(sizes)
