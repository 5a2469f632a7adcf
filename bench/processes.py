"""A process and all it started: CPU and memory, told apart by what each one is."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

STOP_S = 40.0
POLL_S = 0.01


class Broken(Exception):
    """A benchmark that cannot go on, and why."""


def wait_until(condition: Callable[[], bool], what: str, *, deadline_s: float, poll_s: float = POLL_S) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise Broken(f"not within {deadline_s:g} s: {what}")
        time.sleep(poll_s)


@contextmanager
def tallymark(folder: Path, *arguments: str) -> Iterator["Tree"]:
    """`tallymark …` on the data folder `folder`, as a user would start it; stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tallymark", *arguments, "--data", str(folder)]
    # Beside the data folder, where no tallymark.toml of the developer is found.
    with (folder.parent / f"{folder.name}-{arguments[0]}.log").open("wb") as log:
        started = subprocess.Popen(command, cwd=folder.parent, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    tree = Tree(started.pid)
    try:
        yield tree
    finally:
        _stop(started)


def _stop(started: "subprocess.Popen[bytes]") -> None:
    family = Tree(started.pid).processes()
    started.terminate()
    with suppress(subprocess.TimeoutExpired):
        started.wait(STOP_S)
    for process in family:
        with suppress(psutil.Error):
            process.kill()
    started.wait()


@dataclass(frozen=True)
class Memory:
    """Bytes resident; pages that several processes share are counted for each (`rss`) or once in all (`pss`)."""

    rss: int
    pss: int
    claims: int
    """of the claim tables, which are in neither of the others"""


class Tree:
    """The process `pid` with its descendants."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    @property
    def alive(self) -> bool:
        return self._root.is_running() and self._root.status() != psutil.STATUS_ZOMBIE

    def processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_s(self) -> float:
        return sum(self.cpu_s_by_kind().values())

    def cpu_s_by_kind(self) -> dict[str, float]:
        """Seconds of CPU so far, those of ended children under the process that waited for them."""
        used: Counter[str] = Counter()
        for process in self.processes():
            with suppress(psutil.Error):
                times = process.cpu_times()
                own = times.user + times.system + times.children_user + times.children_system
                used[_kind(process)] += own
        return dict(used)

    def memory(self) -> Memory:
        rss = pss = claims = 0
        for process in self.processes():
            with suppress(psutil.Error, OSError):
                for mapping in process.memory_maps(grouped=True):
                    if mapping.path.endswith(".claims"):
                        claims += mapping.pss
                    else:
                        rss += mapping.rss
                        pss += mapping.pss
        return Memory(rss, pss, claims)


def used_between(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Seconds of CPU by kind; a process that was not there before used all it has."""
    return {kind: round(seconds - before.get(kind, 0.0), 2) for kind, seconds in after.items()}


def _kind(process: psutil.Process) -> str:
    """What a process is, in a word: the role, or for Spark's children `jvm` and `workers`."""
    command = process.cmdline()
    if not command:
        return "gone"
    if "java" in Path(command[0]).name:
        return "jvm"
    if any("pyspark" in part for part in command[1:4]):
        return "workers"
    if "tallymark" in command:
        return command[command.index("tallymark") + 1]
    return Path(command[0]).name
