"""Processes of an earlier run, recognised beyond doubt: a pid alone may meanwhile be somebody else's."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def start_time(pid: int) -> int | None:
    """When the process started, in the kernel's ticks; None if it is gone, a zombie, or this system cannot tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()
    return None if after_name[0] == "Z" else int(after_name[19])


def is_same(pid: int, started: int) -> bool:
    return start_time(pid) == started


def await_leftovers(children: Mapping[str, Sequence[int]], *, patience_s: float) -> list[str]:
    """Wait until the children of a killed supervisor have gone; returns the names of those that had to be killed.

    They stop by themselves when their parent is gone. One that hangs would keep the port and the log's lock.
    """
    left = {name: (pid, started) for name, (pid, started) in children.items() if is_same(pid, started)}
    deadline = time.monotonic() + patience_s
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = {name: process for name, process in left.items() if is_same(*process)}
    for pid, started in left.values():
        if is_same(pid, started):
            os.killpg(pid, signal.SIGKILL)
    return sorted(left)
