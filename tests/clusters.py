"""A real cluster for tests: three brokers, two Spark workers, Cassandra, and Tallymark's roles on one profile."""

import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.cassandra import Cassandra
from lab.kafka import KafkaCluster
from lab.spark import SparkCluster
from running import Running

PROFILE = """[log]
kind = "kafka"
brokers = [{brokers}]
topic = "{name}"
partitions = {partitions}
delivery_timeout_s = 5.0

[store]
kind = "cassandra"
hosts = ["127.0.0.1"]
port = {cassandra}
name = "{name}"

[pipeline]
master = "{spark}"
executor_memory = "600m"
max_executors = 2
horizon_s = 3600
lease_s = 5.0

[keeper]
lease_s = 5.0
"""


class Cluster:
    """Spark's part runs as long as the block; `host()` gives Tallymark's processes, as on machines of their own."""

    def __init__(self, folder: Path, kafka: KafkaCluster, cassandra: Cassandra, *, partitions: int = 2) -> None:
        self.folder = folder
        self.kafka, self.cassandra = kafka, cassandra
        self.spark = SparkCluster(folder / "spark", workers=2)
        self._partitions = partitions
        self._hosts: list[Running] = []

    def __enter__(self) -> Self:
        self.spark.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_hosts()
        self.spark.__exit__(kind, error, trace)
        self.kafka.heal()

    def renew(self) -> None:
        """Another topic and another store: what was counted before is not seen any more."""
        self.profile = self.folder / f"{uuid.uuid4().hex[:8]}.toml"
        self.profile.write_text(
            PROFILE.format(
                brokers=", ".join(f'"{each}"' for each in self.kafka.bootstrap),
                cassandra=self.cassandra.port,
                spark=self.spark.url,
                name=f"t{uuid.uuid4().hex[:8]}",
                partitions=self._partitions,
            )
        )

    def host(self, name: str, roles: str) -> Running:
        """A machine of the cluster with some roles, not started yet."""
        made = Running(self.folder / name, roles=roles, profile=self.profile)
        self._hosts.append(made)
        return made

    def stop_hosts(self) -> None:
        while self._hosts:
            self._hosts.pop().close()
