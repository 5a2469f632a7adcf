"""Where counting begins, and when it must not."""

import pytest

from tallymark.log.protocol import Outgoing, Positions
from tallymark.pipeline import start_positions
from tallymark.store.address import SqliteAddress
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import WrongLog
from tallymark.testing import MemoryLog


class Log(MemoryLog):
    """A log whose oldest records, or whose newest, are not there."""

    def __init__(self, records: int, *, first: int = 0) -> None:
        super().__init__(1)
        self.append([Outgoing(0, b"", 1)] * records)
        self.standings = [Positions(first, records, records, None)]

    def positions(self):
        return {0: self.standings.pop(0) if len(self.standings) > 1 else self.standings[0]}


@pytest.fixture
def store(tmp_path):
    opened = SqliteAddress(str(tmp_path / "store.db")).open_store()
    yield opened
    opened.close()


def apply(store, start: int, end: int) -> None:
    store.sink.apply([StretchResult(Stretch(0, start, end), "memory", 0, (), b"", Ledger())], now_ms=1)


def test_a_new_store_begins_where_the_log_does(store):
    start_positions.check(Log(5, first=3), store.sink)
    assert store.sink.applied("memory") == {0: 3}


def test_records_deleted_before_they_were_counted_stop_the_job_and_name_the_way_out(store):
    apply(store, 0, 2)
    with pytest.raises(WrongLog, match=r"applied up to 2, but the log begins at 4.* deleted 2 records.*--skip-lost"):
        start_positions.check(Log(6, first=4), store.sink)
    assert store.sink.applied("memory") == {0: 2}


def test_asked_to_skip_them_it_goes_on_and_leaves_a_letter(store):
    apply(store, 0, 2)
    start_positions.check(Log(6, first=4), store.sink, skip_lost=True)
    assert store.sink.applied("memory") == {0: 4}
    ((_, letter),) = store.dead_letters.newest()
    assert (letter.reason, letter.partition, letter.offset) == ("lost_by_retention", 0, 2)
    assert "deleted 2 records" in letter.detail


def test_a_log_that_ends_before_what_was_applied_is_refused(store):
    apply(store, 0, 5)
    with pytest.raises(WrongLog, match="up to 5, but the log ends at 3"):
        start_positions.check(Log(3), store.sink)


def test_a_new_leader_gets_time_to_show_what_the_old_one_had(store):
    apply(store, 0, 5)
    log = Log(5)
    log.slack_ms = 30_000  # several brokers stamp it
    log.standings = [Positions(0, 3, 3, None), Positions(0, 4, 4, None), Positions(0, 5, 5, None)]
    waits: list[float] = []
    start_positions.check(log, store.sink, wait=waits.append, clock=lambda: 0.0)
    assert len(waits) == 2


def test_its_time_ends(store):
    apply(store, 0, 5)
    log = Log(3)
    log.slack_ms = 30_000
    now = iter(range(0, 1000, 10))
    with pytest.raises(WrongLog, match="the log ends at 3"):
        start_positions.check(log, store.sink, wait=lambda _: None, clock=lambda: float(next(now)))


def test_a_partition_of_which_nothing_was_counted_yet_is_missed_too(store):
    start_positions.check(Log(0), store.sink)
    assert store.sink.applied("memory") == {0: 0}
    with pytest.raises(WrongLog, match=r"deleted 900 records.*--skip-lost"):
        start_positions.check(Log(1000, first=900), store.sink)


def test_a_store_that_knows_other_partitions_does_not_take_a_loss_for_a_beginning(store):
    store.sink.begin("memory", 1, 5)
    with pytest.raises(WrongLog, match="deleted 4 records"):
        start_positions.check(Log(6, first=4), store.sink)
