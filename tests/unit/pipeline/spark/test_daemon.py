"""The process from which Spark's Python workers are forked."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from tallymark.pipeline.spark.daemon import without_zips


def test_only_sparks_own_zips_are_left_out():
    home = "/opt/spark/python/lib"
    path = ["", f"{home}/pyspark.zip", f"{home}/py4j-0.10.9.9-src.zip", "/opt/ours.zip", "/usr/lib/python311.zip", home]
    assert without_zips(path) == ["", "/opt/ours.zip", "/usr/lib/python311.zip", home]


def test_workers_are_forked_from_one_thread_with_the_installed_pyspark_in_hand():
    """Threads do not survive a fork: whoever imports something here that starts one breaks the workers."""
    script = """
import os, sys
from tallymark.pipeline.spark import daemon
import pyspark.daemon
def manager():
    print(pyspark.__file__, "pyspark.worker" in sys.modules, len(os.listdir("/proc/self/task")))
pyspark.daemon.manager = manager
daemon.main()
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [pyspark.__file__, "True", "1"]


def test_as_spark_starts_it_the_zip_is_not_used():
    home = Path(pyspark.__file__).parent / "python" / "lib"
    zips = sorted(map(str, home.glob("py*.zip")))
    assert len(zips) == 2, "PySpark and Py4J"
    script = """
import sys
from tallymark.pipeline.spark import daemon
sys.path[:] = daemon.without_zips(sys.path)
import pyspark, py4j
print(pyspark.__file__, "zip" in py4j.__file__)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*zips, os.environ.get("PYTHONPATH", "")])}
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert said.stdout.split() == [pyspark.__file__, "False"]
