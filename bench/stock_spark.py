"""Stock Spark on the same events: JSON lines, `dropDuplicatesWithinWatermark`, a window aggregation, SQLite.

Run as a program (`python -m bench.stock_spark FOLDER WARM_BATCHES`) it is the job itself, in a process tree of its own
as ours is. It gets what ours gets: the machine's cores, batches of 400,000, three of them to warm up. Both matter: on
a shared machine single runs gave 47 us an event with batches of 100,000 after two, 37 with 400,000 after one, 26 with
400,000 after three. So a quick run says little about it. Its state holds only the ids of this run, while our claim
table is pre-filled: that favours stock Spark.
"""

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.figure import Conditions, Figure
from bench.processes import Broken, Tree
from bench.traffic import Traffic
from tallymark.pipeline.spark.java import java_home

ROOT = Path(__file__).resolve().parents[1]
FILES_PER_BATCH = 2
DEADLINE_S = 600.0
SCHEMA = "event string, id string, time long, value double, props struct<video: string, country: string>"
UPSERT = "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?, ?)"


def measure(conditions: Conditions, events: Traffic) -> Figure:
    """Events per second of CPU, for as many of these events as the time allows."""
    batch = conditions.choose(full=400_000, quick=100_000)
    warm = conditions.choose(full=3, quick=2)
    measured = conditions.choose(full=3, quick=2)
    folder = conditions.folder / "stock"
    used = events.part(0, batch * (warm + measured))
    write_lines(used, folder / "events", batch // FILES_PER_BATCH)
    command = [sys.executable, "-m", "bench.stock_spark", str(folder), str(warm)]
    with (folder / "log").open("wb") as log:
        done = subprocess.run(command, cwd=ROOT, stderr=log, stdout=subprocess.PIPE, timeout=DEADLINE_S, check=False)
    if done.returncode != 0:
        raise Broken(f"stock Spark ended with {done.returncode}; {folder / 'log'} says why")
    told = json.loads(done.stdout.splitlines()[-1])
    exact = told["counted"] == used.distinct
    counted = batch * measured
    spoken = f"{counted / told['wall_s']:,.0f} events/s, {told['state_rows']:,} ids in its state"
    return Figure(
        "pipeline",
        "stock Spark, one meter",
        counted / told["cpu_s"],
        "events/CPU-s",
        None,
        f"{'exact' if exact else 'WRONG'}, {spoken}",
        {"events": counted, "batch_events": batch, "exact": exact, **told},
    )


def write_lines(events: Traffic, folder: Path, lines_a_file: int) -> None:
    """Files whose times say their order, which is the order Spark reads them in."""
    folder.mkdir(parents=True)
    lines = events.lines()
    now = time.time() - 3600
    for number, start in enumerate(range(0, len(lines), lines_a_file)):
        file = folder / f"{number:05}.json"
        file.write_text("\n".join(lines[start : start + lines_a_file]))
        os.utime(file, (now + number, now + number))


class PointsSink:
    """Upserts the changed windows of a batch, and notes the CPU used up to its end."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "points.db", isolation_level=None, check_same_thread=False)
        self._database.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE points (key TEXT, minute INT, n INT, sum REAL, min REAL, max REAL, PRIMARY KEY (key, minute))"
            " WITHOUT ROWID"
        )
        self._tree = Tree(os.getpid())
        self.ends: list[tuple[float, float]] = []
        """(seconds of CPU, clock) at the end of each batch"""

    def __call__(self, batch: Any, batch_id: int) -> None:
        columns = [column.to_pylist() for column in batch.toArrow().columns]
        self._database.execute("BEGIN")
        self._database.executemany(UPSERT, zip(*columns, strict=True))
        self._database.execute("COMMIT")
        self.ends.append((self._tree.cpu_s(), time.monotonic()))

    def counted(self) -> int:
        return int(self._database.execute("SELECT sum(n) FROM points").fetchone()[0])


def run(folder: Path, warm: int) -> dict[str, Any]:
    from pyspark.sql import functions as F

    spark = _session(folder)
    sink = PointsSink(folder)
    events = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .json(str(folder / "events"))
        .withColumn("at", F.timestamp_millis("time"))
        .withWatermark("at", "10 minutes")
    )
    fresh = events.dropDuplicatesWithinWatermark(["event", "id"])
    minutes = fresh.groupBy(F.col("props.video").alias("key"), F.window("at", "1 minute")).agg(
        F.count("*").alias("n"), F.sum("value").alias("sum"), F.min("value").alias("min"), F.max("value").alias("max")
    )
    points = minutes.select("key", F.unix_timestamp("window.start").alias("minute"), "n", "sum", "min", "max")
    query = (
        points.writeStream.outputMode("update")
        .foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    state = query.lastProgress["stateOperators"]
    spark.stop()
    (warm_cpu, warm_at), (end_cpu, end_at) = sink.ends[warm - 1], sink.ends[-1]
    return {
        "cpu_s": end_cpu - warm_cpu,
        "wall_s": end_at - warm_at,
        "batches": len(sink.ends) - warm,
        "counted": sink.counted(),
        "state_rows": max(operator["numRowsTotal"] for operator in state),
    }


def _session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java_home(folder))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.master": "local[*]",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "spill"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
    builder: Any = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]))))
