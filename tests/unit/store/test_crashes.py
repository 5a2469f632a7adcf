"""A crash at any statement of sink, fold and roll: nothing is lost or doubled, and going on gives the same numbers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.reference import Reference, cell
from tallymark.store.sqlite.store import SqliteStore

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


def roll_slice(store: SqliteStore, now_s: int = NOON + HOUR_S + 120) -> bool:
    return store.roll(now_ms=now_s * 1000, delay_s=120, slice_series=1)


def roll_all(store: SqliteStore, slice_series: int = 3) -> None:
    while store.roll(now_ms=(DAY + DAY_S + 120) * 1000, delay_s=120, slice_series=slice_series):
        pass


def half_rolled(store: SqliteStore) -> None:
    """The first day is rolled, the hour before noon in progress."""
    store.put_meter(VIEWS, now_ms=0)
    store.apply([BEFORE], now_ms=0)
    store.fold(most_points=1000)
    while store.marks().hours_through < NOON - HOUR_S:
        roll_slice(store)
    roll_slice(store, NOON + 120)


def fold_all(store: SqliteStore, most_points: int = 1) -> None:
    while store.fold(most_points=most_points).more:
        pass


def half_folded(store: SqliteStore) -> None:
    in_journal(store)
    store.fold(most_points=1)
    store.fold(most_points=1)


def in_journal(store: SqliteStore) -> None:
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


def assert_exact(store: SqliteStore, *batches: StretchResult) -> None:
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
    tmp_path: Path,
    fuse: Any,
    died: type[Exception],
    prepare: Callable[[SqliteStore], None],
    step: Callable[[SqliteStore], object],
    counted_before: bool,
    lasting: bool,
    after: bool,
) -> None:
    template = SqliteStore(tmp_path / "template.db")
    prepare(template)
    template.close()
    for statement in range(1, 1000):
        path = tmp_path / f"{statement}.db"
        shutil.copy(template.path, path)
        store = SqliteStore(path, connect=fuse.connect())
        fuse.light(statement, lasting=lasting, after=after)
        crashed = True
        try:
            step(store)
            crashed = False
        except died:
            pass
        fuse.quench()
        if lasting:
            store.close()
            store = SqliteStore(path, connect=fuse.connect())
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
        path.unlink()
        if not crashed:
            assert statement > 5
            return
    pytest.fail("the step never came to its end")
