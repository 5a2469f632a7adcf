"""Through when an answer is complete: the law, and its corners."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.fidelity.freshness import complete_through
from tallymark.fidelity.log_view import StreamView
from tallymark.fidelity.lost import CHECK_EVERY_S, LostRecords
from tallymark.log.protocol import LogLost, Outgoing
from tallymark.store.model import Ledger
from tallymark.testing import MemoryLog


def append(desk, partition, *, after_ms=0, events=1):
    desk.now_ms += after_ms
    desk.log.append([Outgoing(partition, b"", events)])


def fresh(desk):
    return desk.ask("/v1/meters/views/total")["freshness"]


def test_with_nothing_in_flight_it_is_complete_through_now(desk):
    append(desk, 0)
    append(desk, 1)
    desk.store.positions = {0: 1, 1: 1}
    assert fresh(desk) == {
        "complete_through": "2026-11-15T12:30:30.000Z",
        "final_through": "2026-11-08T12:30:30.000Z",
        "lag_ms": 0,
        "loss": 0,
        "sources": ["hot"],
        "approximate": False,
        "meter_version": 1,
    }


def test_it_is_complete_through_the_first_record_that_is_not_applied(desk):
    #  12:30:30     +100        +200       +1000: now
    #  [ 0/0        1/0         0/1
    #    applied    applied     waits
    append(desk, 0)
    append(desk, 1, after_ms=100)
    append(desk, 0, after_ms=100)
    desk.now_ms += 800
    desk.store.positions = {0: 1, 1: 1}
    assert fresh(desk)["complete_through"] == "2026-11-15T12:30:30.200Z"
    assert fresh(desk)["lag_ms"] == 800
    desk.store.positions = {1: 1}
    assert fresh(desk)["complete_through"] == "2026-11-15T12:30:30.000Z"


def test_a_record_appended_after_the_clock_was_read_does_not_matter(desk):
    append(desk, 0, after_ms=7)
    view = StreamView(lambda: desk.log)
    assert complete_through({}, view, now_ms=desk.now_ms - 7, clock_ms=lambda: desk.now_ms) == desk.now_ms - 7


def test_while_a_sync_is_slow_it_does_not_go_beyond_the_record_that_is_being_synced(desk):
    #  12:30:30           +200             +4 s: now
    #  [ 0/0: applied     0/1: written, not durable
    append(desk, 0)
    append(desk, 0, after_ms=200)
    desk.log.unsynced = {0: 1}
    desk.now_ms += 4000
    desk.store.positions = {0: 1}
    assert fresh(desk)["complete_through"] == "2026-11-15T12:30:30.200Z"


def test_after_the_clock_was_set_back_nobody_knows_while_something_waits(desk):
    append(desk, 0)
    append(desk, 0)
    desk.now_ms -= 3_600_000
    desk.store.positions = {0: 1}
    assert (fresh(desk)["complete_through"], fresh(desk)["lag_ms"]) == (None, None)
    desk.store.positions = {0: 2}
    assert fresh(desk)["complete_through"] == "2026-11-15T11:30:30.000Z"


def test_buckets_after_it_are_not_complete(desk):
    append(desk, 0)
    desk.now_ms += 120_000
    (line,) = desk.ask("/v1/meters/views/series?from=-4m")["series"]
    assert [point["count"] for point in line["points"]] == [0, 0, None, None, None]


def test_before_there_is_a_log_nothing_is_late(desk):
    desk.sources = None
    view = StreamView(_no_log)
    assert complete_through({}, view, now_ms=5, clock_ms=lambda: 5) == 5
    assert complete_through({0: 0}, view, now_ms=5, clock_ms=lambda: 5) == 5


def test_counts_without_their_log_are_of_an_unknown_age(desk):
    assert complete_through({0: 3}, StreamView(_no_log), now_ms=5, clock_ms=lambda: 5) is None


def test_a_record_that_is_gone_leaves_it_unknown():
    class Gone(MemoryLog):
        def append_ms(self, partition, offset):
            raise LogLost("retention deleted it")

    log = Gone(1)
    log.append([Outgoing(0, b"", 1)])
    assert complete_through({}, StreamView(lambda: log), now_ms=5, clock_ms=lambda: 5) is None


def test_a_log_that_comes_later_is_found():
    coming = []

    def open_reader():
        if not coming:
            raise LogLost("not yet")
        return coming[0]

    view = StreamView(open_reader)
    assert view.positions() is None
    coming.append(MemoryLog(3))
    assert len(view.positions()) == 3


def test_loss_is_what_the_ledger_cannot_account_for(desk):
    desk.store.ledgers = {0: Ledger(accepted=10, counted=7, duplicate=1, dead=1), 1: Ledger(accepted=5, counted=3)}
    assert fresh(desk)["loss"] == 3


def test_loss_is_unknown_while_records_are_gone_that_nobody_counted(desk):
    desk.store.letters = {("pipeline", "lost_by_retention"): 0}  # nobody can know how many events they held
    assert desk.ask("/v1/status")["freshness"]["loss"] is None
    assert fresh(desk)["loss"] is None


def test_the_store_is_asked_for_lost_records_only_now_and_then(desk):
    now, looks = [0.0], []
    lost = LostRecords(clock=lambda: now[0])
    desk.store.dead_letters.counts = lambda *, tenant: looks.append(now[0]) or desk.store.letters
    for _ in range(3):
        assert not lost.known(desk.store)
    desk.store.letters = {("pipeline", "lost_by_retention"): 0}
    now[0] += CHECK_EVERY_S
    assert lost.known(desk.store)
    assert lost.known(desk.store)
    assert looks == [0.0, CHECK_EVERY_S]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=40), st.data())
def test_everything_appended_before_it_is_applied(appends, data):
    now = [1000]
    log = MemoryLog(3, clock=lambda: now[0])
    records = []
    for partition, wait in appends:
        now[0] += wait
        (done,) = log.append([Outgoing(partition, b"", 1)])
        records.append((done.append_ms, partition, done.offset))
    ends = {number: standing.synced for number, standing in log.positions().items()}
    applied = {number: data.draw(st.integers(0, end)) for number, end in ends.items()}
    later = now[0] + 1
    through = complete_through(applied, StreamView(lambda: log), now_ms=later, clock_ms=lambda: later)
    missing = [at for at, partition, offset in records if offset >= applied[partition]]
    assert through == min([*missing, later])


def _no_log():
    raise LogLost("no such stream")


@pytest.mark.parametrize("error", [LogLost("gone"), OSError("disk")])
def test_a_log_that_cannot_be_read_is_no_crash(error):
    def broken():
        raise error

    assert StreamView(broken).positions() is None
    assert StreamView(broken).append_ms(0, 0) is None
