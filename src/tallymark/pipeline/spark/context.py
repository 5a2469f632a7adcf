"""Spark's driver: one quiet JVM on loopback, or the head of a cluster."""

import os
import shutil
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext

from tallymark.pipeline.spark.java import java_home
from tallymark.settings import Settings

# Linux takes 108 bytes with the one that ends the path, macOS 104.
LONGEST_SOCKET_BYTES = 103
SOCKET_NAME_BYTES = len("/.00000000-0000-0000-0000-000000000000.sock")


def start_spark(settings: Settings) -> SparkContext:
    """A context without a session, since counting needs no SQL; its scratch files stay in the data folder."""
    scratch = settings.scratch_folder.absolute()
    shutil.rmtree(scratch, ignore_errors=True)  # what a killed driver left
    scratch.mkdir(parents=True)
    scratch.chmod(0o700)  # through the sockets in it code is run, and Spark asks for no password there
    (scratch / "log4j2.properties").write_text(LOGGING)
    os.environ["JAVA_HOME"] = str(java_home(scratch))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = settings.pipeline.python or sys.executable
    os.environ["SPARK_LOCAL_IP"] = settings.pipeline.driver_host
    # Inherited by the Python workers: Polars starts a thread a core otherwise, in every worker.
    os.environ["POLARS_MAX_THREADS"] = "1"
    configuration = _configuration(settings)
    if is_cluster(settings):
        configuration |= _cluster_configuration(settings)
    else:
        # Not on a cluster: there the PySpark of Spark's installation is the one that fits its JVM.
        configuration["spark.python.daemon.module"] = "tallymark.pipeline.spark.daemon"
        configuration |= _unix_sockets(scratch)
    for option in settings.pipeline.spark_options:
        name, _, value = option.partition("=")
        configuration[name.strip()] = value.strip()
    return SparkContext(conf=SparkConf().setAll(list(configuration.items())))


def is_cluster(settings: Settings) -> bool:
    """Whether the tasks run in other processes than the driver's, perhaps on other machines."""
    return not settings.pipeline.master.startswith("local")


# To the role's log file, without what Spark says of every batch that takes longer than the trigger, and of every stop.
LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %c{1}: %m%n%ex
logger.scheduler.name = org.apache.spark.scheduler.DAGScheduler
logger.scheduler.level = error
logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = error
"""


def _configuration(settings: Settings) -> dict[str, str]:
    scratch = settings.scratch_folder.absolute()
    return {
        "spark.master": settings.pipeline.master,
        "spark.app.name": "tallymark",
        "spark.driver.memory": settings.pipeline.driver_memory,
        # A batch whose results are larger fails, and is counted in parts; without a bound they fill the heap, and the
        # batch would neither end nor fail. 250 MB of them did so in 1 GB, 150 MB did not.
        "spark.driver.maxResultSize": "128m",
        "spark.driver.host": settings.pipeline.driver_host,
        "spark.driver.bindAddress": settings.pipeline.driver_host,
        "spark.local.dir": str(scratch / "spill"),
        # Measured per micro-batch with nothing in it: 206 ms of CPU by default, 131 with the quick compiler and one
        # collector thread; the heavy work is not in the JVM.
        "spark.driver.extraJavaOptions": (
            f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -Djava.io.tmpdir={scratch}"
            f" -Dlog4j2.configurationFile={scratch / 'log4j2.properties'}"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
    }


def _unix_sockets(folder: Path) -> dict[str, str]:
    """Between JVM and Python, if the folder's path leaves room for their names.

    Over TCP a batch of nothing takes 100 ms, over these 40-60: small packets wait for an acknowledgement there.
    """
    if len(os.fsencode(folder)) + SOCKET_NAME_BYTES > LONGEST_SOCKET_BYTES:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }


def _cluster_configuration(settings: Settings) -> dict[str, str]:
    ours = settings.pipeline
    configuration = {
        "spark.executor.memory": ours.executor_memory,
        "spark.executor.cores": str(ours.executor_cores),
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.task.maxFailures": "4",
        # A task waits this long for the executor that has its claims, then goes to another, which catches up.
        "spark.locality.wait": "2s",
        # An executor that is silent: 2 minutes by default, for which its partitions would stand still.
        "spark.network.timeout": "20s",
        "spark.network.timeoutInterval": "5s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "20s",
        "spark.executor.heartbeatInterval": "3s",
    }
    if ours.max_executors:
        configuration["spark.cores.max"] = str(ours.max_executors * ours.executor_cores)
        configuration["spark.executor.instances"] = str(ours.max_executors)
    return configuration
