"""One set of real servers for all tests of this folder."""

from collections.abc import Iterator

import pytest

from clusters import Cluster
from lab.cassandra import Cassandra
from lab.kafka import KafkaCluster


@pytest.fixture(scope="package")
def servers(
    tmp_path_factory: pytest.TempPathFactory, kafka_cluster: KafkaCluster, cassandra: Cassandra
) -> Iterator[Cluster]:
    """The run's Kafka and Cassandra, and a Spark cluster for all tests of this folder."""
    with Cluster(tmp_path_factory.mktemp("cluster"), kafka_cluster, cassandra) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(servers: Cluster) -> Iterator[Cluster]:
    """The same servers, with a topic and a store of one's own."""
    servers.renew()
    yield servers
    servers.stop_hosts()
