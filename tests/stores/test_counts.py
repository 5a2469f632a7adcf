"""Any history of applying, replaying, folding, rolling, pruning and reopening gives the numbers of plain Python.

Work is left off between slices; what a crash within one does is in test_crashes.
"""

import tempfile
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import cassandras
from stores import memory_cassandra
from tallymark.aggregates import columns, exact
from tallymark.meters.model import Late, Meter
from tallymark.store import deltas
from tallymark.store.address import SqliteAddress
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.grains import DAY_S, HOUR_S, floor
from tallymark.store.model import Ledger, RegisteredMeter, Stretch, StretchResult
from tallymark.store.protocol import Snapshot, Store
from tallymark.store.read_plan import Question
from tallymark.store.reference import WIDTH, Reference, cell

MIDNIGHT = 20_000 * DAY_S
VIEWS = Meter("views", ("view",), by=("video", "country"), compute=("count", "sum", "min", "max"))
MONEY = Meter("money", ("sale",), by=("country",), compute=("count", "sum"), decimals=2)
CALLS = Meter("calls", ("call",), ("server",), VIEWS.compute, grain_s=1, late=Late(after_s=3600, then="aside"))
TICKS = Meter("ticks", ("tick",), grain_s=10)

series_of_views = st.tuples(st.sampled_from("ABC"), st.sampled_from(["KR", "US", ""])).map("\0".join)
FINDS = Meter("finds", ("find",), ("word", "country"), VIEWS.compute, max_series=3)
METERS = (VIEWS, MONEY, CALLS, TICKS, FINDS)
GRAINS = {meter.name: meter.grain_s for meter in METERS}
quarters = st.integers(-400, 400).map(lambda quarter: quarter / 4)


@st.composite
def counted(draw: st.DrawFn) -> tuple[Any, ...]:
    """One event: for which meter and series, how many seconds before now, with which value, and if it was late."""
    minutes = draw(st.one_of(st.integers(-3, 5), st.integers(0, 200), st.integers(0, 4 * 1440)))
    age_s = 60 * minutes + draw(st.integers(0, 59))
    name = draw(st.sampled_from(["views", "money", "calls", "ticks", "finds"]))
    if name == "money":
        return (name, draw(st.sampled_from(["KR", "US"])), age_s, draw(st.integers(-(2**53) + 1, 2**53 - 1)), False)
    if name == "calls":
        return (name, draw(st.sampled_from(["web-1", "web-2"])), age_s, draw(st.none() | quarters), draw(st.booleans()))
    if name == "ticks":
        return (name, "", age_s, None, False)
    if name == "finds":
        series = draw(st.sampled_from(["a\0KR", "b\0KR", "b\0US", "c\0KR", "d\0US", "é\0", "__other__\0__other__"]))
        return (name, series, age_s, draw(st.none() | quarters), False)
    return (name, draw(series_of_views), age_s, draw(st.none() | quarters), False)


QUESTIONS = [
    (name, where, by, since_s, until_s, step_s, late)
    for name, where, by, late in (
        ("views", {}, (), False),
        ("views", {}, ("video",), False),
        ("views", {"country": ["KR", ""]}, ("country",), False),
        ("views", {"video": ["A"], "country": ["US"]}, (), False),
        ("money", {}, (), False),
        ("money", {}, ("country",), False),
        ("calls", {}, (), False),
        ("calls", {}, ("server",), False),
        ("calls", {"server": ["web-1"]}, (), True),
        ("calls", {}, ("server",), True),
        ("ticks", {}, (), False),
        ("finds", {}, (), False),
        ("finds", {}, ("word", "country"), False),
        ("finds", {"word": ["b", "__other__"]}, ("country",), False),
        ("finds", {"word": ["a"], "country": ["KR"]}, (), False),
    )
    # Seconds before now.
    for since_s, until_s, step_s in (
        (None, None, None),
        (None, None, DAY_S),
        (DAY_S + 1860, 180, HOUR_S),
        (2 * HOUR_S, None, 60),
        (HOUR_S + 1, 61, 1),
        (3 * HOUR_S, 70, 10),
    )
    if step_s is None or step_s % GRAINS[name] == 0
]


