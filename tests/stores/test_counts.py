"""Any history of applying, replaying, folding, rolling, pruning and reopening gives the numbers of plain Python.

Work is left off between slices; what a crash within one does is in test_crashes.
"""

import tempfile
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import cassandras
from stores import memory_cassandra
from tallymark.aggregates import columns, exact
from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.address import SqliteAddress
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.model import Ledger, RegisteredMeter, Stretch, StretchResult
from tallymark.store.protocol import Snapshot, Store
from tallymark.store.reference import WIDTH, Reference, cell

MIDNIGHT = 20_000 * DAY_S
VIEWS = Meter("views", ("view",), by=("video", "country"), compute=("count", "sum", "min", "max"))
MONEY = Meter("money", ("sale",), by=("country",), compute=("count", "sum"), decimals=2)

series_of_views = st.tuples(st.sampled_from("ABC"), st.sampled_from(["KR", "US", ""])).map("\0".join)
quarters = st.integers(-400, 400).map(lambda quarter: quarter / 4)


@st.composite
def counted(draw: st.DrawFn) -> tuple[Any, ...]:
    """One event: how many minutes before now, for which meter, with which value."""
    age = draw(st.one_of(st.integers(-3, 5), st.integers(0, 200), st.integers(0, 4 * 1440)))
    if draw(st.booleans()):
        return ("money", draw(st.sampled_from(["KR", "US"])), age, draw(st.integers(-(2**53) + 1, 2**53 - 1)))
    return ("views", draw(series_of_views), age, draw(st.none() | quarters))


QUESTIONS = [
    (name, where, by, since_s, until_s, step_s)
    for name, where, by in (
        ("views", {}, ()),
        ("views", {}, ("video",)),
        ("views", {"country": ["KR", ""]}, ("country",)),
        ("views", {"video": ["A"], "country": ["US"]}, ()),
        ("money", {}, ()),
        ("money", {}, ("country",)),
    )
    # Seconds before now.
    for since_s, until_s, step_s in (
        (None, None, None),
        (None, None, DAY_S),
        (DAY_S + 1860, 180, HOUR_S),
        (2 * HOUR_S, None, 60),
    )
]


