"""Jars of a server, fetched once by the Ivy that PySpark carries: no Maven, no account."""

import fcntl
import os
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tallymark.pipeline.spark.java import java_home

SPARK_JARS = Path(pyspark.__file__).parent / "jars"


@dataclass(frozen=True)
class Artifact:
    organisation: str
    name: str
    revision: str

    def dependency(self) -> str:
        return (
            f'<dependency org="{self.organisation}" name="{self.name}" rev="{self.revision}" conf="default->default"/>'
        )


# The broker brings slf4j 1.7: without this binding (not the one for slf4j 2) it writes no log.
KAFKA = (
    Artifact("org.apache.kafka", "kafka_2.13", "4.3.1"),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
CASSANDRA = (Artifact("org.apache.cassandra", "cassandra-all", "5.0.9"),)


def cache() -> Path:
    """Outside the project, so that a fresh clone on the same machine need not fetch 100 MB again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tallymark-lab"


def java() -> Path:
    """The `java` that servers and Ivy run on."""
    return java_home(cache()) / "bin" / "java"


def fetch(artifacts: tuple[Artifact, ...]) -> Path:
    """The folder with the jars of these artifacts and of all they need."""
    folder = cache() / "-".join(f"{each.name}-{each.revision}" for each in artifacts)
    if not folder.exists():
        cache().mkdir(parents=True, exist_ok=True)
        # Two that fill Ivy's cache at once break each other's downloads.
        with (cache() / "fetching").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                _retrieve(artifacts, folder)
    return folder


def _retrieve(artifacts: tuple[Artifact, ...], folder: Path) -> None:
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    draft.mkdir()
    ivy = draft / "ivy.xml"
    ivy.write_text(
        '<ivy-module version="2.0"><info organisation="tallymark" module="lab"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(each.dependency() for each in artifacts)}</dependencies></ivy-module>"
    )
    command = [str(java()), "-cp", f"{SPARK_JARS}/*", "org.apache.ivy.Main", "-cache", str(cache() / "ivy")]
    command += ["-ivy", str(ivy), "-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", str(draft / "[artifact]-[revision](-[classifier]).[ext]")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(draft)
        raise RuntimeError(f"cannot fetch {', '.join(each.name for each in artifacts)}:\n{done.stdout[-3000:]}")
    ivy.unlink()
    draft.rename(folder)
