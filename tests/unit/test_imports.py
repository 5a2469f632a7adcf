"""What a role carries: a collector or query node needs no Spark, a client needs next to nothing."""

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pyarrow", "polars", "numpy", "granian", "yaml", "rich")


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("tallymark", HEAVY),
        ("tallymark.client", HEAVY),
        ("tallymark.reader.reader", (*HEAVY, "pandas", "asyncio", "ssl", "dataclasses", "sqlite3")),
        ("tallymark.cli", HEAVY),
        ("tallymark.collector.service", ("pyspark", "polars", "yaml", "rich")),
        ("tallymark.query.service", ("pyspark", "rich")),
        ("tallymark.keeper.service", ("pyspark", "granian", "rich")),
        ("tallymark.store", ("pyspark",)),
        ("tallymark.log", ("pyspark", "polars")),
        # A collector opens its heartbeats, and has no Polars.
        ("tallymark.store.cassandra.heartbeats", ("pyspark", "polars")),
        ("tallymark.role", HEAVY),
        # The driver plans and never counts; Spark's daemon forks the workers, and Polars does not survive a fork.
        ("tallymark.pipeline.counting.plan", ("pyspark", "polars", "granian", "yaml", "rich")),
        ("tallymark.pipeline.spark.worker", ("polars", "granian", "yaml", "rich")),
    ],
)
def test_importing_a_role_does_not_pull_in_what_it_does_not_need(module, forbidden):
    script = f"import sys, {module}; print(sorted({{name.split('.')[0] for name in sys.modules}} & set({forbidden!r})))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_collector_reads_the_applied_positions_without_polars(tmp_path):
    script = (
        "import sys; from tallymark.store.address import SqliteAddress;"
        f"print(SqliteAddress({str(tmp_path / 'store.db')!r}).open_sink().applied('log'), 'polars' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "{} False"
