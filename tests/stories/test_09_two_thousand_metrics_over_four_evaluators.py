"""Story 9: metrics 1-500 … 1501-2000 spread over four evaluators; two readers read one metric.

A saved query of one minute has fifty metrics. The four evaluators divide the queries by leases on a real Cassandra; one
is killed, and the others take over what it had. Time is a clock that the test moves.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import cassandras
from tallymark.evaluation import content, definition
from tallymark.evaluation.definition import Definition
from tallymark.evaluation.evaluator import Evaluator
from tallymark.fidelity.log_view import StreamView
from tallymark.fidelity.rates import Rates
from tallymark.keeper.shares import Shares
from tallymark.query import api
from tallymark.query.cache import AnswerCache
from tallymark.query.delivery import LastKnown
from tallymark.query.parameters import read_pairs
from tallymark.query.routes import Request
from tallymark.query.sources import Sources
from tallymark.settings import Settings
from tallymark.store import deltas
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.windows import SHARES, ShareChange
from tallymark.tables import Tables
from tallymark.testing import MemoryLog

METRICS = [f"m{number}" for number in range(1, 2_001)]
QUERIES = {f"from_{METRICS[first]}": METRICS[first : first + 50] for first in range(0, len(METRICS), 50)}
NOON = 1_763_208_000
LEASE_S = 10.0


class Clock:
    def __init__(self) -> None:
        self.now_s = float(NOON)

    def seconds(self) -> float:
        return self.now_s

    def ms(self) -> int:
        return int(self.now_s * 1000)


class One:
    """One evaluator, as a keeper has it: a store of its own, leases, and rounds."""

    def __init__(self, name: str, open_store: Callable[[], CassandraStore], clock: Clock) -> None:
        self.name, self.clock, self.store = name, clock, open_store()
        self.shares = Shares(self.store, self.store.heartbeats.beats, name=name, lease_s=LEASE_S, clock_ms=clock.ms)
        self.written: Counter[tuple[str, int]] = Counter()
        write = self.store.windows.write

        def noting(changes: Sequence[ShareChange]) -> None:
            self.written.update((each.lineage.name, each.start_s) for change in changes for each in change.windows)
            write(changes)

        self.store.windows.write = noting  # type: ignore[method-assign]
        log = StreamView(lambda: MemoryLog(1, clock=clock.ms))
        self.evaluator = Evaluator(self.store, log, accept_past_s=3600, clock_ms=clock.ms, monotonic=clock.seconds)

    def look_after_shares(self) -> None:
        self.store.heartbeats.beat(self.name, {}, now_ms=self.clock.ms())
        self.shares.balance()

    def evaluate(self) -> None:
        while self.evaluator.round(self.shares.held):
            pass


def test_every_window_once_also_when_one_of_four_is_killed(cassandra: Any, tmp_path: Path) -> None:
    clock, name = Clock(), f"story9-{tmp_path.name}"
    address = cassandras.address(cassandras.server().port, name=name)

    def open_store() -> CassandraStore:
        return CassandraStore(address, pause_s=0, clock=clock.seconds)

    store = open_store()
    for query, metrics in QUERIES.items():
        named = ", ".join(f"'{metric}'" for metric in metrics)
        text = f"FROM * SELECT metrics WINDOW 1m COMPUTE sum WHERE metric IN ({named}) BY metric"
        body = definition.encode(Definition(str(definition.parse(text))))
        store.documents.put("query", "main", query, body, now_ms=clock.ms())
    four = [One(f"keeper/{letter}", open_store, clock) for letter in "abcd"]
    for _ in range(3):
        for each in four:
            each.look_after_shares()
    held = [share for each in four for share in each.shares.held]
    assert sorted(held) == list(range(SHARES))
    assert [len(each.shares.held) for each in four] == [4, 4, 4, 4]

    for each in four:
        each.evaluate()
    for minute in range(2):
        count(store, minute)
    clock.now_s += 60
    for each in four:
        each.look_after_shares()
        each.evaluate()
    each_wrote = [len(each.written) for each in four]
    assert sum(each_wrote) == len(QUERIES)
    assert min(each_wrote) > 0

    # One is killed: when its heart and its leases are silent for long enough, the others take over what it had.
    left = four[1:]
    clock.now_s += 60
    for _ in range(8):
        clock.now_s += 2
        for each in left:
            each.look_after_shares()
    assert sorted(share for each in left for share in each.shares.held) == list(range(SHARES))
    for each in left:
        each.evaluate()

    expected = {metric: {NOON: number, NOON + 60: number + 1} for number, metric in enumerate(METRICS)}
    assert stored(store) == expected
    twice = [window for window, times in sum((each.written for each in four), Counter()).items() if times > 1]
    assert twice == []

    readers = [reader(open_store(), clock, tmp_path) for _ in range(2)]
    for ask in readers:
        answer = ask("/v1/queries/from_m1501/series", f"from={NOON}000&to={NOON + 120}000")
        assert len(answer["series"]) == 50
        (line,) = [each for each in answer["series"] if each["labels"] == {"metric": "m1507"}]
        assert [point["sum"] for point in line["points"]] == [1506.0, 1507.0]
        assert answer["stored_through"] == "2025-11-15T12:02:00Z"


def count(store: CassandraStore, minute: int) -> None:
    """One server sends all its metrics once: metric i has the number i, a minute later one more."""
    meter = store.registry.meter("main", "metrics")
    rows = [
        (meter.set_id, f"web-1\0{metric}", NOON + 60 * minute, 1, 1, float(number + minute))
        for number, metric in enumerate(METRICS)
    ]
    result = StretchResult(
        Stretch(0, minute, minute + 1),
        "log",
        meters_revision=1,
        meter_ids=(meter.meter_id,),
        deltas=deltas.encode(deltas.from_rows(rows)),
        ledger=Ledger(accepted=1, counted=1),
    )
    store.sink.apply([result], now_ms=0)


def stored(store: CassandraStore) -> dict[str, dict[int, float]]:
    """Metric -> start of each window -> the sum there."""
    found: dict[str, dict[int, float]] = {}
    for lineage in store.windows.lineages():
        windows = store.windows.read(lineage, lineage.from_s, lineage.next_s)
        assert len(windows) == lineage.windows
        for start_s, body in windows:
            kept = content.decode(body)
            assert list(kept.labels[0]) == sorted(QUERIES[lineage.name])
            for metric, value in zip(kept.labels[0], kept.values[0], strict=True):
                found.setdefault(metric, {})[start_s] = value  # type: ignore[assignment]
    return found


def reader(store: CassandraStore, clock: Clock, folder: Path) -> Callable[[str, str], Any]:
    """A query service of its own."""
    log = StreamView(lambda: MemoryLog(1, clock=clock.ms))
    cache, last_known = AnswerCache(ttl_s=0.0), LastKnown(most_bytes=100_000)
    sources = Sources(
        store,
        log,
        log,
        Settings(data=str(folder)),
        clock_ms=clock.ms,
        cache=cache,
        last_known=last_known,
        tables=Tables(store.documents, store.table_parts),
    )
    routes = api.routes(sources, Rates(sources))

    def ask(path: str, parameters: str) -> Any:
        route, arguments = routes.find("GET", path)
        assert route.answer is not None
        named = dict(zip(route.names, arguments, strict=True))
        answer = route.answer(Request("GET", path, read_pairs(parameters), arguments=named))
        return msgspec.json.decode(answer.body if not hasattr(answer, "result") else answer.result().body)

    return ask
