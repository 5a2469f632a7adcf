"""With real processes: what dies comes back, what stops stops in order, and nothing outlives its supervisor."""

import os
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from tallymark.supervisor.processes import start_time

FOUR = {"collector": "good", "query": "good", "keeper": "good", "pipeline": "good"}
ORDER = ["collector", "pipeline", "keeper", "query"]


def gone(pid: int) -> bool:
    return start_time(pid) is None


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited 20 s in vain"
        time.sleep(0.02)


def test_ready_is_said_once_every_child_has_announced_itself(start):
    run = (
        start({"collector": "good", "pipeline": "slow"})
        .until_noted("started pipeline")
        .until_noted("started collector")
    )
    assert "ready" not in run.said
    pid = run.pid("pipeline")
    (run.folder / "run" / "pipeline.json").write_text(f'{{"pid": {pid}}}')
    run.until_said("ready")


def test_the_announcement_of_an_earlier_process_is_not_believed(start, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "pipeline.json").write_text('{"pid": 1}')
    run = start({"pipeline": "slow"}).until_noted("started pipeline")
    (run.folder / "run" / "pipeline.json").write_text('{"pid": 1}')
    run.signal(signal.SIGTERM)
    assert run.ended() == 0
    assert "ready" not in run.said


def test_ctrl_c_stops_in_order_and_ends_with_0(start):
    run = start(FOUR, stop_order=ORDER, companions=["demo"]).until_said("ready").until_noted("started demo")
    run.signal(signal.SIGINT)
    assert run.ended() == 0
    assert [line for line in run.story if line.startswith("stopped")] == [
        f"stopped {name}" for name in ["demo", *ORDER]
    ]


def test_the_pipeline_is_stopped_only_when_all_is_counted(start):
    run = start(FOUR, stop_order=ORDER, drains=True).until_said("ready").signal(signal.SIGTERM)
    run.until_noted("stopped collector")
    assert "stopped pipeline" not in run.story
    (run.folder / "drained").touch()
    assert run.ended() == 0
    assert run.story[-3:] == ["stopped pipeline", "stopped keeper", "stopped query"]


def test_a_second_ctrl_c_ends_everything_at_once(start):
    run = start(FOUR, stop_order=ORDER, drains=True).until_said("ready")
    pids = [run.pid(name) for name in FOUR]
    run.signal(signal.SIGINT).until_noted("stopped collector")
    run.signal(signal.SIGINT)
    assert run.ended() == 0
    assert all(map(gone, pids))
    assert "stopped at once" in run.said


def test_a_child_that_does_not_listen_is_killed_after_its_time(start):
    run = start({"keeper": "deaf"}, stop_s=0.3).until_said("ready")
    pid = run.pid("keeper")
    run.signal(signal.SIGTERM)
    assert run.ended() == 0
    assert gone(pid)
    assert "keeper did not stop within" in run.said


def test_what_is_killed_is_started_again_and_the_others_stay(start):
    run = start(FOUR).until_said("ready")
    before = {name: run.pid(name) for name in FOUR}
    os.kill(before["pipeline"], signal.SIGKILL)
    run.until_noted("started pipeline", times=2)
    run.until_said("pipeline killed by SIGKILL")
    wait_until(lambda: run.pid("pipeline") != before["pipeline"])
    assert {name for name in FOUR if run.pid(name) != before[name]} == {"pipeline"}


def test_what_keeps_dying_is_restarted_more_and_more_slowly_and_said_so(start):
    run = start({"keeper": "crashing"}).until_said("keeper has died 5 times in a row")
    lines = [line for line in run.said.splitlines() if line.startswith("keeper")]
    assert [line.rpartition(" in ")[2] for line in lines[:4]] == ["0.2 s", "0.4 s", "0.8 s", "1.6 s"]
    assert all("ended with code 3" in line and "the disk is on fire" in line for line in lines)
    assert "keeper.log" in lines[4]
    assert "every 30 s" in lines[4]


def test_the_log_file_of_a_chatty_child_stays_small_while_it_runs(start, tmp_path: Path):
    run = start({"pipeline": "chatty"}, log_bytes=20_000).until_said("ready")
    log_file, older = tmp_path / "logs" / "pipeline.log", tmp_path / "logs" / "pipeline.log.1"
    sizes = []

    def has_shrunk_twice() -> bool:
        sizes.append(log_file.stat().st_size)
        return sum(after < before for before, after in pairwise(sizes)) >= 2

    wait_until(has_shrunk_twice)
    assert older.stat().st_size == 20_000
    pid = run.pid("pipeline")
    os.killpg(pid, signal.SIGSTOP)
    # Both go on writing at the end: nothing is left out, nothing filled with zeros.
    kept = log_file.read_bytes() + older.read_bytes()
    assert b"jvm jvm" in kept
    assert b"role role" in kept
    assert b"\0" not in kept
    os.killpg(pid, signal.SIGKILL)


def test_what_another_process_announced_is_not_taken_back(start, tmp_path: Path):
    # A keeper that somebody started by hand has the folder's lock, so that of `up` ends at once, again and again.
    (tmp_path / "run").mkdir()
    place = tmp_path / "run" / "keeper.json"
    place.write_text('{"pid": 1}')
    start({"keeper": "crashing"}).until_said("keeper has died 5 times in a row")
    assert place.read_text() == '{"pid": 1}'


def test_wrong_settings_end_the_start_instead_of_being_tried_again(start):
    run = start({"collector": "good", "keeper": "misused"})
    assert run.ended() == 1
    assert "keeper cannot start: log.partitions = 0 must be 1 to 1024" in run.said
    assert run.story.count("started keeper") == 1


def test_a_second_start_on_the_same_folder_is_refused_and_names_the_first(start):
    first = start({"keeper": "good"}).until_said("ready")
    second = start({"keeper": "good"})
    assert second.ended() == 1
    assert f"pid {first.process.pid}" in second.said
    assert "http://127.0.0.1:4711" in second.said
    assert first.process.poll() is None
    assert first.story.count("started keeper") == 1


def test_children_end_when_their_supervisor_is_killed(start):
    run = start(FOUR).until_said("ready")
    pids = [run.pid(name) for name in FOUR]
    run.signal(signal.SIGKILL)
    wait_until(lambda: all(map(gone, pids)))
    assert sorted(run.story[-4:]) == sorted(f"orphaned {name}" for name in FOUR)


def test_a_child_that_outlived_a_killed_supervisor_is_gone_before_the_next_starts(start):
    run = start({"keeper": "blind"}).until_said("ready")
    stale = run.pid("keeper")
    run.signal(signal.SIGKILL)
    run.ended()
    assert not gone(stale)
    again = start({"keeper": "good"}).until_said("ready")
    assert gone(stale)
    assert "killed keeper, left over from the last run" in again.said


def test_what_a_child_leaves_behind_goes_with_it(start, tmp_path: Path):
    # The JVM of a pipeline whose Python side was killed: a grandchild in the child's group.
    run = start({"pipeline": "with_jvm"}).until_said("ready")
    grandchild = int((tmp_path / "jvm").read_text())
    os.kill(run.pid("pipeline"), signal.SIGKILL)
    run.until_noted("started pipeline", times=2)
    wait_until(lambda: gone(grandchild))
    assert gone(grandchild)
