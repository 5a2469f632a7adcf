"""A real collector on a free port, over logs in memory."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from tallymark.collector import service
from tallymark.events import columns, frame
from tallymark.http import free_port
from tallymark.log.partitioners import partitioner
from tallymark.settings import Settings, load
from tallymark.store.model import DeadLetter
from tallymark.testing import MemoryLog

DEADLINE_S = 20.0


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Collector:
    """The service in a thread of its own."""

    def __init__(self, settings: Settings, log: MemoryLog | None = None) -> None:
        self.settings = settings
        self.port = settings.collector.port = free_port()
        self.log = log or MemoryLog(2)
        self.dead = MemoryLog(1)
        self.applied: dict[int, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()), daemon=True)

    def start(self) -> "Collector":
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        return self

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await service.serve(
            self.settings,
            self.log,
            self.dead,
            partitioner("id", 2),
            stop=self._stop,
            ready=lambda address: self._ready.set(),
            applied=lambda: self.applied,
        )

    def ask_to_stop(self) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)

    def stop(self) -> None:
        if self._thread.is_alive():
            self.ask_to_stop()
            self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, **headers)

    def post(self, body: Any, path: str = "/v1/events", **headers: str) -> Reply:
        """Anything but bytes is sent as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, raw, **{"content_type": "application/json", **headers})

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    def events(self) -> list[dict[str, Any]]:
        """Every event in the log."""
        positions = self.log.positions()
        return [
            row
            for partition in positions
            for record in self.log.read(partition, 0, positions[partition].end)
            for row in columns.rows(frame.decode(record.payload))
        ]

    def letters(self) -> list[DeadLetter]:
        records = self.dead.read(0, 0, self.dead.positions()[0].end)
        return [
            letter for record in records for letter in msgspec.msgpack.decode(record.payload, type=list[DeadLetter])
        ]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        total = 0.0
        for line in self.get("/metrics").body.decode().splitlines():
            sample, _, value = line.rpartition(" ")
            if sample.partition("{")[0] == name and all(f'{key}="{text}"' in sample for key, text in labels.items()):
                total += float(value)
        return total


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    """`make(max_body_bytes=…, log__kind=…)`: a running collector with these settings of its own, and of others."""
    running: list[Collector] = []

    def start(log: MemoryLog | None = None, **settings: Any) -> Collector:
        named = {key.replace("__", ".") if "__" in key else f"collector.{key}": settings[key] for key in settings}
        flags = {"data": str(tmp_path), **named}
        (tmp_path / "run").mkdir(exist_ok=True)
        collector = Collector(load(environment={}, flags=flags), log).start()
        running.append(collector)
        return collector

    yield start
    for collector in running:
        collector.stop()


@pytest.fixture
def collector(make: Callable[..., Collector]) -> Collector:
    return make()
