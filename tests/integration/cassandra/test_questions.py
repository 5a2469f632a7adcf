"""Questions to many series, by every way of reading them."""

from typing import Any

import polars as pl

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.cassandra import index
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.read_plan import Question

SERIES = 5_000
COUNTRIES = ("KR", "US", "DE")


def test_a_question_to_5000_series(open_store: Any) -> None:
    store = open_store()
    meter = store.registry.put_meter(
        "main", Meter("views", ("view",), by=("video", "country"), compute=("count", "sum")), now_ms=0
    )
    rows = [
        (
            meter.meter_id,
            f"v{each}\0{COUNTRIES[each % 3]}",
            60 * minute,
            1 + each,
            1,
            float(each),
            None,
            None,
            None,
            None,
        )
        for each in range(SERIES)
        for minute in (0, 1)
    ]
    frame = deltas.from_rows(rows)
    ledger = Ledger(accepted=1, counted=1)
    result = StretchResult(Stretch(0, 0, 1), "log", 2, (meter.meter_id,), deltas.encode(frame), ledger)
    store.sink.apply([result], now_ms=0)

    def ask(where: Any, by: Any, step_s: int | None = None) -> pl.DataFrame:
        with store.snapshots.take() as snapshot:
            return snapshot.read(Question(meter, where=where, by=by, step_s=step_s))

    questions: list[Any] = [
        ({}, (), None),
        ({}, ("video",), None),
        ({}, ("country",), HOUR_S),
        ({"country": ["KR"]}, (), 60),  # a third of all: whole partitions
        ({"video": ["v7", "v4999", "none"]}, ("video", "country"), None),  # the index
        ({"video": ["v7"], "country": ["US", "KR"]}, (), None),  # named in full
        ({"video": [f"v{each}" for each in range(index.MAX_NAMED + 100)]}, ("country",), None),
        ({"video": ["none"]}, (), None),
    ]
    in_the_journal = [ask(*question) for question in questions]
    assert in_the_journal[1].height == SERIES
    assert in_the_journal[0]["n"].item() == sum(1 + each for each in range(SERIES)) * 2
    assert in_the_journal[4]["n"].to_list() == [10_000, 16]
    assert [answer["n"].sum() > 0 for answer in in_the_journal] == [True] * (len(questions) - 1) + [False]
    while store.upkeep.fold(most_points=20_000).more:
        pass
    in_points = [ask(*question) for question in questions]
    while store.upkeep.roll(now_ms=10**10, delay_s=0, slice_series=2_000):
        pass
    assert store.upkeep.marks().rolled[DAY_S] > 0
    rolled = [ask(*question) for question in questions]
    for question, before, now, later in zip(questions, in_the_journal, in_points, rolled, strict=True):
        assert now.equals(before), question
        assert later.equals(before), question
