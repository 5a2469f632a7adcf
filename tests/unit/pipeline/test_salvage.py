"""Halving a range that fails until only the guilty records are left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.log.protocol import LogDamaged, Outgoing
from tallymark.pipeline.salvage import burial, salvage
from tallymark.store.model import Stretch
from tallymark.testing import MemoryLog


def a_log(records: int) -> MemoryLog:
    log = MemoryLog(1)
    log.append([Outgoing(0, b"payload", 3) for _ in range(records)])
    return log


@given(records=st.integers(0, 40), deadly=st.sets(st.integers(0, 39)))
def test_exactly_the_guilty_are_buried_and_the_rest_is_processed_in_order(records, deadly):
    deadly = {offset for offset in deadly if offset < records}
    done: list[int] = []

    def process(stretches):
        for stretch in stretches:
            offsets = range(stretch.start, stretch.end)
            if deadly & set(offsets):
                raise RuntimeError("task failed")
            done.extend(offsets)

    buried = salvage(
        Stretch(0, 0, records),
        process=process,
        bury=lambda result: done.append(result.stretch.start),
        log=a_log(records),
    )
    assert buried == sorted(deadly)
    assert done == list(range(records))


def test_a_burial_keeps_the_record_and_counts_its_events_as_dead():
    result = burial(Stretch(0, 2, 3), RuntimeError("worker exited"), a_log(4))
    (letter,) = result.dead
    assert (letter.reason, letter.events, letter.raw, letter.offset) == ("kills_its_task", 3, b"payload", 2)
    assert result.buried
    assert (result.ledger.accepted, result.ledger.dead, result.ledger.missing) == (3, 3, 0)


def test_a_record_that_cannot_even_be_read_is_buried_as_damaged():
    class Damaged(MemoryLog):
        def read(self, partition, start, end):
            raise LogDamaged("segment 0, offset 2: checksum differs")

    log = Damaged(1)
    log.append([Outgoing(0, b"payload", 3) for _ in range(4)])
    (letter,) = burial(Stretch(0, 2, 3), RuntimeError("task failed"), log).dead
    # The index still knows how many events are lost with it.
    assert (letter.reason, letter.raw, letter.events) == ("damaged", b"", 3)
    assert "checksum differs" in letter.detail


def test_a_worker_killed_while_its_record_is_tried_alone_buries_nothing():
    tries: list[Stretch] = []

    def process(stretches):
        tries.extend(stretches)
        if len(tries) == 1:
            raise RuntimeError("the worker was killed")

    assert salvage(Stretch(0, 0, 1), process=process, bury=must_not_bury, log=a_log(1)) == []
    assert tries == [Stretch(0, 0, 1), Stretch(0, 0, 1)]


def test_a_spark_that_died_buries_nothing():
    """It fails every record; all of them stay in the log for the next start."""

    def process(stretches):
        raise ConnectionError("the JVM is gone")

    with pytest.raises(ConnectionError):
        salvage(Stretch(0, 0, 16), process=process, bury=must_not_bury, log=a_log(16))


def must_not_bury(result):
    pytest.fail(f"record {result.stretch.start} was buried")
