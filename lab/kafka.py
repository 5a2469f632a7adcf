"""Kafka on loopback: KRaft, every node both broker and controller."""

import base64
import subprocess
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lab import jars
from lab.process import ServerProcess, free_ports
from tallymark.testing import until

LOG4J = """Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout:
        pattern: '[%d] %p %m (%c)%n'
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: STDOUT
    Logger:
      - name: kafka.server
        level: INFO
"""


class KafkaCluster:
    """Some brokers under `folder`, numbered from 0; they keep their ports and data over `kill` and `start`."""

    def __init__(self, folder: Path, brokers: int = 3, *, heap: str = "384m") -> None:
        self.folder = folder
        self.brokers = brokers
        self._heap = heap
        ports = free_ports(2 * brokers)
        self._ports, self._controllers = ports[:brokers], ports[brokers:]
        # One in 64 would begin with a dash, which the tool that formats a broker takes for an option.
        self._cluster = "t" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        self._running: dict[int, ServerProcess] = {}
        self._paused: set[int] = set()

    @property
    def bootstrap(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ports]

    @property
    def pids(self) -> dict[int, int]:
        """Of the brokers that run, for whoever measures them."""
        return {broker: process.pid for broker, process in self._running.items()}

    def __enter__(self) -> Self:
        # Two at a time would be faster on a quiet machine; the JVMs starve each other on a busy one.
        for broker in range(self.brokers):
            self._format(broker)
        try:
            self.heal()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def heal(self) -> None:
        """Start what was killed, wake what was paused, and wait until all copies of all partitions are in sync."""
        for broker in sorted(self._paused):
            self.resume(broker)
        # All before any is waited for: a node alone has no majority and does not open its port.
        missing = [broker for broker in range(self.brokers) if broker not in self._running]
        for broker in missing:
            self._launch(broker)
        for broker in missing:
            self._running[broker].wait_for_port(self._ports[broker])
        until(self._in_sync, "all brokers are known and in sync", deadline_s=90)

    def _in_sync(self) -> bool:
        client = AdminClient({"bootstrap.servers": ",".join(self.bootstrap), "log_level": 0})
        try:
            metadata = client.list_topics(timeout=5)
        except KafkaException:
            return False
        partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
        return len(metadata.brokers) == self.brokers and all(
            len(each.isrs) == len(each.replicas) and each.leader >= 0 for each in partitions
        )

    def start(self, broker: int) -> None:
        """Start one again and wait until it listens, which takes a majority of the brokers."""
        self._launch(broker)
        self._running[broker].wait_for_port(self._ports[broker])

    def kill(self, broker: int) -> None:
        """SIGKILL."""
        self._paused.discard(broker)
        self._running.pop(broker).kill()

    def pause(self, broker: int) -> None:
        """SIGSTOP: connections stay, nothing is answered."""
        self._running[broker].pause()
        self._paused.add(broker)

    def resume(self, broker: int) -> None:
        self._running[broker].resume()
        self._paused.discard(broker)

    def stop(self) -> None:
        """All at once and hard: a broker that hands its partitions over waits for others that are going too."""
        for process in self._running.values():
            process.kill()
        self._running.clear()
        self._paused.clear()

    def _format(self, broker: int) -> None:
        home = self._home(broker)
        home.mkdir(parents=True)
        (home / "server.properties").write_text(self._properties(broker))
        (home / "log4j2.yaml").write_text(LOG4J)
        command = self._java(broker, "kafka.tools.StorageTool", "format", "-t", self._cluster)
        done = subprocess.run(
            [*command, "-c", str(home / "server.properties")], capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"cannot format broker {broker}:\n{done.stdout}{done.stderr}")

    def _launch(self, broker: int) -> None:
        home = self._home(broker)
        command = self._java(broker, "kafka.Kafka", str(home / "server.properties"))
        self._running[broker] = ServerProcess(command, log=home / f"broker{broker}.log", cwd=home)

    def _home(self, broker: int) -> Path:
        return self.folder.absolute() / f"broker{broker}"

    def _java(self, broker: int, main: str, *arguments: str) -> list[str]:
        home = self._home(broker)
        options = [f"-Xmx{self._heap}", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        if main == "kafka.Kafka":
            # Serving wants the optimising compiler; formatting is over before it would pay.
            options = [f"-Xmx{self._heap}", "-Xms128m", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=128m"]
        options += [f"-Dlog4j2.configurationFile={home / 'log4j2.yaml'}", f"-Dkafka.logs.dir={home}"]
        return [
            str(jars.java()),
            *options,
            "-Djava.awt.headless=true",
            "-cp",
            f"{jars.fetch(jars.KAFKA)}/*",
            main,
            *arguments,
        ]

    def _properties(self, broker: int) -> str:
        copies = min(3, self.brokers)
        voters = ",".join(f"{number + 1}@127.0.0.1:{port}" for number, port in enumerate(self._controllers))
        listener = f"PLAINTEXT://127.0.0.1:{self._ports[broker]}"
        values = {
            "process.roles": "broker,controller",
            "node.id": broker + 1,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener},CONTROLLER://127.0.0.1:{self._controllers[broker]}",
            "advertised.listeners": listener,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self._home(broker) / "data",
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.min.isr": max(1, copies - 1),
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.min.isr": max(1, copies - 1),
            "auto.create.topics.enable": "false",
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 16_777_216,
            # A dead broker's partitions get a new leader after 3 s, not Kafka's 9: tests wait for it.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "controller.quorum.election.timeout.ms": 500,
            "controller.quorum.fetch.timeout.ms": 1500,
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())
