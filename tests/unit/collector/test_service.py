"""The collector as a process over the real log."""

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tallymark import log
from tallymark.collector.service import check_host
from tallymark.events import frame
from tallymark.settings import SettingsError, load
from tallymark.testing import until

PROGRAM = """
import sys
from tallymark.collector.service import run
from tallymark.settings import load
code = run(load(environment={}, flags={"data": sys.argv[1], "collector.port": 0}))
assert "pyspark" not in sys.modules
sys.exit(code)
"""


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
    reader = log.open_reader(load(environment={}, flags={"data": str(tmp_path)}), "events")
    records = [record for part, at in reader.positions().items() for record in reader.read(part, at.first, at.synced)]
    ids = [each for record in records for each in frame.decode(record.payload).column("id").to_pylist()]
    assert sorted(map(int, ids)) == list(range(100))
    reader.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_only_loopback_is_served_while_there_are_no_keys(host: str) -> None:
    with pytest.raises(SettingsError, match="only loopback"):
        check_host(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_loopback_is_served(host: str) -> None:
    check_host(host)
