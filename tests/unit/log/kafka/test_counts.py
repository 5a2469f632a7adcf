"""Events between two offsets: exact for what was read, and estimated, within a bound of work, for the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.log.kafka import counts
from tallymark.log.kafka.counts import EventCounts
from tallymark.log.kafka.record import HEADER, Header, encode


class Message:
    def __init__(self, offset, events, size=1):
        self._offset, self._events, self._size = offset, events, size

    def offset(self):
        return self._offset

    def __len__(self):
        return self._size

    def headers(self):
        return None if self._events is None else [(HEADER, encode(Header(self._events, 1, 1, 1, "id")))]


class Partition:
    """Messages, and how many of them were fetched."""

    def __init__(self, events, size=1):
        self.messages = [Message(offset, each, size) for offset, each in enumerate(events)]
        self.fetched = 0

    def fetch(self, partition, start, count):
        found = self.messages[start : start + max(1, count - 1)]  # a fetch may bring less than was asked for
        self.fetched += len(found)
        return [each for each in found if each._events != "gap"], start + len(found)


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


def test_what_cannot_be_read_holds_no_events():
    found = EventCounts(0, Partition([3, "gap", "gap", "gap", 4]).fetch)
    assert [found.between(start, 5) for start in range(5)] == [7, 4, 4, 4, 4]
    found = EventCounts(0, Partition(["gap", "gap"]).fetch)
    assert found.between(0, 2) == 0


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


def test_a_pipeline_that_is_down_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(counts, "MAX_SUMS", 1_000)
    events = [number % 7 for number in range(40_000)]
    partition = Partition(events)
    found = EventCounts(0, partition.fetch)
    for end in range(400, 40_001, 400):
        assert found.between(0, end) == sum(events[:end]), "exact from where it began"
        assert len(found._sums) == len(found._offsets) <= 1_000
    for start in range(0, 40_000, 777):
        assert found.between(start, 40_000) == pytest.approx(sum(events[start:]), abs=100)
    assert partition.fetched == 40_000, "and nothing is read twice"
