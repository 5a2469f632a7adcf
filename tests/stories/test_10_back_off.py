"""Story 10: back-off is 10, 20, 40, 80 ms … up to the maximum; with jitter each pause d becomes one in [0, d]."""

import random
from itertools import pairwise

import pytest

from tallymark.client.transport import Answer
from tallymark.testing import DrivenClient, ManualClock, ScriptedTransport

LONGEST_MS = [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000, 5000]
BUSY = Answer(429, {}, b"")


def pauses_ms(chance) -> list[float]:
    """Between the tries of one event that a busy collector puts off again and again."""
    clock, moments = ManualClock(), []

    def put_off(events) -> Answer:
        moments.append(clock.now())
        return BUSY

    transport = ScriptedTransport([put_off] * (len(LONGEST_MS) + 1))
    client = DrivenClient(transport, clock, batch_events=1, chance=chance)
    client.count("view")
    client.settle()
    assert client.stats().delivered == 1
    return [1000 * (after - before) for before, after in pairwise(moments)]


def test_without_jitter_each_pause_is_twice_the_one_before():
    assert pauses_ms(None) == pytest.approx(LONGEST_MS)


def test_with_jitter_each_pause_is_anything_up_to_that():
    chance = random.Random(10)
    runs = [pauses_ms(chance.random) for _ in range(50)]
    for number, longest in enumerate(LONGEST_MS):
        seen = [run[number] for run in runs]
        # A manual clock counts in floats around 1,000 s: a nanosecond is the last digit.
        assert all(-1e-6 <= pause <= longest + 1e-6 for pause in seen)
        assert min(seen) < 0.2 * longest < 0.8 * longest < max(seen), "from the whole of it"
