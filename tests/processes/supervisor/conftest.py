"""A supervisor in a process of its own, since it owns signals and can be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallymark.supervisor.processes import is_same

HERE = Path(__file__).parent
DEADLINE_S = 30.0

PROGRAM = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from roles import role
from tallymark.supervisor import child
from tallymark.supervisor.console import Console
from tallymark.supervisor.lock import FolderTaken
from tallymark.supervisor.supervisor import Plan, Supervisor

folder, wanted = Path(sys.argv[2]), json.loads(sys.argv[3])
child.LOG_BYTES = wanted.get("log_bytes", child.LOG_BYTES)
console = Console()
plan = Plan(
    children=[role(name, folder, how, stop_s=wanted.get("stop_s", 5.0)) for name, how in wanted["children"].items()],
    stop_order=wanted.get("stop_order") or list(wanted["children"]),
    on_ready=lambda: console.say("ready"),
    companions=[role(name, folder) for name in wanted.get("companions", [])],
    is_drained=lambda: (folder / "drained").exists() or not wanted.get("drains"),
    drain_s=20,
    leftover_s=0.5,
    address="127.0.0.1:4711",
)
try:
    sys.exit(Supervisor(plan, folder, console).run())
except FolderTaken as error:
    print(error)
    sys.exit(1)
"""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for the condition; the test fails if it does not come true in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s in vain until {what}"
        time.sleep(0.02)


class Run:
    """One supervisor process on a folder, what it said, and what its children noted."""

    def __init__(self, folder: Path, wanted: dict[str, object]) -> None:
        self.folder = folder
        self._said = folder / f"said-{time.monotonic_ns()}"
        with open(self._said, "wb") as said:
            command = [sys.executable, "-c", PROGRAM, str(HERE), str(folder), json.dumps(wanted)]
            self.process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, process_group=0)

    @property
    def said(self) -> str:
        return self._said.read_text()

    @property
    def story(self) -> list[str]:
        path = self.folder / "story"
        return path.read_text().splitlines() if path.exists() else []

    def pid(self, name: str) -> int:
        return int(json.loads((self.folder / "run" / "up.json").read_bytes())["children"][name][0])

    def until_said(self, words: str) -> "Run":
        until(lambda: words in self.said or self.process.poll() is not None, f"it says {words!r}")
        assert words in self.said
        return self

    def until_noted(self, line: str, times: int = 1) -> "Run":
        until(lambda: self.story.count(line) >= times, f"the story has {line!r} {times} times: {self.story}")
        return self

    def signal(self, number: signal.Signals) -> "Run":
        self.process.send_signal(number)
        return self

    def ended(self) -> int:
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def begin(children: dict[str, str], **wanted: object) -> Run:
        run = Run(tmp_path, {"children": children, **wanted})
        runs.append(run)
        return run

    yield begin
    for run in runs:
        children = _children(run.folder)
        run.process.kill()
        run.process.wait()
        for pid, started in children.values():
            if is_same(pid, started):
                os.killpg(pid, signal.SIGKILL)


def _children(folder: Path) -> dict[str, list[int]]:
    try:
        return dict(json.loads((folder / "run" / "up.json").read_bytes())["children"])
    except OSError:
        return {}