class Counting(RuleBasedStateMachine):
    """One run in a store of its own; `look_at` says how many questions are asked after each step."""

    look_at = len(QUESTIONS)

    def open_run(self) -> None:
        raise NotImplementedError

    def open_store(self) -> Store:
        raise NotImplementedError

    def close_run(self) -> None:
        raise NotImplementedError

    @initialize()
    def open(self) -> None:
        self.open_run()
        self.store = self.open_store()
        self.asked = 0
        self.meters: dict[str, RegisteredMeter] = {
            meter.name: self.store.registry.put_meter("main", meter, now_ms=0) for meter in (VIEWS, MONEY)
        }
        self.reference = Reference()
        self.events = dict.fromkeys(self.meters, 0)
        self.history: list[StretchResult] = []
        self.now_s = MIDNIGHT + 11 * HOUR_S

    @rule(partition=st.integers(0, 1), events=st.lists(counted(), max_size=6), cut=st.integers(0, 6))
    def apply(self, partition: int, events: list[tuple[Any, ...]], cut: int) -> None:
        """One batch, cut into two stretches somewhere."""
        start = self.reference.applied.get(partition, 0)
        batch = []
        for part in (events[:cut], events[cut:]):
            if part:
                batch.append(self._stretch(partition, start, part))
                start += len(part)
        assert self.store.sink.apply(batch, now_ms=self.now_s * 1000) == batch
        self.reference.apply(batch)
        for name, *_ in events:
            self.events[name] += 1
        self.history += batch

    @precondition(lambda self: self.history)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        old = data.draw(st.lists(st.sampled_from(self.history), max_size=3))
        assert self.store.sink.apply(old, now_ms=self.now_s * 1000) == []

    @rule(most_points=st.sampled_from([1, 5, 1000]))
    def fold(self, most_points: int) -> None:
        self.store.upkeep.fold(most_points=most_points)

    @rule(slices=st.integers(1, 40), slice_series=st.sampled_from([1, 3, 1000]))
    def roll(self, slices: int, slice_series: int) -> None:
        for _ in range(slices):
            if not self.store.upkeep.roll(now_ms=self.now_s * 1000, delay_s=120, slice_series=slice_series):
                break

    @rule(minutes=st.sampled_from([1, 7, 60, 1440]))
    def wait(self, minutes: int) -> None:
        self.now_s += 60 * minutes

    @rule()
    def prune(self) -> None:
        self.store.upkeep.prune(now_ms=self.now_s * 1000, journal_keep_ms=0, letter_bytes=0)
        self.store.upkeep.checkpoint()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open_store()

    @invariant()
    def answers_are_exact(self) -> None:
        """All questions, or where that takes long some, in turn."""
        with self.store.snapshots.take() as snapshot:
            for number in range(self.asked, self.asked + self.look_at):
                self._look(snapshot, *QUESTIONS[number % len(QUESTIONS)])
        self.asked += self.look_at

    @invariant()
    def every_grain_gives_the_same_sum(self) -> None:
        with self.store.snapshots.take() as snapshot:
            for meter in list(self.meters.values())[: max(1, self.look_at // 12)]:
                sums = [
                    columns.merge(snapshot.read(meter, where={}, by=by, start_s=None, end_s=None, step_s=step_s), [])
                    .select("n", "n_value", *exact.PARTS)
                    .row(0)
                    for step_s in (None, 60, HOUR_S, DAY_S)
                    for by in ((), meter.labels)
                ]
                assert len(set(sums)) == 1

    def teardown(self) -> None:
        if hasattr(self, "store"):
            with self.store.snapshots.take() as snapshot:
                for question in QUESTIONS:
                    self._look(snapshot, *question)
            self.store.close()
            self.close_run()

    def _look(
        self, snapshot: Snapshot, name: str, where: Any, by: Any, since_s: int | None, until_s: int | None, step_s: Any
    ) -> None:
        question: dict[str, Any] = {
            "where": where,
            "by": by,
            "start_s": None if since_s is None else (self.now_s - since_s) // 60 * 60,
            "end_s": None if until_s is None else (self.now_s - until_s) // 60 * 60,
            "step_s": step_s,
        }
        rows = snapshot.read(self.meters[name], **question).rows()
        found = {row[:-WIDTH]: cell(*row[-WIDTH:]) for row in rows}
        expected = self.reference.read(self.meters[name], **question)
        if not where and since_s is None and until_s is None:
            assert sum(n for n, *_ in expected.values()) == self.events[name], "the reference misses something"
        assert found == expected, (name, question)

    def _stretch(self, partition: int, start: int, events: list[tuple[Any, ...]]) -> StretchResult:
        cells = []
        for name, series, age, value in events:
            bucket_s = (self.now_s - 60 * age) // 60 * 60
            key = (self.meters[name].meter_id, series, bucket_s)
            if name == "money":
                cells.append((*key, 1, 1, None, *exact.split(value), None, None))
            else:
                cells.append((*key, 1, 0 if value is None else 1, value, None, None, value, value))
        frame = deltas.from_rows(cells)
        return StretchResult(
            Stretch(partition, start, start + len(events)),
            "log",
            meters_revision=3,
            meter_ids=(1, *(meter.meter_id for meter in self.meters.values())),
            deltas=deltas.encode(deltas.merge([frame])),
            ledger=Ledger(accepted=len(events), counted=len(events)),
        )


class CountingInSqlite(Counting):
    def open_run(self) -> None:
        self.folder = tempfile.TemporaryDirectory()

    def open_store(self) -> Store:
        return SqliteAddress(f"{self.folder.name}/store.db").open_store()

    def close_run(self) -> None:
        self.folder.cleanup()


class CountingInMemory(Counting):
    """Cassandra's store, on a server in memory."""

    def open_run(self) -> None:
        self.session = memory_cassandra.Session(memory_cassandra.Server())

    def open_store(self) -> Store:
        return CassandraStore(cassandras.address(0, name="store"), connect=lambda _: self.session, pause_s=0)

    def close_run(self) -> None:
        pass


class CountingInCassandra(Counting):
    look_at = 3

    def open_run(self) -> None:
        self.address = cassandras.address(cassandras.server().port)

    def open_store(self) -> Store:
        return CassandraStore(self.address, pause_s=0)

    def close_run(self) -> None:
        pass


def counting(kind: type[Counting], examples: int) -> type:
    """The test case of a kind of store, with this many examples."""
    made = type(f"{kind.__name__}{examples}", (kind,), {})
    made.TestCase.settings = settings(max_examples=examples, stateful_step_count=20, deadline=None)
    return made.TestCase


on_cassandra = pytest.mark.usefixtures("cassandra")
TestCountingInSqlite = counting(CountingInSqlite, 8)
TestCountingInMemory = counting(CountingInMemory, 8)
TestCountingInCassandra = on_cassandra(counting(CountingInCassandra, 4))
TestCountingInSqliteLong = pytest.mark.long(counting(CountingInSqlite, 40))
TestCountingInMemoryLong = pytest.mark.long(counting(CountingInMemory, 40))
TestCountingInCassandraLong = on_cassandra(pytest.mark.long(counting(CountingInCassandra, 20)))
