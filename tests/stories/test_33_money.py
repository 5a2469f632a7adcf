"""Story 33: 1,000 payments of 0.10, in any order and any batches, are 100.00 exactly."""

import json
import random
from decimal import Decimal

import pytest


def payments(run: str, hour_ms: int) -> list[dict]:
    return [
        {"event": "story33", "id": f"{run}/{number}", "time": hour_ms + number * 3_000,
         "props": {"run": run, "country": f"c{number % 3}", "amount": 0.10}}
        for number in range(1_000)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_thousand_tenths_are_a_hundred(tallymark, hour_ms, seed):
    chance = random.Random(seed)
    run = f"run{seed}"
    tallymark.put_meter(
        name="story33", event="story33", by=["run", "country"], value="amount", decimals=2, compute=["count", "sum"]
    )
    events = payments(run, hour_ms)
    chance.shuffle(events)
    while events:
        size = chance.choice([1, 3, 40, 100, 300])
        tallymark.send(events[:size], wait=len(events) <= size)
        del events[:size]
    tallymark.settled()

    # Decimals as they stand in the answer: what a float makes of them could hide a cent.
    total = json.loads(tallymark.text(f"/v1/meters/story33/total?run={run}&consistency=fresh"), parse_float=Decimal)[
        "value"
    ]
    assert (total["count"], str(total["sum"])) == (1_000, "100.00")
    hour = tallymark.series("story33", hour_ms, hour_ms + 3_600_000, "1h", run=run)
    assert hour == {hour_ms: {"count": 1_000, "sum": 100.0}}
    assert sum(0.10 for _ in range(1_000)) != 100.0, "floating point would not do"
