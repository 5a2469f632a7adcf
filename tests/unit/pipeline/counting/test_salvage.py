"""Halving a range that fails until only the guilty records are left out."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.log.protocol import LogDamaged, LogUnreachable, Outgoing
from tallymark.pipeline.counting.salvage import Blocked, burial, salvage, summary
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import StoreUnreachable
from tallymark.testing import MemoryLog


def a_log(records: int) -> MemoryLog:
    log = MemoryLog(1)
    log.append([Outgoing(0, b"payload", 3) for _ in range(records)])
    return log


class Counting:
    """Counts by a rule: `fails(offsets, meters)` says whether the task dies. Meters are 1 and 2."""

    def __init__(self, fails):
        self.fails = fails
        self.applied: list[StretchResult] = []
        self.tries = 0

    def count(self, stretch, *, only=None):
        self.tries += 1
        meters = set(self.live()) if only is None else set(only)
        if self.fails(set(range(stretch.start, stretch.end)), meters):
            raise RuntimeError("task failed")
        return StretchResult(stretch, "memory", 1, tuple(meters), b"", Ledger())

    def apply(self, result):
        self.applied.append(result)

    def live(self):
        return [1, 2]


def dies_on(*deadly):
    return lambda offsets, meters: bool(set(deadly) & offsets)


@given(records=st.integers(0, 40), deadly=st.sets(st.integers(0, 39)))
def test_exactly_the_guilty_are_buried_and_the_rest_is_counted_in_order(records, deadly):
    deadly = {offset for offset in deadly if offset < records}
    counting = Counting(dies_on(*deadly))
    assert salvage(Stretch(0, 0, records), counting=counting, log=a_log(records)) == sorted(deadly)
    offsets = [o for result in counting.applied for o in range(result.stretch.start, result.stretch.end)]
    assert offsets == list(range(records))
    assert {result.stretch.start for result in counting.applied if result.buried} == deadly


def test_a_meter_that_kills_the_task_is_set_aside_and_the_record_is_counted_by_the_others():
    counting = Counting(lambda offsets, meters: 5 in offsets and 2 in meters)
    assert salvage(Stretch(0, 4, 8), counting=counting, log=a_log(8)) == []
    (guilty,) = [result for result in counting.applied if result.broken]
    assert (guilty.stretch, guilty.meter_ids, guilty.broken) == (Stretch(0, 5, 6), (1,), {2: "task failed"})
    assert not any(result.buried for result in counting.applied)


def test_a_meter_that_fails_once_more_and_then_no_longer_is_not_blamed():
    """A machine short of something for a moment. Tries: the stretch, again, nothing, no meter, then meter 1 alone."""
    counting = Counting(lambda offsets, meters: bool(offsets) and counting.tries in (1, 2, 5))
    assert salvage(Stretch(0, 0, 1), counting=counting, log=a_log(1)) == []
    assert [(result.broken, result.buried, result.meter_ids) for result in counting.applied] == [({}, False, (1, 2))]


def test_a_store_that_fails_is_not_blamed_on_the_records():
    class LockedStore(Counting):
        def apply(self, result):
            raise OSError("database is locked")

    with pytest.raises(OSError, match="locked"):
        salvage(Stretch(0, 0, 4), counting=LockedStore(dies_on()), log=a_log(4))


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
    counting = Counting(lambda offsets, meters: counting.tries == 1)
    assert salvage(Stretch(0, 0, 1), counting=counting, log=a_log(1)) == []
    assert [result.buried for result in counting.applied] == [False]


def test_a_spark_that_died_buries_nothing():
    """It fails every record; all of them stay in the log for the next start."""
    counting = Counting(lambda offsets, meters: True)
    with pytest.raises(RuntimeError):
        salvage(Stretch(0, 0, 16), counting=counting, log=a_log(16))
    assert counting.applied == []


def test_a_log_that_comes_back_in_the_middle_of_the_search_costs_no_record():
    counting = Counting(lambda offsets, meters: False)
    # The stretch fails as long as the log is away, counting nothing never does; it comes back after some tries.
    counting.fails = lambda offsets, meters: bool(offsets) and counting.tries < 3
    assert salvage(Stretch(0, 0, 1), counting=counting, log=a_log(1)) == []
    assert [result.buried for result in counting.applied] == [False]


def test_a_record_that_fails_only_with_all_meters_together_is_buried():
    counting = Counting(lambda offsets, meters: 3 in offsets and meters == {1, 2})
    assert salvage(Stretch(0, 2, 5), counting=counting, log=a_log(5)) == [3]


@pytest.mark.parametrize("error", [LogUnreachable("no broker"), StoreUnreachable("no node")])
@pytest.mark.parametrize("pattern", ["fffff", "ffof", "foff", "ffoof", "ffoooof"])
def test_an_outage_is_blamed_on_nobody(error, pattern):
    class Flaky(Counting):
        """Fails as the pattern says, as tasks do whose log or store does not answer; counting nothing succeeds."""

        def count(self, stretch, *, only=None):
            self.tries += 1
            if stretch.start < stretch.end and pattern[min(self.tries, len(pattern)) - 1] == "f":
                raise RuntimeError(f"Job aborted … {type(error).__name__}: {error}")
            return StretchResult(stretch, "memory", 1, (1, 2), b"", Ledger())

    counting = Flaky(lambda offsets, meters: False)
    with pytest.raises(RuntimeError, match="Unreachable"):
        salvage(Stretch(0, 0, 1), counting=counting, log=a_log(1))
    assert not any(result.buried or result.broken for result in counting.applied)


class Short(Counting):
    """Tasks that fail by the rule because the machine is short of something, as Spark tells it."""

    def __init__(self, fails, why):
        super().__init__(fails)
        self.why = why

    def count(self, stretch, *, only=None):
        try:
            return super().count(stretch, only=only)
        except RuntimeError:
            raise RuntimeError(f"Job aborted … {self.why}") from None


NO_MEMORY = "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 2.00 GiB"
NO_DISK = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize("why", [NO_MEMORY, "MemoryError", NO_DISK, "OSError: [Errno 24] Too many open files"])
@pytest.mark.parametrize("meters", [{1, 2}, {2}, set()], ids=["all together", "one", "none"])
def test_a_machine_that_is_short_of_something_stops_no_meter_and_buries_nothing(why, meters):
    counting = Short(lambda offsets, counted: bool(offsets) and meters <= counted, why)
    with pytest.raises(RuntimeError, match="Error"):
        salvage(Stretch(0, 0, 4), counting=counting, log=a_log(4))
    assert counting.applied == []


def test_a_shortage_while_a_meter_is_tried_alone_is_not_blamed_on_it():
    counting = Counting(lambda offsets, meters: bool(offsets) and 2 in meters)
    count = counting.count

    def alone_it_is_short(stretch, *, only=None):
        try:
            return count(stretch, only=only)
        except RuntimeError:
            raise RuntimeError("worker crashed" if only is None else NO_MEMORY) from None

    counting.count = alone_it_is_short
    with pytest.raises(RuntimeError, match="allocate"):
        salvage(Stretch(0, 0, 1), counting=counting, log=a_log(1))
    assert counting.applied == []


def test_a_stretch_for_which_memory_is_short_is_counted_in_parts():
    counting = Short(lambda offsets, meters: len(offsets) > 2, NO_MEMORY)
    assert salvage(Stretch(0, 0, 8), counting=counting, log=a_log(8)) == []
    assert [(each.stretch.start, each.stretch.end) for each in counting.applied] == [(0, 2), (2, 4), (4, 6), (6, 8)]


@pytest.mark.parametrize("meters", [{2}, set()], ids=["one meter", "none"])
def test_a_record_for_which_memory_never_suffices_is_buried_at_the_fifth_search_and_no_meter_is_stopped(meters):
    counting = Short(lambda offsets, counted: 1 in offsets and meters <= counted, NO_MEMORY)
    shortages = Counter()
    for _ in range(4):
        with pytest.raises(RuntimeError, match="allocate"):
            salvage(Stretch(0, len(counting.applied), 3), counting=counting, log=a_log(3), shortages=shortages)
        assert [each.stretch for each in counting.applied] == [Stretch(0, 0, 1)]
    assert salvage(Stretch(0, 1, 3), counting=counting, log=a_log(3), shortages=shortages) == [1]
    assert [(each.buried, each.broken) for each in counting.applied] == [(False, {}), (True, {}), (False, {})]


def test_while_nothing_can_be_counted_at_all_memory_is_no_reason_to_bury():
    counting = Short(lambda offsets, meters: True, NO_MEMORY)
    shortages = Counter()
    for _ in range(20):
        with pytest.raises(RuntimeError, match="allocate"):
            salvage(Stretch(0, 0, 1), counting=counting, log=a_log(1), shortages=shortages)
    assert counting.applied == []


def test_a_full_disk_is_waited_for_however_long_it_takes():
    counting = Short(lambda offsets, meters: bool(offsets), NO_DISK)
    shortages = Counter()
    for _ in range(20):
        with pytest.raises(RuntimeError, match="No space"):
            salvage(Stretch(0, 0, 1), counting=counting, log=a_log(1), shortages=shortages)
    assert counting.applied == []


def test_a_record_of_a_newer_version_blocks_its_partition_once_all_before_it_is_counted():
    class TooNew(Counting):
        def count(self, stretch, *, only=None):
            if stretch.start <= 5 < stretch.end:
                raise RuntimeError(
                    "Caused by: tallymark.events.frame.UnknownFrameVersion: partition 0, offset 5: frame version b'2';"
                    " this release reads b'1': upgrade it\nand so on"
                )
            return super().count(stretch, only=only)

    counting = TooNew(dies_on())
    why = "partition 0 stands still at offset 5: frame version b'2'; this release reads b'1': upgrade it$"
    with pytest.raises(Blocked, match=why) as found:
        salvage(Stretch(0, 0, 9), counting=counting, log=a_log(9))
    assert (found.value.partition, found.value.offset) == (0, 5)
    assert max(result.stretch.end for result in counting.applied) == 5
    assert not any(result.buried for result in counting.applied)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("one line", "one line"),
        ("An error occurred while calling z.\n: org.apache.spark.SparkException: Job aborted", "Job aborted"),
        (
            "a\nCaused by: x.y.FirstException: one\n\tat z\nCaused by: tallymark.log.LogDamaged: the cause\n at q",
            "the cause",
        ),
        ("", "RuntimeError"),
    ],
)
def test_of_a_long_error_the_line_that_names_the_cause_is_kept(said, cause):
    assert summary(RuntimeError(said)).endswith(cause)
