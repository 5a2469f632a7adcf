"""Spark's daemon, from which its Python workers are forked, with PySpark as it is installed instead of the zip.

Spark puts a zip of PySpark before everything else on the daemon's path. It holds no compiled modules: importing from it
takes 0.8 s of CPU, from the installed package 0.15. What the workers share is imported before they are forked, which
saves each of them the time and the memory. No library that starts threads (numpy, pyarrow, Polars) is among it, since
threads do not survive a fork.
"""

import sys
from collections.abc import Sequence
from pathlib import PurePath


def without_zips(path: Sequence[str]) -> list[str]:
    """The places to import from, but for Spark's own copies of PySpark and Py4J."""
    return [place for place in path if not PurePath(place).match("python/lib/py*.zip")]


def main() -> None:
    """Fork workers until Spark closes our standard input."""
    sys.path[:] = without_zips(sys.path)
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
