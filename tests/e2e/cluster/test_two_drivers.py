"""Two drivers on one cluster: one counts, the other stands by; one that slept past its lease writes nothing more."""

import os
import re
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from clusters import Cluster
from running import Running
from tallymark.testing import until

BATCHES = re.compile(r"^tallymark_pipeline_batches_total (\S+)", re.MULTILINE)

pytestmark = pytest.mark.timeout(1_200)


@dataclass
class Drivers:
    front: Running
    first: Running
    second: Running


@pytest.fixture(scope="module")
def drivers(cluster: Cluster) -> Drivers:
    front = cluster.host("front", "collector,query,keeper").start()
    first = cluster.host("first-driver", "pipeline").start()
    second = cluster.host("second-driver", "pipeline").start()
    return Drivers(front, first, second)


class Sender:
    """Sends an event every so often until it is told to stop; all are acknowledged."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._stop = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._stop.wait(0.05):
            self._running.send([{"event": "tick", "id": f"tick-{self.sent}"}], wait=False)
            self.sent += 1


def test_the_second_driver_stands_by(drivers):
    drivers.front.send([{"event": "begin", "id": "1"}])
    assert "standing by" in log_of(drivers.second)
    assert "standing by" not in log_of(drivers.first)


def test_a_driver_that_slept_past_its_lease_writes_nothing_after_it_wakes(drivers):
    first, front = drivers.first, drivers.front
    written = batches(first, newer_than=front.settled()["now_ms"] / 1000)
    assert written > 0
    family = [psutil.Process(first.pid("pipeline")), *psutil.Process(first.pid("pipeline")).children(recursive=True)]
    for process in family:
        os.kill(process.pid, signal.SIGSTOP)
    # From here on there is always something new to count, also when the sleeper wakes.
    with Sender(front) as sender:
        until(lambda: counted(front) > 0, "the second driver has taken over and counts", deadline_s=240)
        before = log_of(first).count("standing by")
        for process in family:
            os.kill(process.pid, signal.SIGCONT)
        until(lambda: log_of(first).count("standing by") > before, "the sleeper knows it lost", deadline_s=120)
        more = counted(front)
        until(lambda: counted(front) > more, "the second one goes on", deadline_s=120)
    front.settled()
    assert counted(front) == sender.sent
    # Accepted writes of the old one: 0.
    assert batches(first, newer_than=(run_folder(first) / "pipeline.prom").stat().st_mtime) == written
    assert front.settled()["missing"] == 0


def test_when_the_second_driver_is_killed_the_first_takes_over_again(drivers):
    supervised = psutil.Process(drivers.second.pid("pipeline")).parent()
    assert supervised is not None
    drivers.second.kill_everything()  # as if its machine had gone
    before = counted(drivers.front)
    drivers.front.send([{"event": "tick", "id": f"late-{number}"} for number in range(50)], wait=False)
    until(lambda: counted(drivers.front) == before + 50, "the first driver counts again", deadline_s=240)


def counted(front: Running) -> int:
    return int(front.total("events", event="tick")["count"])


def run_folder(running: Running) -> Path:
    return running.data / "run"


def batches(running: Running, *, newer_than: float) -> float:
    """Batches that this driver has had accepted, by its own metrics of after this moment."""
    file = run_folder(running) / "pipeline.prom"
    until(lambda: file.exists() and file.stat().st_mtime > newer_than, "fresh metrics of the driver", deadline_s=60)
    found = BATCHES.search(file.read_text())
    return float(found.group(1)) if found else 0.0


def log_of(running: Running) -> str:
    return (running.data / "logs" / "pipeline.log").read_text(errors="replace")
