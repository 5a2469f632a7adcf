"""The past of a partition as claims read it: without what was buried, and with what can still be read."""

import numpy as np
import pytest

from tallymark.log.protocol import LogDamaged, Outgoing
from tallymark.pipeline.counting import claim_table, count
from tallymark.pipeline.counting.claims import Claims
from tallymark.pipeline.counting.history import LogHistory
from tallymark.pipeline.counting.salvage import burial
from tallymark.store.model import Ledger, Stretch
from tallymark.testing import MemoryLog


class Partition:
    """One partition that is counted as tasks do it, with burials."""

    def __init__(self, build, folder) -> None:
        self.build, self.folder = build, folder
        self.log = MemoryLog(1, clock=lambda: build.at_ms("12:00:00"))
        self.buried: frozenset[int] = frozenset()
        self.ledger = Ledger()

    def append(self, *ids: str) -> None:
        events, payload = self.build.payload([self.build.event(each) for each in ids])
        self.log.append([Outgoing(0, payload, events)])

    def task(self, start: int, end: int, *, meters=None) -> Ledger:
        history = LogHistory(self.log, 0, skip=self.buried)
        with Claims(self.folder, 0, start=start, end=end, horizon_ms=600_000, history=history) as claims:
            records = self.log.read(0, start, end)
            meters = self.build.meters() if meters is None else meters
            return count.count(records, claims=claims, meters=meters).ledger

    def count(self, start: int, end: int) -> None:
        self.ledger += self.task(start, end)

    def bury(self, offset: int) -> None:
        self.ledger += burial(Stretch(0, offset, offset + 1), RuntimeError("worker exited"), self.log).ledger
        self.buried |= {offset}


@pytest.fixture
def partition(build, tmp_path):
    return Partition(build, tmp_path / "claims")


def test_a_retry_of_an_event_whose_record_killed_its_task_is_counted(partition, monkeypatch):
    #  a | b (kills its task, is buried) | b (the retry)
    partition.append("a")
    partition.append("b")
    partition.append("b")
    partition.count(0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(count, "expand", dies)
        with pytest.raises(ZeroDivisionError):
            partition.task(1, 2)
    partition.bury(1)
    partition.count(2, 3)
    ledger = partition.ledger
    assert (ledger.accepted, ledger.counted, ledger.dead, ledger.duplicate, ledger.missing) == (3, 2, 1, 0, 0)


def dies(*_, **__):
    raise ZeroDivisionError


def test_a_record_that_was_tried_without_meters_and_then_buried_claims_nothing(partition):
    """The search for the culprit counts a record with no meter, which goes well; it may be buried all the same."""
    partition.append("a")
    partition.append("b")
    partition.append("b")
    partition.count(0, 1)
    partition.task(1, 2, meters=())
    partition.bury(1)
    partition.count(2, 3)
    assert (partition.ledger.counted, partition.ledger.duplicate) == (2, 0)


@pytest.mark.parametrize("lost", [("0.claims", "0.side"), ("0.side",)])
def test_claims_rebuilt_from_the_log_leave_out_what_was_buried(partition, lost):
    partition.append("a")
    partition.append("b")
    partition.append("c")
    partition.append("a", "b", "c")
    partition.count(0, 1)
    partition.bury(1)
    partition.count(2, 3)
    for name in lost:
        (partition.folder / name).unlink()
    claim_table._opened.clear()
    partition.count(3, 4)
    # a and c were counted before; of b only this copy.
    assert (partition.ledger.counted, partition.ledger.duplicate, partition.ledger.dead) == (3, 2, 1)


def test_ids_are_those_of_every_record_but_the_buried(partition):
    for number in range(6):
        partition.append(f"{number}a", f"{number}b")

    def heads(skip, start=0, end=6):
        found = LogHistory(partition.log, 0, skip=frozenset(skip)).ids(start, end)
        return np.concatenate([chunk.high for chunk in found]).tolist()

    every = heads(())
    assert len(every) == 12
    assert heads({0, 3, 4}) == every[2:6] + every[10:]
    assert heads({5, 9}, 1, 6) == every[2:10]
    history = LogHistory(partition.log, 0, skip=frozenset({3}))
    assert [history.is_whole(*each) for each in ((0, 3), (3, 4), (2, 5), (4, 6))] == [True, False, False, True]


def test_a_counted_record_that_is_damaged_by_now_costs_only_its_own_ids(partition, caplog):
    class Damaged(MemoryLog):
        def read(self, partition, start, end):
            for record in super().read(partition, start, end):
                if record.offset == 1:
                    raise LogDamaged("segment 0, offset 1: checksum differs")
                yield record

    partition.log = Damaged(1)
    for number in range(3):
        partition.append(str(number))
    found = list(LogHistory(partition.log, 0).ids(0, 3))
    assert sum(len(chunk.high) for chunk in found) == 2
    assert "later copies of its events would count again" in caplog.text
