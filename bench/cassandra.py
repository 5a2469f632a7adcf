"""Cassandra: rows a second that the keeper folds into points, against a plain writer with prepared statements."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cassandra.cluster import Cluster
from cassandra.concurrent import execute_concurrent_with_args

from bench.figure import Conditions, Figure
from lab.cassandra import Cassandra
from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.model import Ledger, Stretch, StretchResult

BENCHMARK = "cassandra"
MINUTES = 4
SERIES = {"full": 10_000, "quick": 1_500}
PLAIN_ROWS = {"full": 30_000, "quick": 5_000}
# As the keeper folds: slices of this many points.
FOLD_ROWS = 5_000
CONCURRENCY = 100
FIRST_MINUTE_S = 29_000_040 * 60  # a full hour

_PLAIN_TABLE = """CREATE TABLE plain.points (meter int, series text, bucket_s bigint, n bigint, n_value bigint,
    sum double, exact_high bigint, exact_low bigint, min double, max double, PRIMARY KEY ((meter, series), bucket_s))"""
_PLAIN_INSERT = """INSERT INTO plain.points (meter, series, bucket_s, n, n_value, sum, exact_high, exact_low, min, max)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


@dataclass(frozen=True)
class Run:
    rows: int
    seconds: float
    cpu_s: float

    def figure(self, what: str, remark: str = "") -> Figure:
        details = {"rows": self.rows, "seconds": self.seconds, "cpu_s": self.cpu_s}
        return Figure(BENCHMARK, what, self.rows / self.seconds, "rows/s", remark=remark, details=details)

    def per_cpu(self, what: str) -> Figure:
        return Figure(BENCHMARK, what, self.rows / self.cpu_s, "rows/CPU-s", remark="of the client, without the server")


def measure(conditions: Conditions) -> Iterator[Figure]:
    size = "quick" if conditions.quick else "full"
    series = SERIES[size]
    with Cassandra(conditions.folder / "cassandra", heap="1g") as cassandra:
        # Both twice, the plain one first: the server is a Java process and has to warm up.
        rounds = [(_plain(cassandra, PLAIN_ROWS[size]), *_folds(cassandra, series)) for _ in range(2)]
    plain, new, minutes, again = (
        min(runs, key=lambda run: run.seconds / run.rows) for runs in zip(*rounds, strict=True)
    )
    points = f"{series:,} series, {MINUTES} minutes"
    yield new.figure("fold, series that are new", f"{points}; their labels are indexed too")
    yield minutes.figure("fold, new minutes of known series", points)
    yield again.figure("fold, points that are there", f"{points}, in the keeper's memory")
    yield plain.figure("plain writer, one prepared INSERT a row", f"execute_concurrent, {CONCURRENCY} in flight")
    yield minutes.per_cpu("fold, new minutes of known series")
    yield plain.per_cpu("plain writer, one prepared INSERT a row")
    ratio = minutes.rows / minutes.seconds / (plain.rows / plain.seconds)
    yield Figure(BENCHMARK, "fold against the plain writer", ratio, "times", remark="rows/s, new minutes")


def _folds(cassandra: Cassandra, series: int) -> tuple[Run, Run, Run]:
    """Series that are new; then new minutes of them; then the same minutes again."""
    name = uuid.uuid4().hex
    address = CassandraAddress(
        ("127.0.0.1",), cassandra.port, "bench", name, (), "", "quorum", shards=16, timeout_s=60.0, user="", password=""
    )
    store = CassandraStore(address, pause_s=0)
    meter = store.registry.put_meter(
        "main", Meter("views", ("view",), by=("video",), compute=("count", "sum", "min", "max")), now_ms=0
    )
    runs = []
    for batch, first_minute in enumerate((0, MINUTES, MINUTES)):
        rows = _rows(meter.meter_id, series * MINUTES, first_minute)
        body = deltas.encode(deltas.from_rows(rows))
        ledger = Ledger(accepted=1, counted=1)
        store.sink.apply([StretchResult(Stretch(0, batch, batch + 1), "log", 2, (2,), body, ledger)], now_ms=0)
        runs.append(_timed(lambda: _fold_all(store)))
    store.close()
    return runs[0], runs[1], runs[2]


def _fold_all(store: CassandraStore) -> int:
    rows = 0
    while True:
        folded = store.upkeep.fold(most_points=FOLD_ROWS)
        rows += folded.points
        if not folded.more:
            return rows


def _plain(cassandra: Cassandra, rows: int) -> Run:
    cluster = Cluster(["127.0.0.1"], port=cassandra.port, protocol_version=4)
    session = cluster.connect()
    session.execute("DROP KEYSPACE IF EXISTS plain")
    session.execute("CREATE KEYSPACE plain WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute(_PLAIN_TABLE)
    insert = session.prepare(_PLAIN_INSERT)
    values = _rows(1, rows, 0)

    def write() -> int:
        execute_concurrent_with_args(session, insert, values, concurrency=CONCURRENCY)
        return rows

    run = _timed(write)
    cluster.shutdown()
    return run


def _rows(meter: int, count: int, first_minute: int) -> list[tuple[object, ...]]:
    return [
        (
            meter,
            f"video-{row // MINUTES:06d}",
            _minute(first_minute + row % MINUTES),
            3,
            3,
            row / 2,
            None,
            None,
            0.5,
            9.5,
        )
        for row in range(count)
    ]


def _minute(number: int) -> int:
    return FIRST_MINUTE_S + 60 * number


def _timed(work: Callable[[], int]) -> Run:
    begun, cpu = time.monotonic(), time.process_time()
    rows = work()
    return Run(rows, time.monotonic() - begun, time.process_time() - cpu)
