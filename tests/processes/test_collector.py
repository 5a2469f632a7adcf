"""The collector as a process over the real log: it announces itself, and stopping loses nothing it answered."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tallymark import log
from tallymark.events import frame
from tallymark.settings import load
from tallymark.testing import until

PROGRAM = """
import sys
from tallymark.collector.service import run
from tallymark.settings import load
flags = {"data": sys.argv[1], "collector.port": 0, "collector.commit_interval_ms": 50}
code = run(load(environment={}, flags=flags))
assert "pyspark" not in sys.modules
sys.exit(code)
"""
SENDERS = 8


def test_it_announces_itself_makes_events_durable_and_stops_cleanly(tmp_path: Path) -> None:
    place = tmp_path / "run" / "collector.json"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], env=os.environ)
    try:
        until(lambda: place.exists() or process.poll() is not None, "the ready file")
        facts = json.loads(place.read_text())
        assert facts["pid"] == process.pid
        connection = http.client.HTTPConnection(facts["address"], timeout=20)
        body = json.dumps([{"event": "view", "id": str(number)} for number in range(100)])
        connection.request("POST", "/v1/events", body, {"content-type": "application/json"})
        assert connection.getresponse().read() == b'{"accepted":100,"rejected":0,"errors":[]}'
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert not place.exists()
    assert _in_the_log(tmp_path) == {str(number) for number in range(100)}


def test_requests_in_hand_at_sigterm_are_answered_and_what_was_answered_is_durable(tmp_path: Path) -> None:
    place = tmp_path / "run" / "collector.json"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], env=os.environ)
    acknowledged: set[str] = set()
    statuses: list[int] = []
    broken_off: list[str] = []

    def send(sender: int) -> None:
        """A request after the other until no connection is taken any more."""
        number = 0
        while True:
            event = f"{sender}-{number}"
            connection = http.client.HTTPConnection(address, timeout=20)
            try:
                connection.connect()
            except OSError:
                return
            try:
                body = json.dumps({"event": "view", "id": event})
                connection.request("POST", "/v1/events", body, {"content-type": "application/json"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                # In the listener's queue, never taken: it may be sent again elsewhere.
                broken_off.append(event)
                return
            finally:
                connection.close()
            statuses.append(answer.status)
            acknowledged.add(event)
            number += 1

    try:
        until(lambda: place.exists() or process.poll() is not None, "the ready file")
        address = json.loads(place.read_text())["address"]
        senders = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        until(lambda: len(statuses) > 5 * SENDERS, "requests are under way")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        for sender in senders:
            sender.join(20)
    finally:
        process.kill()
        process.wait()
    assert set(statuses) == {202}
    assert acknowledged <= _in_the_log(tmp_path) <= acknowledged | set(broken_off)


def _in_the_log(folder: Path) -> set[str]:
    reader = log.open_reader(load(environment={}, flags={"data": str(folder)}), "events")
    records = [record for part, at in reader.positions().items() for record in reader.read(part, at.first, at.synced)]
    ids = [each for record in records for each in frame.decode(record.payload).column("id").to_pylist()]
    reader.close()
    assert len(ids) == len(set(ids))
    return set(ids)