class Counting(RuleBasedStateMachine):
    """One run in a store of its own; `look_at` says how many questions are asked after each step."""

    look_at = 24

    def open_run(self) -> None:
        raise NotImplementedError

    def open_store(self) -> Store:
        raise NotImplementedError

    def close_run(self) -> None:
        raise NotImplementedError

    @initialize()
    def open(self) -> None:
        self.open_run()
        self.store = self._hot(self.open_store())
        self.asked = 0
        self.meters: dict[str, RegisteredMeter] = {
            meter.name: self.store.registry.put_meter("main", meter, now_ms=0) for meter in METERS
        }
        self.reference = Reference({self.meters["finds"].set_id: 3})
        self.events: Counter[tuple[str, bool]] = Counter()
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
        self.events.update((name, is_late) for name, *_, is_late in events)
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

    @rule(seconds=st.sampled_from([1, 59, 420, HOUR_S, DAY_S]))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds

    @rule()
    def prune(self) -> None:
        self.store.upkeep.prune(now_ms=self.now_s * 1000, journal_keep_ms=0, letter_bytes=0)
        self.store.upkeep.checkpoint()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self._hot(self.open_store())

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
            for meter in list(self.meters.values())[:: -1 if self.look_at > 12 else -4]:
                sums = [
                    columns.merge(snapshot.read(Question(meter, by=by, step_s=step_s)), [])
                    .select("n", "n_value", *exact.PARTS)
                    .row(0)
                    for step_s in (None, meter.meter.grain_s, 60, HOUR_S, DAY_S)
                    for by in ((), meter.labels)
                ]
                assert len(set(sums)) == 1

    @invariant()
    def a_limit_to_the_series_holds(self) -> None:
        with self.store.snapshots.take() as snapshot:
            finds = self.meters["finds"]
            assert snapshot.read(Question(finds, by=finds.labels)).height <= 4

    def teardown(self) -> None:
        if hasattr(self, "store"):
            with self.store.snapshots.take() as snapshot:
                for question in QUESTIONS:
                    self._look(snapshot, *question)
            self.store.close()
            self.close_run()

    def _hot(self, store: Store) -> Store:
        """Any question by labels is answered from a hot block, as soon as it is asked twice."""
        hot = store.snapshots.hot
        hot.run, hot.clock = lambda work: work(), lambda: float(self.now_s)
        hot.span_s, hot.many_series = 4 * HOUR_S, 0
        return store

    def _look(
        self,
        snapshot: Snapshot,
        name: str,
        where: Any,
        by: Any,
        since_s: int | None,
        until_s: int | None,
        step_s: Any,
        late: bool,
    ) -> None:
        grain_s = self.meters[name].meter.grain_s
        question: dict[str, Any] = {
            "where": where,
            "by": by,
            "start_s": None if since_s is None else (self.now_s - since_s) // grain_s * grain_s,
            "end_s": None if until_s is None else (self.now_s - until_s) // grain_s * grain_s,
            "step_s": step_s,
            "late": late,
        }
        rows = snapshot.read(Question.between(self.meters[name], **question)).rows()
        found = {row[:-WIDTH]: cell(*row[-WIDTH:]) for row in rows}
        expected = self.reference.read(Question.between(self.meters[name], **question))
        if not where and since_s is None and until_s is None:
            assert sum(n for n, *_ in expected.values()) == self.events[name, late], "the reference misses something"
        assert found == expected, (name, question)

    def _stretch(self, partition: int, start: int, events: list[tuple[Any, ...]]) -> StretchResult:
        cells = []
        for name, series, age_s, value, is_late in events:
            meter = self.meters[name]
            set_id = meter.late_set_id if is_late else meter.set_id
            key = (set_id, series, floor(self.now_s - age_s, meter.meter.grain_s))
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
