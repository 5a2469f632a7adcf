"""A crash at any statement of sink, fold and roll: nothing is lost or doubled, and going on gives the same numbers."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import Store
from tallymark.store.reference import Reference, cell

DAY = 20_000 * DAY_S
NOON = DAY + 12 * HOUR_S
VIEWS = Meter("views", ("view",), by=("video", "country"), compute=("count", "sum", "min", "max"))


def stretch(start: int, rows: list[tuple[str, int, float]], meter_id: int = 2) -> StretchResult:
    """(series, minute, value) -> a stretch in which each row is one event."""
    cells = [(meter_id, series, bucket_s, 1, 1, value, None, None, value, value) for series, bucket_s, value in rows]
    return StretchResult(
        Stretch(0, start, start + len(rows)),
        "log",
        meters_revision=2,
        meter_ids=(1, meter_id),
        deltas=deltas.encode(deltas.merge([pl.DataFrame(cells, schema=deltas.SCHEMA, orient="row")])),
        ledger=Ledger(accepted=len(rows), counted=len(rows)),
        received={NOON * 1000: len(rows)},
        dead=(DeadLetter("pipeline", "why", "because", 1, b"raw", 0, 0, start),),
    )


BEFORE = stretch(
    0,
    [
        ("A\0KR", NOON - DAY_S, 1.0),
        ("A\0KR", NOON - HOUR_S, 2.0),
        ("B\0KR", NOON - HOUR_S + 60, 0.5),
        ("A\0US", NOON, 4.0),
    ],
)
# Late ones for a rolled day, for a rolled hour, for the hour in progress (a series passed and one not), a new series.
LATE = stretch(
    4,
    [
        ("A\0KR", NOON - DAY_S + 60, 8.0),
        ("A\0KR", NOON - HOUR_S, -1.0),
        ("C\0KR", NOON - HOUR_S, 3.0),
        ("A\0KR", NOON - 3 * HOUR_S, 0.25),
        ("A\0US", NOON, 7.0),
        ("A\0US", NOON + 60, 7.5),
    ],
)


def roll_slice(store: Store, now_s: int = NOON + HOUR_S + 120) -> bool:
    return store.roll(now_ms=now_s * 1000, delay_s=120, slice_series=1)


def roll_all(store: Store, slice_series: int = 3) -> None:
    while store.roll(now_ms=(DAY + DAY_S + 120) * 1000, delay_s=120, slice_series=slice_series):
        pass


def half_rolled(store: Store) -> None:
    """The first day is rolled, the hour before noon in progress."""
    store.put_meter(VIEWS, now_ms=0)
    store.apply([BEFORE], now_ms=0)
    store.fold(most_points=1000)
    while store.marks().hours_through < NOON - HOUR_S:
        roll_slice(store)
    roll_slice(store, NOON + 120)


def fold_all(store: Store, most_points: int = 1) -> None:
    while store.fold(most_points=most_points).more:
        pass


def half_folded(store: Store) -> None:
    in_journal(store)
    store.fold(most_points=1)
    store.fold(most_points=1)


def in_journal(store: Store) -> None:
    half_rolled(store)
    store.apply([LATE], now_ms=0)


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


def assert_exact(store: Store, *batches: StretchResult) -> None:
    reference = Reference()
    reference.apply(batches)
    meter = store.meter("views")
    with store.snapshot() as snapshot:
        for question in QUESTIONS:
            found = {row[:-7]: cell(*row[-7:]) for row in snapshot.read(meter, **question).rows()}
            assert found == reference.read(meter, **question)


@pytest.mark.parametrize("after", [False, True], ids=["before the statement", "after the statement"])
@pytest.mark.parametrize("lasting", [True, False], ids=["process dies", "statement fails"])
@pytest.mark.parametrize(
    ("prepare", "step", "counted_before"),
    [
        (half_rolled, lambda store: store.apply([LATE], now_ms=0), False),
        (in_journal, lambda store: store.fold(most_points=1000), True),
        (in_journal, fold_all, True),
        (half_folded, fold_all, True),
        (half_folded, roll_all, True),
        (in_journal, roll_slice, True),
        (in_journal, roll_all, True),
    ],
    ids=["sink", "fold", "fold in slices", "go on folding", "roll while folding", "roll a slice", "roll all"],
)
def test_a_crash_at_every_statement(
    stores: Any,
    fuse: Any,
    died: type[Exception],
    prepare: Callable[[Store], None],
    step: Callable[[Store], object],
    counted_before: bool,
    lasting: bool,
    after: bool,
) -> None:
    for statement in crash_points(stores, fuse, prepare, step, turn=2 * lasting + after):
        name = f"crash-{statement}"
        stores.make(name, prepare)
        store = stores.open(name, fuse=fuse)
        fuse.light(statement, lasting=lasting, after=after)
        with pytest.raises(died):
            step(store)
        fuse.quench()
        if lasting:
            store.close()
            store = stores.open(name)
        applied = store.applied("log") == {0: 10}
        assert applied or not counted_before
        assert_exact(store, BEFORE, *([LATE] if applied else []))
        store.apply([LATE], now_ms=0)
        fold_all(store, most_points=1000)
        roll_all(store, slice_series=1000)
        assert_exact(store, BEFORE, LATE)
        assert len(store.dead_letters()) == 2
        assert store.marks().folded == store.journal_end()
        assert store.marks().days_through == DAY + DAY_S
        store.close()


# In a file every statement, four times over. On a server a crash takes a second to look at: there so many a turn, and
# each of the four turns at other statements.
MOST_ON_A_SERVER = 5


def crash_points(
    stores: Any, fuse: Any, prepare: Callable[[Store], None], step: Callable[[Store], object], *, turn: int
) -> range:
    """The statements of this step at which to die."""
    stores.make("whole", prepare)
    store = stores.open("whole", fuse=fuse)
    fuse.light(10**6)
    step(store)
    statements = 10**6 - fuse.left
    fuse.quench()
    store.close()
    assert statements >= 3
    stride = 1 if stores.kind == "sqlite" else -(-statements // MOST_ON_A_SERVER)
    return range(1 + turn * stride // 4, statements + 1, stride)
