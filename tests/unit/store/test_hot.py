"""Hot blocks answer what the points and the journal say, and follow the fold without reading again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S
from tallymark.store.model import Ledger, RegisteredMeter, Stretch, StretchResult
from tallymark.store.read_plan import Question
from tallymark.store.sqlite.store import SqliteStore

NOW = 20_000 * DAY_S + 11 * 3600
VIEWS = Meter("views", ("view",), by=("video", "country"), compute=("count", "sum", "min", "max", "last"))


class Hot:
    """A store whose questions by labels go to hot blocks, beside one that reads the points."""

    def __init__(self, folder: Path, max_series: int | None) -> None:
        self.store, self.plain = SqliteStore(folder / "store.db"), SqliteStore(folder / "store.db")
        self.meter: RegisteredMeter = self.store.registry.put_meter(
            "main", replace(VIEWS, max_series=max_series), now_ms=0
        )
        self.hot = self.store.snapshots.hot
        self.hot.run, self.hot.clock = lambda work: work(), lambda: float(NOW)
        self.plain.snapshots.hot.many_series = 10**9
        self.plain.snapshots.hot.span_s = 0
        self._offset = 0

    def count(self, *rows: tuple[str, int, float | None]) -> None:
        """Events as (series, minutes ago, value)."""
        cells: list[tuple[Any, ...]] = []
        for series, minutes, value in rows:
            at_s = NOW - 60 * minutes
            number = () if value is None else (1, value, None, None, value, value, None, at_s * 1000, value)
            cells.append((self.meter.set_id, series.replace("/", "\0"), at_s, 1, *(number or (0, *[None] * 8))))
        end = self._offset + len(rows)
        frame = deltas.encode(deltas.merge([deltas.from_rows(cells)]))
        ledger = Ledger(accepted=len(rows), counted=len(rows))
        stretch = Stretch(0, self._offset, end)
        self.store.sink.apply([StretchResult(stretch, "log", 2, (self.meter.meter_id,), frame, ledger)], now_ms=0)
        self._offset = end

    def fold(self, *, most_points: int = 1000, whole: bool = True) -> None:
        while self.store.upkeep.fold(most_points=most_points).more and whole:
            pass

    def prune(self) -> None:
        self.store.upkeep.prune(now_ms=10**12, journal_keep_ms=0, letter_bytes=0)

    def agrees(self) -> bool:
        """Whether every question was answered from a block, and as it is answered from the points."""
        questions = [
            Question(self.meter, by=by, start_s=NOW - 3600, end_s=NOW + 60, step_s=step_s)
            for by in (("video",), ("video", "country"), ("country", "video"))
            for step_s in (None, 60, 600)
        ]
        before = self.hot.answered
        for question in questions:
            assert _rows(self.store, question).equals(_rows(self.plain, question)), question
        assert self.plain.snapshots.hot.answered == 0
        return self.hot.answered - before == len(questions)


def _rows(store: SqliteStore, question: Question) -> pl.DataFrame:
    with store.snapshots.take() as snapshot:
        return snapshot.read(question)


@pytest.fixture(params=[None, 3], ids=["all series", "three series"])
def hot(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hot]:
    made = Hot(tmp_path, request.param)
    yield made
    made.store.close()
    made.plain.close()


@pytest.fixture
def warm(hot: Hot) -> Hot:
    """With a block that holds some minutes."""
    hot.count(("A/KR", 0, 1.5), ("A/US", 3, None), ("B/KR", 59, -2.0), ("B/KR", 90, 4.0))
    hot.fold()
    hot.agrees()
    assert hot.agrees()
    return hot


def test_the_second_question_has_a_block_made(hot):
    hot.count(("A/KR", 0, 1.0))
    hot.fold()
    question = Question(hot.meter, by=("video",), start_s=NOW - 3600)
    for answered in (0, 0, 1):
        assert _rows(hot.store, question)["n"].to_list() == [1]
        assert hot.hot.answered == answered


def test_what_is_not_folded_comes_from_the_tail(warm):
    warm.count(("A/KR", 0, 9.0), ("C/DE", 1, 2.0), ("C/DE", 1, 3.0))
    assert warm.agrees()


def test_a_block_follows_the_fold_also_into_old_minutes_and_new_series(warm):
    for number in range(5):
        warm.count(("A/KR", 0, float(number)), ("B/KR", 59, None), (f"N{number}/KR", 30, 1.0), ("A/KR", 100, 1.0))
        warm.fold()
        assert warm.agrees()


def test_a_fold_under_way_changes_no_answer(warm):
    warm.count(*((f"{name}/KR", 1, 1.0) for name in "ABCDE"))
    warm.fold(most_points=2, whole=False)
    assert warm.agrees()
    warm.count(("A/KR", 1, 5.0), ("E/KR", 1, 7.0))
    assert warm.agrees()
    warm.fold()
    assert warm.agrees()


def test_a_block_made_while_a_fold_is_under_way_waits_for_its_end(hot):
    hot.count(*((f"{name}/KR", 1, 1.0) for name in "ABCDE"))
    hot.fold(most_points=2, whole=False)
    for _ in range(3):
        assert not hot.agrees()
    hot.fold()
    assert hot.agrees()


def test_a_block_that_missed_pruned_entries_is_made_anew(warm):
    warm.count(("A/KR", 0, 1.0), ("D/KR", 2, 1.0))
    warm.fold()
    warm.prune()
    assert not warm.agrees()
    assert warm.agrees()


def test_an_older_snapshot_is_answered_from_the_points(warm):
    question = Question(warm.meter, by=("video",), start_s=NOW - 3600)
    with warm.store.snapshots.take() as before:
        expected = before.read(question)
        warm.count(("A/KR", 0, 1.0))
        warm.fold()
        assert warm.agrees()
        assert before.read(question).equals(expected)


def test_named_series_are_chosen(warm):
    warm.hot.many_series = 0
    for where in ({"video": ["A", "nobody"]}, {"country": ["KR"]}, {"video": ["B"], "country": ["KR", "US"]}):
        for by, step_s in (((), None), (("country",), None), ((), 60)):
            question = Question(warm.meter, where=where, by=by, start_s=NOW - 3600, step_s=step_s)
            before = warm.hot.answered
            assert _rows(warm.store, question).equals(_rows(warm.plain, question)), question
            assert warm.hot.answered == before + 1


def test_too_many_points_are_not_kept(hot):
    hot.hot.most_bytes = 100
    hot.count(*((f"{name}/KR", 1, 1.0) for name in "ABCDE"))
    hot.fold()
    for _ in range(3):
        assert not hot.agrees()


def test_a_block_that_has_grown_too_large_is_let_go(warm):
    warm.hot.most_bytes = 2_000
    assert warm.agrees()
    warm.count(*(("A/KR", minutes, 1.0) for minutes in range(60)))
    warm.fold()
    assert not warm.agrees()
    warm.hot.most_bytes = 20_000
    warm.hot.clock = lambda: NOW + 61.0
    assert not warm.agrees()
    assert warm.agrees()


def test_a_question_from_before_the_block_has_it_made_anew(warm):
    question = Question(warm.meter, by=("video",), start_s=NOW - 7200)
    found = [_rows(warm.store, question)["n"].sum() for _ in range(3)]
    assert found == [4, 4, 4]
    assert warm.hot.answered > 0
    assert warm.agrees()
