"""One set of real servers for all tests of this folder."""

from collections.abc import Iterator

import pytest

from clusters import Cluster


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Kafka, Spark and Cassandra, started once for all that need a cluster."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(servers: Cluster) -> Iterator[Cluster]:
    """The same servers, with a topic and a store of one's own."""
    servers.renew()
    yield servers
    servers.stop_hosts()
