"""The header of a message says what its frame is; what is not ours is told apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.log import LogDamaged, Record
from tallymark.log.kafka.record import HEADER, Header, NotOurs, decode, encode, record_of


class Message:
    """As much of a Kafka message as is looked at."""

    def __init__(self, headers, value=b"frame"):
        self._headers, self._value = headers, value

    def headers(self):
        return self._headers

    def value(self):
        return self._value

    def topic(self):
        return "t.events"

    def partition(self):
        return 3

    def offset(self):
        return 17

    def timestamp(self):
        return 2, 1_000


HEADERS = st.builds(
    Header,
    events=st.integers(0, 2**32 - 1),
    instance=st.integers(0, 2**63 - 1),
    sequence=st.integers(0, 2**64 - 1),
    partitions=st.integers(0, 2**32 - 1),
    partition_by=st.text(st.characters(codec="utf-8"), max_size=100),
)


@given(HEADERS)
def test_a_header_is_read_as_it_was_written(header):
    assert decode(encode(header)) == header


def test_a_message_becomes_a_record():
    header = Header(events=5, instance=7, sequence=9, partitions=2, partition_by="id")
    others = [("traceparent", b"00-1"), ("nothing", None)]
    assert record_of(Message([*others, (HEADER, encode(header))])) == Record(3, 17, 1_000, 5, 7, 9, b"frame")
    assert record_of(Message([(HEADER, encode(header))], value=None)).payload == b""


@pytest.mark.parametrize(
    "headers", [None, [], [("other", b"x")], [(HEADER, None)], [(HEADER, b"")], [(HEADER, b"\1" * 20)]]
)
def test_what_is_not_ours_is_damage_with_its_place(headers):
    with pytest.raises(LogDamaged, match=r"t\.events partition 3: offset 17 is not a frame"):
        record_of(Message(headers))


def test_a_newer_version_asks_for_a_newer_release():
    content = b"\2" + encode(Header(1, 2, 3, 4, "id"))[1:]
    with pytest.raises(NotOurs, match=r"version 2; this release reads 1: upgrade it"):
        decode(content)
