"""The machine's figures: shares, rates, and nothing where nothing is known."""

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import psutil
import pytest

from tallymark.agent import machine
from tallymark.agent.machine import Machine, Reading, figures
from tallymark.agent.processes import Processes
from tallymark.testing import until


def test_shares_of_the_cpu_are_of_what_passed_between_two_readings():
    before = Reading(cpu_s={"user": 100, "system": 50, "idle": 1000, "iowait": 10})
    now = Reading(cpu_s={"user": 101, "system": 50.5, "idle": 1002, "iowait": 10.5})
    shares = figures(before, now, elapsed_s=1)
    assert shares == {"cpu": 0.375, "cpu_user": 0.25, "cpu_system": 0.125, "cpu_iowait": 0.125}


def test_totals_become_growth_per_second_and_levels_stay():
    before, now = Reading(totals={"net_in_bytes": 100}), Reading({"load1": 2.0}, {"net_in_bytes": 400})
    assert figures(before, now, elapsed_s=2) == {"load1": 2.0, "net_in_bytes": 150}


@pytest.mark.parametrize("before", [{}, {"net_in_bytes": 401}])
def test_what_is_new_or_has_shrunk_is_absent_and_not_zero(before):
    assert figures(Reading(totals=before), Reading(totals={"net_in_bytes": 400}), elapsed_s=1) == {}


def test_without_time_between_readings_nothing_is_said_of_rates():
    reading = Reading(totals={"net_in_bytes": 4}, cpu_s={"idle": 1})
    assert figures(reading, reading, elapsed_s=0) == {}


def test_this_machine_tells_its_figures():
    reading = Machine().read()
    found = figures(
        Reading(totals=dict.fromkeys(reading.totals, 0), cpu_s=dict.fromkeys(reading.cpu_s, 0)), reading, elapsed_s=1
    )
    assert {
        "cpu",
        "cpu_user",
        "mem_used",
        "mem_used_bytes",
        "load1",
        "disk_used",
        "processes",
        "net_in_bytes",
    } <= found.keys()
    for share in ("cpu", "mem_used", "disk_used"):
        assert 0 <= found[share] <= 1
    assert found["processes"] >= 1


def test_a_part_that_the_system_does_not_tell_is_absent_and_said_once(monkeypatch, caplog):
    def refuse(**_: object) -> None:
        raise PermissionError("not in this container")

    monkeypatch.setattr(psutil, "net_io_counters", refuse)
    here = Machine(disks=["/", "/no/such/folder"])
    for _ in range(3):
        reading = here.read()
        assert "net_in_bytes" not in reading.totals
        assert "load1" in reading.levels
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert any("network" in line and "not in this container" in line for line in told)
    assert any("/no/such/folder" in line for line in told)


def test_loopback_is_no_network(monkeypatch):
    card = psutil._ntuples.snetio if hasattr(psutil, "_ntuples") else type(psutil.net_io_counters())
    cards = {
        "lo": card(9, 9, 9, 9, 0, 0, 0, 0),
        "eth0": card(1, 2, 3, 4, 1, 0, 0, 5),
        "eth1": card(1, 1, 1, 1, 0, 0, 0, 0),
    }
    monkeypatch.setattr(machine.psutil, "net_io_counters", lambda pernic: cards)
    totals = Machine().read().totals
    assert (totals["net_in_bytes"], totals["net_out_bytes"]) == (3, 2)
    assert (totals["net_errors"], totals["net_dropped"]) == (1, 5)


def test_a_process_is_followed_by_its_name_until_it_is_gone():
    sleepers = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    gone, stays = sleepers
    try:
        # By its command line: until then it may still have the name of this process.
        for each in sleepers:
            until(lambda pid=each.pid: psutil.Process(pid).cmdline()[-1:] == ["input()"], "the process has begun")
        name = psutil.Process(stays.pid).name()
        here = Machine(processes=[name, "no-such-process"])
        before = here.read()
        assert before.levels[f'process_count{{name="{name}"}}'] >= 2
        assert before.levels[f'process_mem_bytes{{name="{name}"}}'] > 1_000_000
        assert before.levels['process_count{name="no-such-process"}'] == 0
        assert 'process_mem_bytes{name="no-such-process"}' not in before.levels
        gone.kill()
        gone.wait()
        after = here.read()
        label = f'process_cpu{{name="{name}"}}'
        assert after.totals[label] >= before.totals[label]  # the time of the dead stays in the sum
        assert gone.pid not in {pid for pid, known in here._processes._known.items() if known}
    finally:
        for each in sleepers:
            each.kill()
            each.wait()


def test_the_time_of_a_dead_process_stays_in_the_sum(monkeypatch):
    dead: set[int] = set()
    reused: set[object] = set()

    class Worker:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def name(self) -> str:
            return "worker"

        def is_running(self) -> bool:
            return self not in reused

        def oneshot(self) -> nullcontext[None]:
            return nullcontext()

        def cpu_times(self) -> SimpleNamespace:
            if self.pid in dead:
                raise psutil.NoSuchProcess(self.pid)
            return SimpleNamespace(user=float(self.pid), system=1.0)

        def memory_info(self) -> SimpleNamespace:
            return SimpleNamespace(rss=10)

    monkeypatch.setattr(psutil, "Process", Worker)
    processes = Processes(["worker"])

    def read(*pids: int) -> tuple[dict[str, float], float]:
        levels: dict[str, float] = {}
        totals: dict[str, float] = {}
        processes.read(pids, levels, totals)
        return levels, totals['process_cpu{name="worker"}']

    assert read(5, 7) == ({'process_count{name="worker"}': 2, 'process_mem_bytes{name="worker"}': 20}, 14)
    dead.add(5)
    for _ in range(3):
        assert read(7) == ({'process_count{name="worker"}': 1, 'process_mem_bytes{name="worker"}': 10}, 14)
    assert read(7, 8)[1] == 23
    # The number 8 is another process' by now: first it is missed, then it is known as the one it is.
    reused.add(processes._known[8][1])
    assert read(7, 8) == ({'process_count{name="worker"}': 1, 'process_mem_bytes{name="worker"}': 10}, 23)
    assert read(7, 8) == ({'process_count{name="worker"}': 2, 'process_mem_bytes{name="worker"}': 20}, 32)
