"""Story 6: Kafka keeps three copies and asks for two; one broker goes, then a second, then both come back; then a NACK.

A real collector stands in front of three real brokers. What it acknowledges is read back, whatever happens to them.
"""

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lab.kafka import KafkaCluster
from lab.process import ServerProcess, free_ports
from running import clean_environment
from tallymark.client.transport import Answer, HttpTransport, Request
from tallymark.events import frame
from tallymark.log import LogReader, Record
from tallymark.log.address import KafkaAddress
from tallymark.testing import until

PROFILE = """
[log]
kind = "kafka"
brokers = {brokers}
topic = "story6"
replication = 3
min_in_sync = 2
delivery_timeout_s = 8.0
"""


class Collector:
    """`tallymark collector` as a process, and what it acknowledged."""

    def __init__(self, folder: Path, brokers: list[str]) -> None:
        (port,) = free_ports(1)
        profile = folder / "cluster.toml"
        profile.write_text(PROFILE.format(brokers=json.dumps(brokers)))
        command = [sys.executable, "-m", "tallymark", "collector", "--profile", str(profile)]
        self.process = ServerProcess(
            [*command, "--data", str(folder / "data"), "--port", str(port)],
            log=folder / "collector.log",
            cwd=folder,
            env=clean_environment(),
        )
        self._url = f"http://127.0.0.1:{port}"
        self.acknowledged: set[str] = set()
        self._sent = 0
        self.process.wait_for_port(port)
        until(lambda: self.ready() == 200, "the collector is ready", deadline_s=60)

    def ready(self) -> int:
        return self._exchange(Request("GET", "/readyz")).status

    def post(self, events: int = 20) -> tuple[int, dict]:
        """Status and answer; only what the answer does not refuse is acknowledged."""
        ids = [f"e{self._sent + number}" for number in range(events)]
        self._sent += events
        body = json.dumps([{"event": "story6", "id": each} for each in ids]).encode()
        answer = self._exchange(Request("POST", "/v1/events", body, {"content-type": "application/json"}))
        told = answer.json()
        refused = {error["index"] for error in told.get("errors", ())}
        assert told["accepted"] == events - len(refused)
        self.acknowledged |= {each for index, each in enumerate(ids) if index not in refused}
        return answer.status, told

    def _exchange(self, request: Request) -> Answer:
        # A connection each: the collector closes one that is idle while brokers start.
        with closing(HttpTransport(self._url, timeout_s=60)) as http:
            return http.exchange(request)

    def close(self) -> None:
        self.process.stop()


class Nack(Exception):
    """What a sink says that could not keep what it was given."""


class Counter:
    """A sink that moves on only with what it has kept; the first delivery fails after everything was read."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.delivered: list[list[tuple[int, int]]] = []
        self._next: dict[int, int] = {}

    def consume(self, log: LogReader) -> None:
        """What is new, as one delivery."""
        records: list[Record] = []
        for partition, at in log.positions().items():
            records += log.read(partition, self._next.get(partition, at.first), at.synced)
        self.delivered.append([(record.partition, record.offset) for record in records])
        if len(self.delivered) == 1:
            raise Nack("the store is away")
        for record in records:
            self.ids += frame.decode(record.payload, only=["id"])["id"].to_pylist()
            self._next[record.partition] = record.offset + 1


def test_acknowledged_minus_delivered_is_nothing(tmp_path: Path, kafka: KafkaCluster):
    #  brokers   0 1 2    1 2      2               0 1 2
    #  answer    202      202      503, retryable  202
    with closing(Collector(tmp_path, kafka.bootstrap)) as collector:
        assert collector.post() == (202, {"accepted": 20, "rejected": 0, "errors": []})

        kafka.kill(0)
        for _ in range(5):
            status, told = collector.post()
            assert (status, told["accepted"]) == (202, 20), told

        kafka.kill(1)
        before = set(collector.acknowledged)
        for _ in range(5):
            status, told = collector.post()
            assert (status, told["accepted"]) == (503, 0), told
            assert [error["code"] for error in told["errors"]] == ["not_durable"] * 20
            assert all(error["retryable"] for error in told["errors"])
        assert collector.acknowledged == before, "no false 202"
        assert collector.ready() == 503

        kafka.heal()
        until(lambda: collector.post()[0] == 202, "events are taken again", deadline_s=60)
        until(lambda: collector.ready() == 200, "it says that it is ready", deadline_s=60)

        log = KafkaAddress(tuple(kafka.bootstrap), "story6.events", ()).open_reader()
        counter = Counter()
        with pytest.raises(Nack):
            counter.consume(log)
        assert counter.ids == []
        counter.consume(log)
        assert counter.delivered[0], "the NACK was for something"
        assert counter.delivered[1][: len(counter.delivered[0])] == counter.delivered[0], "the same data is read again"
        assert collector.acknowledged - set(counter.ids) == set(), "acknowledged minus delivered = 0"
        log.close()
