"""A Kafka of three brokers for all tests of a process that need one."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import lanes
from lab.kafka import KafkaCluster


@functools.cache
def cluster() -> KafkaCluster:
    """Started by the first test that asks for it; ended by `stop`, or with the run."""
    lanes.only_here("kafka", most=2)
    folder = Path(tempfile.mkdtemp(prefix="tallymark-kafka-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return KafkaCluster(folder / "cluster").__enter__()


def stop() -> None:
    """After the last test that needs it."""
    if cluster.cache_info().currsize:
        cluster().stop()
        cluster.cache_clear()
