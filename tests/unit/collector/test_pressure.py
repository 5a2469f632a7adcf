"""The budget of bytes and the rate of events."""

import pytest

from tallymark.collector.pressure import Budget, Holding, Rate
from tallymark.http import Problem


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_holding_gives_back_what_it_took() -> None:
    budget = Budget(100)
    with Holding(budget) as first:
        first.set(60)
        with pytest.raises(Problem, match=r"60 bytes are waiting .* 50 more .* = 100"), Holding(budget) as second:
            second.set(50)
        assert budget.held == 60
        first.set(10)
        assert budget.held == 10
    assert budget.held == 0


def test_the_rate_lets_a_batch_pass_and_then_waits_it_out() -> None:
    clock = Clock()
    rate = Rate(10, clock=clock)
    rate.check()
    rate.spend(35)
    for clock.now in (0.0, 1.0, 2.4):
        with pytest.raises(Problem) as refused:
            rate.check()
        assert dict(refused.value.headers)["retry-after"] == {0.0: "3", 1.0: "2", 2.4: "1"}[clock.now]
    clock.now = 2.6
    rate.check()


def test_no_rate_is_no_limit() -> None:
    rate = Rate(0)
    rate.spend(10**9)
    rate.check()
