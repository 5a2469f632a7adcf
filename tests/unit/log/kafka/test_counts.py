"""Events between two offsets: exact for what was read, and estimated, within a bound of work, for the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.log.kafka import counts
from tallymark.log.kafka.counts import EventCounts
from tallymark.log.kafka.record import HEADER, Header, encode


class Message:
    def __init__(self, events, size=1):
        self._events, self._size = events, size

    def __len__(self):
        return self._size

    def headers(self):
        return None if self._events is None else [(HEADER, encode(Header(self._events, 1, 1, "id")))]


class Partition:
    """Messages, and how many of them were fetched."""

    def __init__(self, events, size=1):
        self.messages = [Message(each, size) for each in events]
        self.fetched = 0

    def fetch(self, partition, start, count):
        found = self.messages[start : start + max(1, count - 1)]  # a fetch may bring less than was asked for
        self.fetched += len(found)
        return found


@given(st.lists(st.integers(0, 100), max_size=30), st.data())
def test_any_questions_in_any_order(events, data):
    found = EventCounts(0, Partition(events).fetch)
    for _ in range(5):
        start = data.draw(st.integers(0, len(events)))
        end = data.draw(st.integers(start, len(events)))
        assert found.between(start, end) == sum(events[start:end])


def test_only_what_is_new_is_read():
    partition = Partition([1] * 100)
    found = EventCounts(0, partition.fetch)
    assert found.between(0, 50) == 50
    assert found.between(30, 60) == 30
    assert partition.fetched == 60


def test_messages_of_others_hold_no_events():
    assert EventCounts(0, Partition([3, None, 4]).fetch).between(0, 3) == 7


@pytest.mark.parametrize(("limit", "size"), [("MAX_RECORDS", 1), ("MAX_BYTES", 1)])
def test_beyond_the_limit_the_rest_is_like_what_was_read_until_it_is_read(monkeypatch, limit, size):
    monkeypatch.setattr(counts, limit, 10)
    monkeypatch.setattr(counts, "_AT_ONCE", 6)
    partition = Partition([2] * 10 + [5] * 90, size)
    found = EventCounts(0, partition.fetch)
    assert found.between(0, 100) == 200
    assert partition.fetched <= 16
    for _ in range(10):
        last = found.between(0, 100)
    assert last == 20 + 450


def test_what_lies_behind_is_forgotten():
    partition = Partition([1] * 40_000)
    found = EventCounts(0, partition.fetch)
    for start in range(0, 40_000, 100):
        assert found.between(start, start + 100) == 100
    assert len(found._sums) < 2 * counts.MAX_RECORDS
    assert partition.fetched == 40_000
