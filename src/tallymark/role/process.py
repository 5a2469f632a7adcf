"""One running role (collector, pipeline, keeper, query): its signals, its place in the run folder, its log file."""

import fcntl
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING

from tallymark.role.loop import Background, Wait, repeat
from tallymark.role.outage import Outage
from tallymark.role.run_folder import announced_pid, file_stem, write_atomically
from tallymark.settings import Settings

if TYPE_CHECKING:
    import asyncio

METRICS_INTERVAL_S = 2.0

logger = logging.getLogger(__name__)


class RoleBusy(Exception):
    """Another process plays this role on this data folder."""


def heartbeat_name(settings: Settings, role: str, address: str | None = None) -> str:
    """The name of a role's heartbeat; where roles run on several machines, it names the instance or the machine too."""
    if settings.store.kind == "sqlite":
        return role
    port = f":{address.rpartition(':')[2]}" if address else ""
    return f"{role}/{settings.instance or socket.gethostname() + port}"


class Role:
    """`with Role(settings, "keeper") as role:` and then work until `role.stopping` is set.

    It is set by SIGTERM and SIGINT and, under `tallymark up`, when the parent is gone (end of standard input).
    One process plays a role on a data folder; a second one gets RoleBusy, unless it has a name of its own.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self.name = name
        self.heartbeat_name = heartbeat_name(settings, name)
        self.stopping = threading.Event()
        self._stop_lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._settings = settings
        self._lock = -1
        self._background = ExitStack()
        self._place = settings.run_folder / f"{file_stem(name, settings.instance)}.json"
        self._metrics = self._place.with_suffix(".prom")

    def __enter__(self) -> "Role":
        self._take_lock()
        # Whoever holds the lock owns these files: what is there now was left by a process that was killed.
        self._remove_files()
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr, force=True
        )
        self.take_signals()
        if os.environ.get("TALLYMARK_SUPERVISED"):
            threading.Thread(target=self._watch_parent, name="parent", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._background.close()
        self._remove_files()
        os.close(self._lock)

    def _take_lock(self) -> None:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            who = f" (pid {pid})" if (pid := announced_pid(self._place)) else ""
            raise RoleBusy(
                f"{self.name} already runs on {self._settings.folder}{who}; stop it, choose another folder with --data,"
                " or name this one with --set instance=…"
            ) from None

    def _remove_files(self) -> None:
        self._place.unlink(missing_ok=True)
        self._metrics.unlink(missing_ok=True)

    def take_signals(self) -> None:
        """SIGTERM and SIGINT stop this role; called again by roles whose libraries install handlers of their own."""
        for number in (signal.SIGTERM, signal.SIGINT):
            # In a thread: the handler may have interrupted the very lock that setting the event needs.
            signal.signal(number, lambda *_: threading.Thread(target=self.stop, daemon=True).start())

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call this, from any thread, when the role is asked to stop; at once if it has been."""
        with self._stop_lock:
            if not self.stopping.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def stop_event(self) -> "asyncio.Event":
        """An event of the running loop that is set when the role is asked to stop."""
        import asyncio

        event, loop = asyncio.Event(), asyncio.get_running_loop()

        def set_in_loop() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(event.set)

        self.on_stop(set_in_loop)
        return event

    def stop(self) -> None:
        with self._stop_lock:
            callbacks, self._callbacks = self._callbacks, []
            self.stopping.set()
        for callback in callbacks:
            callback()

    def announce(self, address: str | None = None) -> None:
        """This role can do its work now."""
        self.heartbeat_name = heartbeat_name(self._settings, self.name, address)
        facts = {
            "pid": os.getpid(),
            "address": address,
            "ready_ms": int(time.time() * 1000),
            "beat": self.heartbeat_name,
        }
        write_atomically(self._place, json.dumps(facts).encode())

    def publish_metrics(self) -> None:
        """Keep this process' metrics in the run folder, where the public port finds them."""
        # A full disk may have room again.
        outage = Outage(logger, f"{self._metrics} is no longer written", expected=OSError)

        def publish(wait: Wait) -> None:
            from tallymark import telemetry  # here, since the role need not wait for it

            repeat(
                lambda: write_atomically(self._metrics, telemetry.exposition()),
                every_s=lambda: METRICS_INTERVAL_S,
                wait=wait,
                outage=outage,
            )

        self._background.enter_context(Background(publish, name="metrics", join_s=METRICS_INTERVAL_S))

    def _watch_parent(self) -> None:
        # Not through sys.stdin: a thread inside its lock makes the interpreter abort (SIGABRT) at a clean exit.
        while os.read(0, 4096):
            pass
        self.stop()
