"""One child process: its command, its log file, and how it ended."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallymark.supervisor.backoff import BackOff
from tallymark.supervisor.processes import start_time

LOG_BYTES = 10_000_000
TAIL_BYTES = 32_768
WRONG_USAGE = 2

_ERROR = re.compile(r"\b(ERROR|CRITICAL|FATAL)\b|^[\w.]+(Error|Exception)\b|^tallymark\b.*: ")


@dataclass(frozen=True)
class ChildSpec:
    """What to run. The supervisor knows nothing else about a role, so tests run small scripts instead."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    """what people call it: `Spark` for the pipeline"""
    announces: bool = True
    """it writes run/<name>.json once it can work, and `ready` waits for that"""
    stop_s: float = 10.0
    """how long it may take to stop before it is killed"""
    files: str = ""
    """how its files are called, if not by its name"""


@dataclass(frozen=True)
class Death:
    """How a child ended: in words, and whether a restart could help."""

    reason: str
    last_line: str
    lived_s: float
    wrong_usage: bool


class Child:
    """A process that can be started again and again under one name."""

    def __init__(self, spec: ChildSpec, *, folder: Path) -> None:
        self.spec = spec
        self.back_off = BackOff()
        self.due: float | None = None
        """when to start it (monotonic seconds); None while it runs or shall not run"""
        self._folder = folder
        self._place = folder / "run" / f"{spec.files or spec.name}.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._log_from = 0

    @property
    def log_file(self) -> Path:
        return self._folder / "logs" / f"{self.spec.files or self.spec.name}.log"

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def identity(self) -> list[int]:
        """Pid and start time, by which a later supervisor knows this very process."""
        pid = self._process.pid if self._process else 0
        return [pid, start_time(pid) or 0]

    def start(self) -> None:
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        rotate(self.log_file)
        self.due = None
        self._started = time.monotonic()
        with open(self.log_file, "ab") as log:
            self._log_from = log.tell()
            self._process = subprocess.Popen(
                self.spec.command,
                # Held open and never written: its end tells the child that the supervisor is gone, even by kill -9.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "TALLYMARK_SUPERVISED": "1", **self.spec.environment},
                # Its own group: Ctrl-C reaches the supervisor alone, and whatever the child left behind can be found.
                process_group=0,
            )

    def keep_log_small(self) -> None:
        if rotate(self.log_file):
            self._log_from = 0

    def announced(self) -> dict[str, Any] | None:
        """What the running process wrote into the run folder; None until it is ready."""
        if self._process is None:
            return None
        try:
            facts = json.loads(self._place.read_bytes())
        except (OSError, ValueError):
            return None
        return facts if isinstance(facts, dict) and facts.get("pid") == self._process.pid else None

    def died(self) -> Death | None:
        """How the process ended, once, after it has; None while it runs."""
        process = self._process
        if process is None or os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        # Not reaped yet, so the number of the group cannot belong to anybody else: clear what the child left behind
        # (a JVM whose Python side was killed) before the next one opens the same files.
        self._signal_group(signal.SIGKILL)
        was_announced = self.announced() is not None
        code = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._process = None
        if was_announced:  # else it is of another process, whose lock this one may have met
            self._place.unlink(missing_ok=True)
        lived_s = time.monotonic() - self._started
        return Death(_exit_reason(code), last_line(self.log_file, self._log_from), lived_s, code == WRONG_USAGE)

    def ask_to_stop(self) -> None:
        """SIGTERM to the process alone: it knows best how to stop what it started."""
        self.due = None
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        self.due = None
        if self._process is not None:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._process is not None
        # PermissionError: on some systems, when nothing but the zombie is left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def rotate(log_file: Path) -> bool:
    """Put the end of a log file that has grown large aside and empty it; True if that was done.

    Emptied, not moved: a role and its JVM hold it open, and go on at its new end. What they write between the copy and
    the cut is lost, which is the price of not having to talk to them.
    """
    try:
        size = log_file.stat().st_size
        if size < LOG_BYTES:
            return False
        older = log_file.with_name(f"{log_file.name}.1")
        # Without room for a copy it is emptied all the same: then room matters more.
        with suppress(OSError), open(log_file, "rb") as log:
            log.seek(size - LOG_BYTES)
            older.write_bytes(log.read(LOG_BYTES))
        os.truncate(log_file, 0)
    except OSError:
        return False
    return True


def last_line(log_file: Path, start: int) -> str:
    """The last line logged after `start` that tells of an error, else the last at all; cut to fit a terminal."""
    try:
        with open(log_file, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start, size - TAIL_BYTES))
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    except OSError:
        return ""
    lines = [line for line in lines if line]
    # A clean-up after the error logs on, and the reason is what one wants to read.
    line = next((line for line in reversed(lines) if _ERROR.search(line)), lines[-1] if lines else "")
    return line if len(line) <= 200 else line[:199] + "…"


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
