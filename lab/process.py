"""A server process: in a session of its own, its output in a file, ended with its children when this process ends."""

import atexit
import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tallymark.testing import until


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on.

    Below 32768, where outgoing connections begin to take theirs: a client that knocks at the port of a killed server
    could otherwise be given that very port, be connected to itself, and keep the server from coming back.
    """
    chosen: list[int] = []
    while len(chosen) < count:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in chosen:
            chosen.append(port)
    return chosen


_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """A test run that is killed cannot clean up; a Cassandra that it leaves behind holds a gigabyte."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ServerProcess:
    """One run of a server. `log` is appended to, so that several runs of one server are read in one file."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.log = log
        self._name = log.stem
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_for_port(self, port: int, *, deadline_s: float = 90.0) -> None:
        """Return when it listens; RuntimeError with the end of its log if it ends instead."""
        until(
            lambda: self._listens(port), f"{self._name} listens on port {port}, see {self.log}", deadline_s=deadline_s
        )

    def _listens(self, port: int) -> bool:
        if not self.alive:
            raise RuntimeError(f"{self._name} ended with {self._process.returncode}:\n{self.tail()}")
        try:
            socket.create_connection(("127.0.0.1", port), 0.3).close()
        except OSError:
            return False
        return True

    def tail(self, characters: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-characters:]

    def signal(self, number: signal.Signals) -> None:
        """To the server alone; its children are its own affair."""
        self._process.send_signal(number)

    def pause(self) -> None:
        """Returns when it stands still: until the signal has come through, requests are still answered."""
        self.signal(signal.SIGSTOP)
        until(self._stands_still, f"{self._name} is stopped", deadline_s=60)

    def _stands_still(self) -> bool:
        threads = Path(f"/proc/{self.pid}/task").glob("*/stat")
        return all(stat.read_text().rpartition(")")[2].split()[0] in "Tt" for stat in threads)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, to its children as well; also when it has ended already."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        atexit.unregister(self.kill)

    def stop(self, *, patience_s: float = 15.0) -> None:
        """SIGTERM, and SIGKILL for what has not ended by then."""
        if self.alive:
            self.resume()
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
        self.kill()
