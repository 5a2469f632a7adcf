"""One running role (collector, pipeline, keeper, query): its signals, its place in the run folder, its log file."""

import fcntl
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tallymark.settings import Settings, SettingsError

METRICS_INTERVAL_S = 2.0

logger = logging.getLogger(__name__)


class RoleBusy(Exception):
    """Another process plays this role on this data folder."""


_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def file_stem(role: str, instance: str) -> str:
    """How the files of a role are called: `collector`, or `collector-a` where several share a data folder."""
    if not instance:
        return role
    if not _INSTANCE.fullmatch(instance):
        raise SettingsError(
            f"instance = {instance!r} becomes part of file names: use up to 64 letters, digits, dots, dashes and _,"
            " beginning with a letter or digit"
        )
    return f"{role}-{instance}"


def beat_name(settings: Settings, role: str, address: str | None = None) -> str:
    """By which name a role beats in the store: where roles run on several machines, with its own or its machine's."""
    if settings.store.kind == "sqlite":
        return role
    port = f":{address.rpartition(':')[2]}" if address else ""
    return f"{role}/{settings.instance or socket.gethostname() + port}"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` so that a reader sees the old or the new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)


class Role:
    """`with Role(settings, "keeper") as role:` and then work until `role.stopping` is set.

    It is set by SIGTERM and SIGINT and, under `tallymark up`, when the parent is gone (end of standard input).
    One process plays a role on a data folder; a second one gets RoleBusy, unless it has a name of its own.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self.name = name
        self.beat_name = beat_name(settings, name)
        self.stopping = threading.Event()
        self._callbacks: list[Any] = []
        self._settings = settings
        self._lock = -1
        self._publishing: threading.Thread | None = None
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
        if self._publishing is not None:
            self._publishing.join(METRICS_INTERVAL_S)
        self._remove_files()
        os.close(self._lock)

    def _take_lock(self) -> None:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            who = f" (pid {pid})" if (pid := _announced_pid(self._place)) else ""
            raise RoleBusy(
                f"{self.name} already runs on {self._settings.folder}{who}; stop it, choose another folder with --data,"
                " or give this one a name of its own with --set instance=…"
            ) from None

    def _remove_files(self) -> None:
        self._place.unlink(missing_ok=True)
        self._metrics.unlink(missing_ok=True)

    def take_signals(self) -> None:
        """SIGTERM and SIGINT stop this role; called again by roles whose libraries install handlers of their own."""
        for number in (signal.SIGTERM, signal.SIGINT):
            # In a thread: the handler may have interrupted the very lock that setting the event needs.
            signal.signal(number, lambda *_: threading.Thread(target=self.stop, daemon=True).start())

    def on_stop(self, callback: Any) -> None:
        """Call this, from any thread, when the role is asked to stop."""
        self._callbacks.append(callback)

    def stop(self) -> None:
        if not self.stopping.is_set():
            self.stopping.set()
            for callback in self._callbacks:
                callback()

    def announce(self, address: str | None = None) -> None:
        """This role can do its work now."""
        self.beat_name = beat_name(self._settings, self.name, address)
        facts = {
            "pid": os.getpid(),
            "address": address,
            "ready_ms": int(time.time() * 1000),
            "beat": self.beat_name,
        }
        write_atomically(self._place, json.dumps(facts).encode())

    def publish_metrics(self) -> None:
        """Keep this process' metrics in the run folder, where the public port finds them."""
        self._publishing = threading.Thread(target=self._publish, name="metrics", daemon=True)
        self._publishing.start()

    def _publish(self) -> None:
        from tallymark import telemetry

        failing = False
        while True:
            try:
                write_atomically(self._metrics, telemetry.exposition())
                failing = False
            except OSError as error:  # a full disk: it may have room again
                if not failing:
                    logger.warning("%s is not written any more: %s", self._metrics, error)
                failing = True
            if self.stopping.wait(METRICS_INTERVAL_S):
                return

    def _watch_parent(self) -> None:
        # Not through sys.stdin: a thread inside its lock makes the interpreter abort (SIGABRT) at a clean exit.
        while os.read(0, 4096):
            pass
        self.stop()


def _announced_pid(place: Path) -> int | None:
    try:
        return int(json.loads(place.read_bytes())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
