"""A Spark cluster of two workers, each with claim tables of its own, as if on two machines."""

from collections.abc import Iterator

import pytest

from counting import CountingPath
from lab.spark import SparkCluster
from tallymark.pipeline.spark.context import start_spark
from tallymark.settings import Settings

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=1) as made:
        yield made


@pytest.fixture(scope="module")
def path(build, cluster, tmp_path_factory) -> Iterator[CountingPath]:
    settings = Settings(data=str(tmp_path_factory.mktemp("counting")))
    settings.pipeline.master, settings.pipeline.executor_memory = cluster.url, "600m"
    settings.pipeline.max_executors = 2
    spark = start_spark(settings)
    made = CountingPath(build, spark, settings)
    yield made
    made.close()
    spark.stop()


def views(build, numbers):
    return [build.event(str(number), "12:00:01", video="A") for number in numbers]


def send(path, build, numbers) -> None:
    """To both partitions; an id always goes to the same one."""
    for partition in (0, 1):
        path.append(views(build, [number for number in numbers if number % 2 == partition]), partition=partition)


def tables(cluster, partition: int) -> list[str]:
    """The workers that hold this partition's claims."""
    return [name for name in cluster.workers if (cluster.claims(name) / f"{partition}.claims").exists()]


def test_each_partition_stays_with_the_executor_that_has_its_claims(path, cluster, build):
    job = path.job()
    build.wait_until(lambda: len(job._placement.executors()) == 2, seconds=120, what="two executors")
    job.prepare()
    path.start(job)
    for start in range(0, 200, 10):
        send(path, build, range(start, start + 14))  # four of them come again with the next
        path.wait_for(start // 10 * 14 + 14)
    assert path.total() == 204
    assert path.ledger().duplicate == 19 * 4
    assert [len(tables(cluster, partition)) for partition in (0, 1)] == [1, 1]
    assert tables(cluster, 0) != tables(cluster, 1)


def test_a_lost_worker_s_partition_goes_on_elsewhere_and_still_knows_what_it_has_seen(path, cluster, build):
    (lost,) = tables(cluster, 0)
    accepted, counted = path.ledger().accepted, path.total()
    cluster.kill_worker(lost)
    send(path, build, [*range(50), *range(1000, 1010)])
    path.wait_for(accepted + 60)
    assert path.total() == counted + 10
    (left,) = cluster.workers
    assert tables(cluster, 0) == tables(cluster, 1) == [left]
    assert path.ledger().missing == 0


def test_a_worker_that_joins_takes_its_share(path, cluster, build):
    accepted, counted = path.ledger().accepted, path.total()
    cluster.add_worker("worker-3")
    number = 2000

    def has_moved() -> bool:
        nonlocal number
        send(path, build, range(number, number + 2))
        number += 2
        path.wait_for(accepted + number - 2000)
        return any(tables(cluster, partition)[-1:] == ["worker-3"] for partition in (0, 1))

    build.wait_until(has_moved, seconds=180, what="a partition is with the new worker")
    send(path, build, range(100))  # seen long ago, by other executors
    path.wait_for(accepted + number - 2000 + 100)
    assert path.total() == counted + number - 2000
