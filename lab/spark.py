"""A standalone Spark cluster from PySpark's own package: one master and some workers, all on loopback."""

import json
import os
import urllib.request
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from lab.jars import cache
from lab.process import ServerProcess, free_ports
from tallymark.pipeline.spark.java import java_home
from tallymark.testing import until

HOME = Path(pyspark.__file__).parent
# A worker that is silent for this long is lost. Workers must know it too: they beat at a quarter of their own value.
SILENT_S = 20


class SparkCluster:
    """`with SparkCluster(folder) as spark:` and `spark.url` is the master of some workers, numbered from 1."""

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 2, memory: str = "2g") -> None:
        self._folder = folder.absolute()
        self._count, self._cores, self._memory = workers, cores, memory
        self._port, self._ui = free_ports(2)
        self.url = f"spark://127.0.0.1:{self._port}"
        self._master: ServerProcess | None = None
        self.workers: dict[str, ServerProcess] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._master = self._start(
            "master", "master.Master", "--host", "127.0.0.1", "--port", self._port, "--webui-port", self._ui
        )
        until(self._answers, "the Spark master answers", deadline_s=90)
        for number in range(self._count):
            self.add_worker(f"worker-{number + 1}")
        until(lambda: len(self.alive()) == self._count, "the Spark workers are there", deadline_s=90)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in [*self.workers.values(), self._master]:
            if process is not None:
                process.kill()

    def add_worker(self, name: str) -> None:
        """Each has claim tables of its own, as if it were on a machine of its own."""
        self.workers[name] = self._start(
            name,
            "worker.Worker",
            *("--host", "127.0.0.1", "--webui-port", 0, "--work-dir", self._folder / name),
            *("--cores", self._cores, "--memory", self._memory, self.url),
            environment={"TALLYMARK_PIPELINE_CLAIMS": str(self.claims(name))},
        )

    def claims(self, name: str) -> Path:
        return self._folder / name / "claims"

    def kill_worker(self, name: str) -> None:
        """As if its machine had gone: the worker, its executors and their Python, at once."""
        self.workers.pop(name).kill()

    def alive(self) -> list[str]:
        return [worker["id"] for worker in self._state()["workers"] if worker["state"] == "ALIVE"]

    def _answers(self) -> bool:
        try:
            return bool(self._state())
        except (OSError, ValueError, HTTPException):  # its page is there before what it shows
            return False

    def _state(self) -> dict[str, list[dict[str, str]]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._ui}/json/", timeout=5) as answer:
            state: dict[str, list[dict[str, str]]] = json.load(answer)
            return state

    def _start(
        self, name: str, main: str, *arguments: object, environment: dict[str, str] | None = None
    ) -> ServerProcess:
        timeout = f"-Dspark.worker.timeout={SILENT_S}"
        spark = {
            "SPARK_HOME": str(HOME),
            "JAVA_HOME": str(java_home(cache())),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": f"{timeout} -Dspark.master.rest.enabled=false",
            "SPARK_WORKER_OPTS": timeout,
        }
        return ServerProcess(
            [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{main}", *map(str, arguments)],
            log=self._folder / f"{name}.log",
            env={**os.environ, **spark, **(environment or {})},
            cwd=self._folder,
        )
