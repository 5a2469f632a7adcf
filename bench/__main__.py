"""`python -m bench`: all benchmarks, or those named with --only; one table and a JSON file in bench/results."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import (
    agent,
    cassandra,
    client,
    cluster,
    collector,
    end_to_end,
    idle,
    kafka,
    keeping,
    pages,
    pipeline,
    questions,
    report,
    saved,
    startup,
    tables,
    values,
)
from bench.figure import Conditions, Figure
from bench.machine import machine, versions
from bench.processes import Broken

RESULTS = Path(__file__).resolve().parent / "results"
BENCHMARKS: dict[str, Callable[[Conditions], Iterator[Figure]]] = {
    "collector": collector.measure,
    "pipeline": pipeline.measure,
    "startup": startup.measure,
    "idle": idle.measure,
    "end-to-end": end_to_end.measure,
    "client": client.measure,
    "agent": agent.measure,
    "values": values.measure,
    "questions": questions.measure,
    "keeping": keeping.measure,
    "saved": saved.measure,
    "tables": tables.measure,
    "pages": pages.measure,
}
CLUSTER: dict[str, Callable[[Conditions], Iterator[Figure]]] = {
    "cluster": cluster.measure,
    "kafka": kafka.measure,
    "cassandra": cassandra.measure,
}
ALL = BENCHMARKS | CLUSTER


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=ALL, help="just this one; may be repeated")
    parser.add_argument("--cluster", action="store_true", help="those on real Kafka, Spark workers and Cassandra")
    parser.add_argument("--quick", action="store_true", help="shorter runs: does it work, not how fast is it")
    parser.add_argument("--folder", type=Path, help="where the data lies meanwhile, on a real disk (the temporary one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="tallymark-bench-", dir=arguments.folder, ignore_cleanup_errors=True
    ) as made:
        return run(
            arguments.only or list(CLUSTER if arguments.cluster else BENCHMARKS),
            Conditions(Path(made), arguments.quick),
        )


def run(names: list[str], conditions: Conditions) -> int:
    facts = {"machine": machine(conditions.folder), "versions": versions(), "quick": conditions.quick}
    begun = time.monotonic()
    figures: list[Figure] = []
    failures: dict[str, str] = {}
    for name in names:
        try:
            for figure in ALL[name](conditions):
                figures.append(figure)
                _say(f"{figure.benchmark}: {figure.what}: {figure.spoken()} {figure.unit}")
        except Exception as error:  # the others still tell something
            failures[name] = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
            _say(f"{name} FAILED: {failures[name]}")
    facts |= {"seconds": round(time.monotonic() - begun), "failures": failures}
    path = report.write(RESULTS, facts, figures)
    for title in ("machine", "versions"):
        print(f"{title}: " + ", ".join(f"{key} {value}" for key, value in facts[title].items()))
    print(f"\n{report.table(figures)}\n\n{facts['seconds']} s, written to {path}")
    for name, why in failures.items():
        print(f"{name} FAILED: {why}", file=sys.stderr)
    return 1 if failures else 0


def _say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
