"""Readers in other threads and processes see every delta exactly once, while fold and roll are at work."""

import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallymark.meters import from_mapping
from tallymark.meters.model import Meter
from tallymark.store import answer, deltas
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.model import Ledger, RegisteredMeter, Stretch, StretchResult
from tallymark.store.protocol import SnapshotOutdated, Store, StoreError, TooManyBytes, TooManyRows
from tallymark.store.read_plan import Question
from tallymark.testing import until

MIDNIGHT = 20_000 * DAY_S
SERIES = 40
BATCH = 4 * SERIES
BATCHES = 60
VIEWS = Meter("views", ("view",), by=("video",))


def batch(number: int, meter_id: int) -> StretchResult:
    """For each series an event in this hour, a late one in each of the two before, and one two days ago."""
    now = MIDNIGHT + 10 * HOUR_S + number * 600
    cells = [
        (meter_id, f"v{series}", (now - age) // 60 * 60, 1, 0, None, None, None, None, None)
        for series in range(SERIES)
        for age in (0, HOUR_S, 2 * HOUR_S, 2 * DAY_S)
    ]
    frame = deltas.from_rows(cells)
    ledger = Ledger(accepted=BATCH, counted=BATCH)
    return StretchResult(
        Stretch(0, number * BATCH, (number + 1) * BATCH), "log", 2, (1, meter_id), deltas.encode(frame), ledger
    )


def watch(store: Store, finished: Callable[[], bool], answered: Callable[[], object]) -> tuple[int, int, list[str]]:
    """(answers while the work was done, looks outdated, what was wrong).

    Every answer must equal the ledger of the same snapshot.
    """
    meter = store.registry.meter("main", "views")
    answers, outdated, wrong = 0, 0, []
    while not finished():
        try:
            wrong += look(store, meter)
        except SnapshotOutdated:
            outdated += 1
        else:
            answers += not finished()
            answered()
    return answers, outdated, wrong


def look(store: Store, meter: RegisteredMeter) -> list[str]:
    wrong = []
    with store.snapshots.take() as snapshot:
        expected = sum(ledger.counted for ledger in snapshot.ledger().values())
        for by, step_s in (((), None), ((), 60), ((), HOUR_S), (("video",), DAY_S)):
            answer = snapshot.read(Question(meter, by=by, step_s=step_s))
            if answer["n"].sum() != expected:
                marks = getattr(snapshot, "marks", None)
                wrong.append(f"{answer['n'].sum()} instead of {expected} by {by} step {step_s} at {marks}")
    return wrong


def work(store: Store, meter_id: int, pause: Callable[[], None]) -> None:
    """Applies, folds and rolls in small steps, as time goes on; pauses between two of them, at all stages."""
    for number in range(BATCHES):
        store.sink.apply([batch(number, meter_id)], now_ms=0)
        if number % 3 == 2:
            store.upkeep.fold(most_points=100)
        if number % 4 == 2:
            pause()
        now_s = MIDNIGHT + 10 * HOUR_S + number * 600
        for _ in range(4):
            store.upkeep.roll(now_ms=now_s * 1000, delay_s=120, slice_series=7)
        if number % 10 == 9:
            store.upkeep.prune(now_ms=10**15, journal_keep_ms=0, letter_bytes=0)
            store.upkeep.checkpoint()


@pytest.mark.parametrize("stores", ["sqlite", "cassandra"], indirect=True)  # of one in memory nobody else can read
def test_readers_never_see_a_delta_twice_or_not_at_all(stores: Any, tmp_path: Path) -> None:
    store = stores.open()
    meter = store.registry.put_meter("main", VIEWS, now_ms=0)
    stop, told = tmp_path / "stop", tmp_path / "answers"
    told.touch()
    other = subprocess.Popen(
        [sys.executable, __file__, pickle.dumps(stores.address()).hex(), str(stop), str(told)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    found: list[tuple[int, int, list[str]]] = []
    answers = [0, 0]

    def follow(number: int) -> None:
        def answered() -> None:
            answers[number] += 1

        found.append(watch(store, stop.exists, answered))

    def pause() -> None:
        """Until each of the three has answered once more: without it a busy machine may let none finish."""
        before = (*answers, told.stat().st_size)
        until(
            lambda: all(now > then for now, then in zip((*answers, told.stat().st_size), before, strict=True)),
            "every reader has answered during the work",
            deadline_s=120,
        )

    watchers = [threading.Thread(target=follow, args=(number,)) for number in range(2)]
    try:
        assert other.stdout.readline() == "ready\n"
        for watcher in watchers:
            watcher.start()
        work(store, meter.meter_id, pause)
        stop.touch()
        for watcher in watchers:
            watcher.join()
        found.append(tuple(json.loads(other.stdout.readline())))
    finally:
        stop.touch()
        other.communicate(timeout=60)
    assert store.upkeep.marks().rolled[DAY_S] > MIDNIGHT - DAY_S
    with store.snapshots.take() as snapshot:
        total = snapshot.read(Question(meter))
        assert total["n"].item() == BATCHES * BATCH, "what the readers compared was not nothing"
    assert len(found) == 3
    for answered, outdated, wrong in found:
        assert wrong == []
        assert answered >= 15, "one in each pause"
        assert outdated == 0 or stores.kind == "cassandra"


def watch_as_a_program(address: str, stop: str, told: str) -> None:
    store = pickle.loads(bytes.fromhex(address)).open_store()
    print("ready", flush=True)
    with open(told, "ab", buffering=0) as answers:
        print(json.dumps(watch(store, Path(stop).exists, lambda: answers.write(b"."))), flush=True)
    store.close()


if __name__ == "__main__":
    watch_as_a_program(*sys.argv[1:])


@pytest.mark.parametrize("label", ["n", "sum", "min", "bucket_s", "series_id", "meter"])
def test_a_label_may_be_called_like_a_column_of_the_store(store, label):
    meter = store.registry.put_meter("main", from_mapping({"name": "odd", "event": "view", "by": [label]}), now_ms=0)
    row = (meter.meter_id, "A", 60, 3, 0, None, None, None, None, None)
    blob = deltas.encode(deltas.from_rows([row]))
    result = StretchResult(Stretch(0, 0, 1), "log", 1, (meter.meter_id,), blob, Ledger(accepted=3, counted=3))
    for step in (lambda: store.sink.apply([result], now_ms=1), lambda: store.upkeep.fold(most_points=10)):
        step()
        with store.snapshots.take() as snapshot:
            found = snapshot.read(Question(meter, where={label: ["A"]}, by=[label], step_s=60))
        assert [row[:9] for row in found.rows()] == [("A", 60, 3, 0, None, None, None, None, None)]


def test_an_answer_is_put_together_from_many_parts(store, monkeypatch):
    monkeypatch.setattr(answer, "ROWS_AT_ONCE", 10)
    meter = store.registry.put_meter("main", Meter("views", ("view",), by=("video",)), now_ms=0)
    rows = [(meter.meter_id, f"video {number}", 60, 1, 0) for number in range(95)]
    blob = deltas.encode(deltas.from_rows(rows))
    result = StretchResult(Stretch(0, 0, 1), "log", 1, (meter.meter_id,), blob, Ledger(accepted=95, counted=95))
    store.sink.apply([result], now_ms=1)
    for step in (lambda: None, lambda: store.upkeep.fold(most_points=1000)):
        step()
        with store.snapshots.take() as snapshot:
            found = snapshot.read(Question(meter, by=["video"]))
        assert (found.height, found["n"].sum()) == (95, 95)


def test_an_answer_that_is_too_long_is_broken_off(store, monkeypatch):
    monkeypatch.setattr(answer, "ROWS_AT_ONCE", 10)
    meter = store.registry.put_meter("main", Meter("views", ("view",), by=("video", "country")), now_ms=0)

    def ask(most_rows, by=("video",), step_s=None, most_bytes=None):
        with store.snapshots.take() as snapshot:
            question = {"where": {}, "by": by, "start_s": None, "end_s": None, "step_s": step_s}
            return snapshot.read(Question.between(meter, **question), most_rows=most_rows, most_bytes=most_bytes)

    for start, step in ((0, lambda: None), (100, lambda: store.upkeep.fold(most_points=10_000))):
        rows = [
            (meter.meter_id, f"v{video}\0{'KR' if video % 2 else 'DE'}", 60 * minute, 1, 0, *[None] * 5)
            for video in range(start, start + 100)
            for minute in range(3)
        ]
        blob = deltas.encode(deltas.from_rows(rows))
        ledger = Ledger(accepted=300, counted=300)
        result = StretchResult(Stretch(0, start, start + 100), "log", 1, (meter.meter_id,), blob, ledger)
        store.sink.apply([result], now_ms=1)
        step()
        series = start + 100
        assert ask(series).height == series
        assert ask(6, ("country",), 60)["n"].sum() == 3 * series  # few rows, however many series they are made of
        for most, by, step_s in ((series - 1, ("video",), None), (5, ("country",), 60), (20, ("video", "country"), 60)):
            with pytest.raises(TooManyRows, match=f"more than {most:,} rows"):
                ask(most, by, step_s)
        assert ask(None, ("country",), most_bytes=1_000).height == 2
        with pytest.raises(TooManyBytes, match="more than 1,000 bytes"):
            ask(None, most_bytes=1_000)


def test_after_an_answer_was_broken_off_the_next_snapshot_is_a_new_one(store, monkeypatch):
    monkeypatch.setattr(answer, "ROWS_AT_ONCE", 1)
    events = store.registry.meter("main", "events")
    errors = []
    for number in range(3):
        rows = [(1, f"e{each}", 60, 1, 0, *[None] * 5) for each in range(5)]
        blob = deltas.encode(deltas.from_rows(rows))
        ledger = Ledger(accepted=5, counted=5)
        store.sink.apply([StretchResult(Stretch(0, number, number + 1), "log", 1, (1,), blob, ledger)], now_ms=1)
        store.upkeep.fold(most_points=1000)
        with store.snapshots.take() as snapshot:
            found = snapshot.read(Question(events, by=("event",)))
            assert found["n"].to_list() == [number + 1] * 5
        # Kept, as a log record or a debugger would: what its traceback holds must not hold the file.
        with pytest.raises(TooManyRows) as error, store.snapshots.take() as snapshot:
            snapshot.read(Question(events, by=("event",)), most_rows=2)
        errors.append(error)


def test_values_of_one_minute_that_come_in_several_folds_add_up(store):
    money = store.registry.put_meter(
        "main", Meter("money", ("sale",), compute=("count", "sum", "min", "max"), decimals=2), now_ms=0
    )
    values = [  # exact_high, exact_low, min and max: none, nearly a carry, the carry, a debt
        (None, None, None, None),
        (0, 2**32 - 1, 7.0, 7.0),
        (0, 5, 3.0, 9.0),
        (-1, 1, None, None),
    ]
    for number, (high, low, least, most) in enumerate(values):
        row = (money.meter_id, "", 60, 1, 0 if high is None else 1, None, high, low, least, most)
        blob = deltas.encode(deltas.from_rows([row]))
        ledger = Ledger(accepted=1, counted=1)
        result = StretchResult(Stretch(0, number, number + 1), "log", 1, (money.meter_id,), blob, ledger)
        store.sink.apply([result], now_ms=1)
        assert store.upkeep.fold(most_points=10).points > 0
    with store.snapshots.take() as snapshot:
        found = snapshot.read(Question(money, step_s=60))
    assert [row[:8] for row in found.rows()] == [(60, 4, 3, None, 0, 5, 3.0, 9.0)]


def test_series_are_found_by_one_of_their_labels(store: Store) -> None:
    views = store.registry.put_meter("main", Meter("views", ("view",), by=("video", "country")), now_ms=0)
    series = [deltas.SEPARATOR.join(labels) for labels in (("A", "KR"), ("B", "KR"), ("A", "US"))]
    rows = [(views.meter_id, each, 60, n, 0, *[None] * 5) for n, each in enumerate(series, start=1)]
    blob = deltas.encode(deltas.from_rows(rows))
    ledger = Ledger(accepted=6, counted=6)
    store.sink.apply([StretchResult(Stretch(0, 0, 6), "log", 1, (views.meter_id,), blob, ledger)], now_ms=1)
    store.upkeep.fold(most_points=100)
    with store.snapshots.take() as snapshot:
        for label, value, n in (("country", "KR", 3), ("video", "A", 4), ("country", "US", 3), ("video", "B", 2)):
            found = snapshot.read(Question(views, where={label: [value]}))
            assert found["n"].to_list() == [n]


def test_an_unknown_label_is_refused_by_name(store: Store) -> None:
    events = store.registry.meter("main", "events")
    with store.snapshots.take() as snapshot, pytest.raises(StoreError, match="has no label video; it has event"):
        snapshot.read(Question(events, where={"video": ["A"]}))
    with (
        store.snapshots.take() as snapshot,
        pytest.raises(StoreError, match="not a multiple of 60 s, the grain of the meter"),
    ):
        snapshot.read(Question(events, start_s=30, end_s=None))
