"""Roles as processes over a real Cassandra: one profile, one data folder."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lab.process import free_ports
from tallymark.client.transport import HttpTransport, NoAnswer, Request
from tallymark.settings import Settings, load
from tallymark.store import address, deltas
from tallymark.store.model import Ledger, RegisteredMeter, Stretch, StretchResult
from tallymark.store.protocol import Store
from tallymark.testing import until

DEADLINE_S = 120.0
PROFILE = """
data = "{folder}/data"
[store]
kind = "cassandra"
port = {port}
name = "{name}"
timeout_s = 4
[keeper]
lease_s = {lease_s}
fold_interval_s = 0.2
[query]
cache_ttl_s = 0
"""


class Stage:
    """A profile, and the roles that run on it."""

    def __init__(self, folder: Path, port: int, *, lease_s: float = 5.0) -> None:
        self.folder = folder
        self.profile = folder / "cluster.toml"
        name = f"test{time.monotonic_ns()}"
        self.profile.write_text(PROFILE.format(folder=folder, port=port, name=name, lease_s=lease_s))
        self.settings: Settings = load(self.profile, environment={})
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.urls: dict[str, str] = {}
        self.applied = 0

    def start(self, role: str, instance: str) -> None:
        self.begin(role, instance)
        self.ready(role, instance)

    def begin(self, role: str, instance: str) -> None:
        """Without waiting until it is ready, so that several can start side by side."""
        command = [sys.executable, "-m", "tallymark", role, "--profile", str(self.profile)]
        command += ["--set", f"instance={instance}"]
        if role in ("query", "collector"):
            (port,) = free_ports(1)
            command += ["--port", str(port)]
            self.urls[instance] = f"http://127.0.0.1:{port}"
        with open(self.folder / f"{instance}.log", "wb") as output:
            self.processes[instance] = subprocess.Popen(
                command,
                cwd=self.folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("TALLYMARK_")},
                stdout=output,
                stderr=output,
            )

    def ready(self, role: str, instance: str) -> None:
        place = self.settings.run_folder / f"{role}-{instance}.json"

        def announced() -> bool:
            assert self.processes[instance].poll() is None, self.said(instance)
            return place.exists()

        until(announced, f"{role} {instance} is ready", deadline_s=DEADLINE_S)

    def said(self, instance: str) -> str:
        return (self.folder / f"{instance}.log").read_text()

    def ask(self, instance: str, path: str, *, put: Any = None) -> tuple[int, Any]:
        """Status 0 if there is no answer."""
        transport = HttpTransport(self.urls[instance], timeout_s=30)
        request = Request("GET", path)
        if put is not None:
            request = Request("PUT", path, msgspec.json.encode(put), {"content-type": "application/json"})
        try:
            answer = transport.exchange(request)
        except NoAnswer:
            return 0, None
        finally:
            transport.close()
        return answer.status, answer.json()

    def apply(self, store: Store, meter: RegisteredMeter, rows: Sequence[tuple[Any, ...]], *, log: str = "log") -> None:
        """One batch, as the pipeline would bring it: rows of the deltas without the meter's number."""
        frame = deltas.from_rows([(meter.set_id, *row) for row in rows])
        events = int(frame["n"].sum())
        stretch = Stretch(0, self.applied, self.applied + 1)
        ids, revision = (meter.meter_id,), store.registry.live_meters().revision
        ledger = Ledger(accepted=events, counted=events)
        result = StretchResult(stretch, log, revision, ids, deltas.encode(frame), ledger)
        result = address(self.settings).open_deposits().deposit(result)
        assert len(store.sink.apply([result], now_ms=time.time_ns() // 1_000_000)) == 1
        self.applied += 1

    def roles(self, instance: str, role: str) -> dict[str, tuple[str, bool]]:
        """Name -> (state, whether it stands by), as this query node sees them."""
        _, status = self.ask(instance, "/v1/status")
        found = [each for each in (status or {}).get("roles", []) if each["role"] == role]
        return {each["instance"]: (each["state"], bool(each["facts"].get("standby"))) for each in found}

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
