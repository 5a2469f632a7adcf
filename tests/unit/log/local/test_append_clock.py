"""Append time goes at the pace of real time, whatever is done to the wall clock, and never goes back."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.log import Appended, LocalLogWriter, Outgoing
from tallymark.log.local import append_clock
from tallymark.log.local.append_clock import SLEW_PER_MILLE, AppendClock
from tallymark.log.local.mark import Mark, Standing
from tallymark.log.local.reader import LocalLogReader

OpenLog = Callable[..., LocalLogWriter]
ReaderOf = Callable[[], LocalLogReader]

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = 1_800_000_000_000

milliseconds = st.one_of(st.integers(0, 50), st.integers(0, 10 * MINUTE), st.integers(0, 3 * DAY))
# What is done to the wall clock between two appends.
steps = st.one_of(st.just(0), st.integers(-5, 5), st.integers(-3 * DAY, 3 * DAY))
sub_ms = st.integers(0, 999_999)


class Clocks:
    """The wall clock and the steady one, moved by hand."""

    def __init__(self, wall_ms: int = START) -> None:
        self.wall_ms = wall_ms
        self.steady_ns = 12_345

    def pass_ms(self, ms: int, ns: int = 0) -> None:
        self.steady_ns += ms * 1_000_000 + ns
        self.wall_ms += ms

    def start(self, *, last_ms: int = 0, ahead_ms: int = 0) -> AppendClock:
        return AppendClock(wall=lambda: self.wall_ms, steady=lambda: self.steady_ns, last_ms=last_ms, ahead_ms=ahead_ms)


@given(
    last_ms=st.integers(START - DAY, START + DAY),
    ahead_ms=st.integers(-DAY, DAY),
    moves=st.lists(st.tuples(milliseconds, sub_ms, steps), max_size=30),
)
def test_between_any_two_appends_of_a_run_as_much_append_time_passes_as_real_time(
    last_ms: int, ahead_ms: int, moves: list[tuple[int, int, int]]
) -> None:
    clocks = Clocks()
    clock = clocks.start(last_ms=last_ms, ahead_ms=ahead_ms)
    seen = [(clocks.steady_ns, clock.now_ms())]
    assert seen[0][1] >= last_ms
    for passed_ms, passed_ns, step_ms in moves:
        clocks.pass_ms(passed_ms, passed_ns)
        clocks.wall_ms += step_ms
        append_ms = clock.now_ms()
        assert clock.ahead_ms == append_ms - clocks.wall_ms
        for steady_ns, earlier_ms in seen:
            real_ms = (clocks.steady_ns - steady_ns) / 1_000_000
            bound_ms = real_ms * SLEW_PER_MILLE / 1000 + 1  # the rounding
            assert earlier_ms <= append_ms
            assert abs(append_ms - earlier_ms - real_ms) <= bound_ms
        seen.append((clocks.steady_ns, append_ms))


@given(step_ms=st.integers(-HOUR, HOUR), every_ms=st.integers(1, 10 * MINUTE))
def test_it_finds_back_to_the_wall_clock_and_stays_there(step_ms: int, every_ms: int) -> None:
    clocks = Clocks()
    clock = clocks.start()
    clock.now_ms()
    clocks.wall_ms += step_ms
    clock.now_ms()
    clocks.pass_ms(abs(step_ms) * 1000 // SLEW_PER_MILLE + 1)
    for _ in range(3):
        assert clock.now_ms() == clocks.wall_ms
        assert clock.ahead_ms == 0
        clocks.pass_ms(every_ms)


def test_not_even_a_steady_clock_that_fails_takes_it_back() -> None:
    clocks = Clocks()
    clock = clocks.start()
    clocks.pass_ms(5_000)
    now_ms = clock.now_ms()
    clocks.steady_ns -= 3_000 * 1_000_000
    assert clock.now_ms() == now_ms
    clocks.pass_ms(4_000)
    assert 1_000 <= clock.now_ms() - now_ms <= 1_005, "from where it had been"


@pytest.mark.parametrize(("step_ms", "ahead_ms"), [(-HOUR, HOUR), (11 * MINUTE, -11 * MINUTE)])
def test_an_hour_back_or_eleven_minutes_forward_hardly_shows(
    open_log: OpenLog, clock: Any, step_ms: int, ahead_ms: int
) -> None:
    log = open_log()
    first = appended(log)
    clock.set_to(clock.ms + step_ms)
    clock.ms += 2_000
    assert abs(appended(log) - first - 2_000) <= 10
    clock.ms += 10 * MINUTE
    assert abs(appended(log) - first - 2_000 - 10 * MINUTE) <= 10 * MINUTE * SLEW_PER_MILLE // 1000 + 10
    assert abs(log.positions()[0].clock_ahead_ms - ahead_ms) < 4_000


@pytest.mark.parametrize("step_ms", [-HOUR, -1, 0, 11 * MINUTE])
@pytest.mark.parametrize("closed_ms", [0, 2_000, DAY])
def test_a_restart_takes_as_long_in_append_time_as_on_the_wall(
    open_log: OpenLog, reader_of: ReaderOf, clock: Any, step_ms: int, closed_ms: int
) -> None:
    """The client sends again what the collector did not answer because it was being restarted."""
    clock.set_to(START)
    log = open_log()
    quiet, _ = appended(log, partition=1), appended(log)
    clock.set_to(START + step_ms)
    clock.ms += 1_000
    busy = appended(log)
    log.close()
    clock.ms += closed_ms
    log = open_log()
    assert appended(log) - busy == closed_ms
    assert abs(appended(log, partition=1) - quiet - closed_ms - 1_000) <= 1_000 * SLEW_PER_MILLE // 1000
    assert reader_of().positions() == log.positions()


@pytest.mark.parametrize("step_ms", [-HOUR, 11 * MINUTE])
@pytest.mark.parametrize("busy", [0, 1])
def test_after_a_kill_a_quiet_partition_goes_by_what_a_busy_one_noted(
    open_log: OpenLog, tmp_path: Path, clock: Any, step_ms: int, busy: int
) -> None:
    """What a writer that is killed leaves behind are its files as they are while it runs."""
    clock.set_to(START)
    log = open_log()
    quiet, _ = appended(log, partition=1 - busy), appended(log, partition=busy)
    clock.set_to(START + step_ms)
    clock.ms += 1_000
    before = appended(log, partition=busy)
    shutil.copytree(tmp_path / "events", tmp_path / "killed" / "events")
    clock.ms += 2_000
    options: dict[str, Any] = {"partitions": 2, "partition_by": "id", "segment_bytes": 4096}
    again = LocalLogWriter(tmp_path / "killed", stream="events", clock=clock, steady=clock.steady, **options)
    try:
        assert appended(again, partition=busy) - before == 2_000
        assert abs(appended(again, partition=1 - busy) - quiet - 3_000) <= 3_000 * SLEW_PER_MILLE // 1000
        assert {each.clock_ahead_ms for each in again.positions().values()} == {again.positions()[0].clock_ahead_ms}
    finally:
        again.close()


@pytest.mark.parametrize("wall_ms", [START - HOUR, START, START + DAY])
def test_a_log_whose_mark_says_nothing_goes_by_the_wall_clock_but_never_back(wall_ms: int) -> None:
    clock = Clocks(wall_ms).start(last_ms=START)
    assert clock.now_ms() == max(wall_ms, START)


def test_a_mark_of_an_older_version_or_written_by_one_since_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    Mark.create(path)
    mark = Mark(path, writable=True)
    assert mark.read() == Standing(0, 0, 0, 0, 0)
    for ahead_ms in (0, 1, -1, HOUR, -HOUR):
        mark.publish(Standing(7, 8, 9, 3, ahead_ms))
        assert mark.read() == Standing(7, 8, 9, 3, ahead_ms)
    mark.publish(Standing(7, 8, 9, 3, HOUR))
    mark.publish(Standing(7, 8, 9, 3, HOUR))
    # What an older writer does: four words, and the turn.
    turn = mark._words[2] + 1
    slot = (8, 16)[turn % 2]
    for place, word in enumerate((8, 8, 9, 3)):
        mark._words[slot + place] = word
    mark._words[2] = turn
    assert mark.read() == Standing(8, 8, 9, 3, 0)
    mark.close()


def test_the_real_clocks_agree_within_a_run(open_log: OpenLog) -> None:
    log = open_log(clock=append_clock.wall_ms, steady=append_clock.steady_ns)
    times = [appended(log) for _ in range(20)]
    assert times == sorted(times)
    assert abs(log.positions()[0].clock_ahead_ms) < 1_000


def appended(log: LocalLogWriter, partition: int = 0) -> int:
    (outcome,) = log.append([Outgoing(partition, b"x", 1)])
    assert isinstance(outcome, Appended)
    return outcome.append_ms
