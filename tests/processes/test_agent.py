"""The supervisor: kills what hangs, starts again what died, and ends with 0 when asked to."""

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import zlib

import pytest

from tallymark.agent.heartbeat import Watch
from tallymark.agent.supervising import Watchman
from tallymark.role import write_atomically
from tallymark.supervisor.processes import start_time
from tallymark.testing import until


@pytest.fixture
def hanging(tmp_path):
    """A process that never beats, known to the supervisor's place as its child."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, process_group=0)
    place = {"pid": os.getpid(), "children": {"agent": [process.pid, start_time(process.pid)]}}
    write_atomically(tmp_path / "run" / "up.json", json.dumps(place).encode())
    yield process
    process.kill()
    process.wait()


def test_a_process_without_a_sign_of_life_is_killed(tmp_path, hanging):
    said: list[str] = []
    watchman = Watchman(Watch(tmp_path / "beat", silent_s=10, starting_s=30), tmp_path, say=said.append)
    for second in range(31):
        watchman.look(now_s=second)
    assert hanging.poll() is None
    watchman.look(now_s=31)
    assert hanging.wait(10) == -signal.SIGKILL
    assert said == [f"(pid {hanging.pid}) is not responding; killing it"]
    watchman.look(now_s=99)  # gone: its number may be somebody else's by now
    assert len(said) == 1


def test_somebody_elses_process_with_the_same_number_is_left_alone(tmp_path, hanging):
    place = {"children": {"agent": [hanging.pid, start_time(hanging.pid) + 1]}}
    write_atomically(tmp_path / "run" / "up.json", json.dumps(place).encode())
    watchman = Watchman(Watch(tmp_path / "beat", silent_s=10, starting_s=30), tmp_path, say=print)
    for second in range(100):
        watchman.look(now_s=second)
    assert hanging.poll() is None


@pytest.fixture
def collector():
    """The address of a server that accepts everything, the ids, tenants and orders in what it accepted."""
    ids: list[str] = []
    tenants: set[str | None] = set()
    orders: list[float] = []

    class Accept(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            encoding = self.headers.get("content-encoding")
            if encoding == "zstd":
                import zstandard

                body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
            elif encoding == "gzip":
                body = zlib.decompress(body, zlib.MAX_WBITS | 16)
            events = json.loads(body)
            tenants.add(self.headers.get("tallymark-tenant"))
            ids.extend(event["id"] for event in events)
            orders.extend(event["values"]["orders"] for event in events if "orders" in event["values"])
            answer = json.dumps({"accepted": len(events), "rejected": 0, "errors": []}).encode()
            self.send_response(202)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Accept)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", ids, tenants, orders
    server.shutdown()
    server.server_close()


def test_an_agent_that_is_killed_measures_on_and_one_that_is_stopped_ends_with_0(tmp_path, collector):
    url, ids, tenants, orders = collector
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = tmp_path / "data" / "agent" / "run" / "agent.json"

    def measuring() -> int:
        return int(json.loads(place.read_bytes())["pid"]) if place.exists() else 0

    command = [sys.executable, "-m", "tallymark", "agent", "--data", str(tmp_path / "data"), "--url", url]
    command += ["--server", "web-1", "--tenant", "acme", "--statsd", f"127.0.0.1:{port}"]
    with open(tmp_path / "said", "wb") as said:
        supervisor = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        until(lambda: ids, "the first second is sent", deadline_s=60)
        first = measuring()
        os.kill(first, signal.SIGKILL)
        until(lambda: measuring() not in (0, first), "another process measures", deadline_s=60)
        before = len(ids)
        until(lambda: len(ids) > before, "and sends", deadline_s=60)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as application:
            application.sendto(b"orders:1|c", ("127.0.0.1", port))
        supervisor.terminate()
        assert supervisor.wait(60) == 0
    finally:
        supervisor.kill()
        supervisor.wait()
    told = (tmp_path / "said").read_text()
    assert f"measuring web-1 every 1 s for {url} as tenant acme" in told
    assert "agent killed by SIGKILL" in told
    assert told.endswith("stopped\n")
    assert orders == [1]  # what an application said just before the end
    assert len(set(ids)) == len(ids)
    assert tenants == {"acme"}
    assert all(id.startswith("web-1/") for id in ids)
