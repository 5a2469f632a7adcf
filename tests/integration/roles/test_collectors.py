"""Collectors as processes on one profile, over real brokers that are killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.kafka import KafkaCluster
from lab.process import free_ports
from tallymark import log
from tallymark.client.transport import HttpTransport, NoAnswer, Request
from tallymark.events import frame
from tallymark.settings import Settings
from tallymark.testing import until

DEADLINE_S = 120.0
PROFILE = """
data = "{folder}/data"
[log]
kind = "kafka"
brokers = {brokers}
topic = "{topic}"
delivery_timeout_s = 5
"""


class Collector:
    """`tallymark collector --profile … --set instance=…`."""

    def __init__(self, folder: Path, profile: Path, instance: str) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.output = folder / f"{instance}.log"
        command = [sys.executable, "-m", "tallymark", "collector", "--profile", str(profile)]
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [*command, "--set", f"instance={instance}", "--port", str(port)],
                cwd=folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("TALLYMARK_")},
                stdout=output,
                stderr=output,
            )

    def ask(self, method: str, path: str, content: Any = None) -> tuple[int, Any, dict[str, str]]:
        """Status 0 if there is no answer."""
        transport = HttpTransport(self.url, timeout_s=30)
        body = None if content is None else json.dumps(content).encode()
        try:
            answer = transport.exchange(Request(method, path, body, {"content-type": "application/json"}))
        except NoAnswer:
            return 0, None, {}
        finally:
            transport.close()
        return answer.status, answer.json(), {name.lower(): value for name, value in answer.headers.items()}

    def send(self, *ids: str) -> tuple[int, Any, dict[str, str]]:
        return self.ask("POST", "/v1/events", [{"event": "view", "id": each} for each in ids])

    def until_ready(self, status: int = 200) -> "Collector":
        def answered() -> bool:
            assert self.process.poll() is None, self.output.read_text()
            return self.ask("GET", "/readyz")[0] == status

        until(answered, f"/readyz of {self.output.stem} is {status}", deadline_s=DEADLINE_S)
        return self

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(
    tmp_path: Path, kafka: KafkaCluster, kafka_settings: Callable[..., Settings]
) -> Iterator[Callable[[str], Collector]]:
    profile = tmp_path / "cluster.toml"
    settings = kafka_settings().log
    profile.write_text(PROFILE.format(folder=tmp_path, brokers=json.dumps(settings.brokers), topic=settings.topic))
    started: list[Collector] = []

    def begin(instance: str) -> Collector:
        started.append(Collector(tmp_path, profile, instance))
        return started[-1]

    yield begin
    for collector in started:
        collector.close()


def ids_in(settings: Settings) -> list[str]:
    reader = log.open_reader(settings, "events")
    try:
        return [
            each
            for partition, at in reader.positions().items()
            for record in reader.read(partition, at.first, at.synced)
            for each in frame.decode(record.payload).column("id").to_pylist()
        ]
    finally:
        reader.close()


def test_two_collectors_share_a_log_and_one_may_leave(start, kafka_settings):
    first, second = start("a").until_ready(), start("b").until_ready()
    acknowledged: set[str] = set()
    statuses: list[int] = []

    def send(sender: int) -> None:
        """To the first one as long as it answers, then to the second; what is not answered is sent again."""
        choice = [first, second]
        for number in range(60):
            event = f"{sender}-{number}"
            while (status := choice[0].send(event)[0]) != 202:
                assert status in (0, 503)
                choice.reverse()
            statuses.append(status)
            acknowledged.add(event)

    senders = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for sender in senders:
        sender.start()
    until(lambda: len(statuses) > 20, "requests are under way", deadline_s=DEADLINE_S)
    first.process.send_signal(signal.SIGTERM)
    until(lambda: first.ask("GET", "/readyz")[0] in (0, 503), "it takes itself out", deadline_s=DEADLINE_S)
    assert first.process.wait(DEADLINE_S) == 0
    for sender in senders:
        sender.join(DEADLINE_S)
    assert len(acknowledged) == 240
    found = ids_in(kafka_settings())
    assert set(found) == acknowledged


def test_brokers_away_are_503_and_it_recovers_by_itself(start, kafka, kafka_settings):
    collector = start("a").until_ready()
    assert collector.send("before")[0] == 202
    for broker in (0, 1):
        kafka.kill(broker)
    # With one copy of three no write is acknowledged: log.min_in_sync is 2.
    status, told, headers = collector.send("during-1", "during-2")
    assert (status, told["code"], headers["retry-after"]) == (503, "not_durable", "1")
    assert [(error["code"], error["retryable"]) for error in told["errors"]] == [("not_durable", True)] * 2
    status, report, _ = collector.ask("GET", "/readyz")
    assert status == 503
    assert report["collector"]["troubles"]
    kafka.heal()
    collector.until_ready()
    # Each partition finds its leader again in its own time, so that one may still refuse when another takes events.
    for events in (("during-1", "during-2"), ("after",)):
        until(lambda events=events: collector.send(*events)[0] == 202, "taken again", deadline_s=DEADLINE_S)
    # What was refused may have come through after all; its copy is found by its id.
    assert set(ids_in(kafka_settings())) == {"before", "during-1", "during-2", "after"}


def test_a_collector_that_starts_before_its_brokers_waits_for_them(start, kafka):
    for broker in range(3):
        kafka.kill(broker)
    collector = start("a").until_ready(503)
    status, told, headers = collector.send("early")
    assert (status, told["code"], headers["retry-after"]) == (503, "log_unreachable", "1")
    kafka.heal()
    collector.until_ready()
    until(lambda: collector.send("early")[0] == 202, "taken after all", deadline_s=DEADLINE_S)
    collector.process.send_signal(signal.SIGTERM)
    assert collector.process.wait(DEADLINE_S) == 0
    assert "waiting for the log" in collector.output.read_text()
