"""A crash at any statement of sink, fold and roll: nothing is lost or doubled, and going on gives the same numbers."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cassandra import OperationTimedOut

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import Store, StoreUnreachable
from tallymark.store.reference import WIDTH, Reference, cell

DAY = 20_000 * DAY_S
NOON = DAY + 12 * HOUR_S
VIEWS = Meter("views", ("view",), by=("video", "country"), compute=("count", "sum", "min", "max"))


def stretch(start: int, rows: list[tuple[str, int, float]], meter_id: int) -> StretchResult:
    """(series, minute, value) -> a stretch in which each row is one event."""
    cells = [(meter_id, series, bucket_s, 1, 1, value, None, None, value, value) for series, bucket_s, value in rows]
    return StretchResult(
        Stretch(0, start, start + len(rows)),
        "log",
        meters_revision=2,
        meter_ids=(1, meter_id),
        deltas=deltas.encode(deltas.merge([deltas.from_rows(cells)])),
        ledger=Ledger(accepted=len(rows), counted=len(rows)),
        received={NOON * 1000: len(rows)},
        dead=(DeadLetter("pipeline", "why", "because", 1, b"raw", 0, 0, start),),
    )


BEFORE = [
    ("A\0KR", NOON - DAY_S, 1.0),
    ("A\0KR", NOON - HOUR_S, 2.0),
    ("B\0KR", NOON - HOUR_S + 60, 0.5),
    ("A\0US", NOON, 4.0),
]
# Late ones for a rolled day, for a rolled hour, for the hour in progress (a series passed and one not), a new series.
LATE = [
    ("A\0KR", NOON - DAY_S + 60, 8.0),
    ("A\0KR", NOON - HOUR_S, -1.0),
    ("C\0KR", NOON - HOUR_S, 3.0),
    ("A\0KR", NOON - 3 * HOUR_S, 0.25),
    ("A\0US", NOON, 7.0),
    ("A\0US", NOON + 60, 7.5),
]


def before(meter_id: int) -> StretchResult:
    return stretch(0, BEFORE, meter_id)


def late(meter_id: int) -> StretchResult:
    return stretch(len(BEFORE), LATE, meter_id)


def apply_late(store: Store, meter_id: int) -> None:
    store.sink.apply([late(meter_id)], now_ms=0)


def roll_slice(store: Store, now_s: int) -> bool:
    return store.upkeep.roll(now_ms=now_s * 1000, delay_s=120, slice_series=1)


def roll_all(store: Store, slice_series: int = 3) -> None:
    while store.upkeep.roll(now_ms=(DAY + DAY_S + 120) * 1000, delay_s=120, slice_series=slice_series):
        pass


def half_rolled(store: Store) -> None:
    """The first day is rolled, the hour before noon in progress."""
    views = store.registry.put_meter("main", VIEWS, now_ms=0)
    store.sink.apply([before(views.meter_id)], now_ms=0)
    store.upkeep.fold(most_points=1000)
    while store.upkeep.marks().rolled[HOUR_S] < NOON - HOUR_S:
        roll_slice(store, NOON + HOUR_S + 120)
    roll_slice(store, NOON + 120)


def fold_all(store: Store, most_points: int = 1) -> None:
    while store.upkeep.fold(most_points=most_points).more:
        pass


def half_folded(store: Store) -> None:
    in_journal(store)
    store.upkeep.fold(most_points=1)
    store.upkeep.fold(most_points=1)


def in_journal(store: Store) -> None:
    half_rolled(store)
    apply_late(store, store.registry.meter("main", "views").meter_id)


# Each grain, the sum over all series, the label index, series named in full, and steps that no grain divides.
QUESTIONS: list[dict[str, Any]] = [
    {"where": where, "by": by, "start_s": start_s, "end_s": end_s, "step_s": step_s}
    for where, by, start_s, end_s, step_s in (
        ({}, (), None, None, None),
        ({}, (), None, None, 60),
        ({}, (), None, None, HOUR_S),
        ({}, (), None, None, DAY_S),
        ({}, ("country", "video"), None, None, None),
        ({}, ("video",), NOON - DAY_S + 60, NOON, 420),
        ({"video": ["A"], "country": ["KR", "US"]}, (), NOON - HOUR_S, None, HOUR_S),
        ({"country": ["KR"]}, ("video",), None, None, DAY_S),
    )
]


def assert_exact(store: Store, questions: list[dict[str, Any]], *batches: StretchResult) -> None:
    reference = Reference()
    reference.apply(batches)
    meter = store.registry.meter("main", "views")
    with store.snapshots.take() as snapshot:
        for question in questions:
            found = {row[:-WIDTH]: cell(*row[-WIDTH:]) for row in snapshot.read(meter, **question).rows()}
            expected = reference.read(meter, **question)
            assert sum(n for n, *_ in expected.values()) > 0, "two empty answers are equal and prove nothing"
            assert found == expected


Prepare = Callable[[Store], None]
Step = Callable[[Store, int], object]
"""what is broken off: the store, and the number of the meter `views`"""

STEPS = pytest.mark.parametrize(
    ("prepare", "step", "counted_before"),
    [
        (half_rolled, apply_late, False),
        (in_journal, lambda store, _: store.upkeep.fold(most_points=1000), True),
        (in_journal, lambda store, _: fold_all(store), True),
        (half_folded, lambda store, _: fold_all(store), True),
        (half_folded, lambda store, _: roll_all(store), True),
        (in_journal, lambda store, _: roll_slice(store, NOON + HOUR_S + 120), True),
        (in_journal, lambda store, _: roll_all(store), True),
    ],
    ids=["sink", "fold", "fold in slices", "go on folding", "roll while folding", "roll a slice", "roll all"],
)


POINTS = pytest.mark.parametrize(
    "every", [pytest.param(False, id="some points"), pytest.param(True, id="more points", marks=pytest.mark.long)]
)


@POINTS
@pytest.mark.parametrize("after", [False, True], ids=["before the statement", "after the statement"])
@pytest.mark.parametrize("lasting", [True, False], ids=["process dies", "statement fails"])
@STEPS
@pytest.mark.parametrize("stores", ["sqlite", "memory", "cassandra"], indirect=True)
def test_a_crash_at_every_statement(
    stores: Any,
    fuse: Any,
    died: type[Exception],
    prepare: Prepare,
    step: Step,
    counted_before: bool,
    lasting: bool,
    after: bool,
    every: bool,
) -> None:
    points = crash_points(stores, fuse, prepare, step, lasting=lasting, after=after)
    for statement in some(points, stores, every, way=2 * lasting + after):
        name = f"crash-{statement}"
        stores.make(name, prepare)
        store = stores.open(name, fuse=fuse)
        views = store.registry.meter("main", "views").meter_id
        fuse.light(statement, lasting=lasting, after=after)
        with pytest.raises(died):
            step(store, views)
        fuse.quench()
        if lasting:
            store.close()
            store = stores.open(name)
        assert_goes_on(store, counted_before=counted_before, questions=asked(stores, statement))


@POINTS
@pytest.mark.parametrize("done", [False, True], ids=["was not done", "was done"])
@STEPS
@pytest.mark.parametrize("stores", ["memory"], indirect=True)
def test_an_answer_that_does_not_come_at_every_write(
    stores: Any,
    fuse: Any,
    prepare: Prepare,
    step: Step,
    counted_before: bool,
    done: bool,
    every: bool,
) -> None:
    points = crash_points(stores, fuse, prepare, step, lasting=False, after=True)
    for statement in some(points, stores, every):
        name = f"unanswered-{statement}"
        stores.make(name, prepare)
        store = stores.open(name, fuse=fuse)
        views = store.registry.meter("main", "views").meter_id
        fuse.light(statement, lasting=False, after=done, error=OperationTimedOut({}, "a node"))
        with contextlib.suppress(StoreUnreachable):  # or it was settled and went on
            step(store, views)
        assert fuse.blown
        fuse.quench()
        assert_goes_on(store, counted_before=counted_before, questions=asked(stores, statement))


def some(points: Sequence[int], stores: Any, every: bool, *, way: int = 0) -> Sequence[int]:
    """A sixth of them, or all; on a server, where each takes a second or two, one, or some eight.

    Which ones depends on the way to die, of which there are four.
    """
    if stores.kind == "cassandra":
        step = -(-len(points) // 8) if every else len(points)
        return points[way * step // 4 :: step]
    return points if every else points[way % min(6, len(points)) :: 6]


def asked(stores: Any, statement: int) -> list[dict[str, Any]]:
    """In memory, where there are most crashes, a quarter of the questions after each: all of them after any four."""
    return QUESTIONS[statement % 4 :: 4] if stores.kind == "memory" else QUESTIONS


def assert_goes_on(store: Store, *, counted_before: bool, questions: list[dict[str, Any]]) -> None:
    """What is there is exact, and so is all when the work is done again."""
    applied = store.sink.applied("log") == {0: 10}
    assert applied or not counted_before
    views = store.registry.meter("main", "views").meter_id
    assert_exact(store, questions, before(views), *([late(views)] if applied else []))
    apply_late(store, views)
    fold_all(store, most_points=1000)
    roll_all(store, slice_series=1000)
    assert_exact(store, questions, before(views), late(views))
    assert len(store.dead_letters.newest()) == 2
    assert store.upkeep.marks().folded == store.snapshots.journal_end()
    assert store.upkeep.marks().rolled[DAY_S] == DAY + DAY_S
    store.close()


def crash_points(
    stores: Any,
    fuse: Any,
    prepare: Prepare,
    step: Step,
    *,
    lasting: bool,
    after: bool,
) -> Sequence[int]:
    """The statements of this step at which to die."""
    stores.make("whole", prepare)
    store = stores.open("whole", fuse=fuse)
    views = store.registry.meter("main", "views").meter_id
    fuse.light(10**6)
    step(store, views)
    statements = 10**6 - fuse.left
    fuse.quench()
    store.close()
    assert statements >= 3
    if stores.kind != "sqlite" and lasting:
        # A process that died leaves what it wrote: after one write is before the next, whatever it read between.
        return fuse.writes[-1:] if after else list(fuse.writes)
    if stores.kind != "sqlite" and after:
        return list(fuse.writes)  # a read that was carried out leaves what one that was not leaves
    return range(1, statements + 1)
