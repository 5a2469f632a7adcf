"""A crash at any statement of sink, fold and roll: nothing is lost or doubled, and going on gives the same numbers."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from cassandra import OperationTimedOut

from tallymark.meters.model import Late, Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import Store, StoreUnreachable
from tallymark.store.read_plan import Question
from tallymark.store.reference import WIDTH, Reference, cell

DAY = 20_000 * DAY_S
NOON = DAY + 12 * HOUR_S
VIEWS = Meter("views", ("view",), by=("video", "country"), compute=("count", "sum", "min", "max"))
CALLS = replace(VIEWS, name="calls", grain_s=1, late=Late(after_s=60, then="aside"))
FINDS = replace(VIEWS, name="finds", max_series=4)


def stretch(start: int, rows: list[tuple[str, int, float]], meter_id: int) -> StretchResult:
    """(series, minute, value) -> a stretch in which each row is one event that `views` and `finds` count.

    `calls` counts all but the first, and as late some. Their numbers follow that of `views`.
    """
    calls, finds = meter_id + 1, meter_id + 2
    cells = [
        (set_id, series, bucket_s + second, 1, 1, value, None, None, value, value)
        for series, bucket_s, value in rows
        for set_id, second, is_counted in (
            (meter_id, 0, True),
            (finds, 0, True),
            (calls, 7, bucket_s > NOON - DAY_S),
            (-calls, 9, value > 1.5),
        )
        if is_counted
    ]
    return StretchResult(
        Stretch(0, start, start + len(rows)),
        "log",
        meters_revision=2,
        meter_ids=(1, meter_id, calls, finds),
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
# Late ones for a rolled day, for a rolled hour, for the hour in progress (a series passed and one not), a new series;
# for `finds` one that is admitted and one that is not.
LATE = [
    ("A\0KR", NOON - DAY_S + 60, 8.0),
    ("A\0KR", NOON - HOUR_S, -1.0),
    ("C\0KR", NOON - HOUR_S, 3.0),
    ("A\0KR", NOON - 3 * HOUR_S, 0.25),
    ("A\0US", NOON, 7.0),
    ("A\0US", NOON + 60, 7.5),
    ("D\0KR", NOON - HOUR_S, 5.0),
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
    views, *_ = [store.registry.put_meter("main", meter, now_ms=0) for meter in (VIEWS, CALLS, FINDS)]
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
    {"meter": "views", "where": where, "by": by, "start_s": start_s, "end_s": end_s, "step_s": step_s}
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
QUESTIONS += [
    {"meter": meter, "by": by, "start_s": start_s, "end_s": end_s, "step_s": step_s, "late": late}
    for meter, by, start_s, end_s, step_s, late in (
        ("finds", ("video", "country"), None, None, None, False),
        ("calls", (), None, None, None, False),
        ("calls", ("video",), NOON - DAY_S + 7, NOON + 9, 1, True),
        ("finds", ("country",), None, None, HOUR_S, False),
        ("calls", ("country",), NOON - DAY_S + 60, None, 60, False),
        ("calls", (), None, None, HOUR_S, True),
        ("calls", ("video",), None, None, DAY_S, False),
        ("finds", (), NOON - HOUR_S, None, 60, False),
    )
]


def assert_exact(store: Store, questions: list[dict[str, Any]], *batches: StretchResult) -> None:
    meters = {meter.meter.name: meter for meter in store.registry.meters("main")}
    reference = Reference({meters["finds"].set_id: 4})
    for batch in batches:
        reference.apply([batch])
    with store.snapshots.take() as snapshot:
        for each in questions:
            question = Question.between(**{**each, "meter": meters[each["meter"]]})
            found = {row[:-WIDTH]: cell(*row[-WIDTH:]) for row in snapshot.read(question).rows()}
            expected = reference.read(question)
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
    """Some eight of them, or all; on a server in memory a third of all, and on a real one, where each takes a second or
    two, one, or four. Which ones depends on the way to die, of which there are four.
    """
    few = {"sqlite": 8, "memory": 8, "cassandra": 1}[stores.kind]
    most = {"sqlite": len(points), "memory": len(points) // 3 + 1, "cassandra": 4}[stores.kind] if every else few
    step = -(-len(points) // most)
    return points[way * step // 4 % len(points) :: step]


def asked(stores: Any, statement: int) -> list[dict[str, Any]]:
    """In memory, where there are most crashes, a quarter of the questions after each: all of them after any four."""
    return QUESTIONS[statement % 4 :: 4] if stores.kind == "memory" else QUESTIONS


def assert_goes_on(store: Store, *, counted_before: bool, questions: list[dict[str, Any]]) -> None:
    """What is there is exact, and so is all when the work is done again."""
    applied = store.sink.applied("log") == {0: 11}
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
