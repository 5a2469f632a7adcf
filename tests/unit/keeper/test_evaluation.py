"""The thread that evaluates: when it looks again, and what failures do to it."""

from collections.abc import Mapping

import pytest

from tallymark.keeper.evaluation import DUE_S, IDLE_S, LONGEST_WAIT_S, MORE_S, Evaluation
from tallymark.store.protocol import LeaseLost, SnapshotOutdated, StoreUnreachable


class Scripted:
    """An evaluator whose rounds end as listed."""

    def __init__(self, *rounds: bool | Exception, due_ms: int | None = None) -> None:
        self.rounds, self.due_ms = list(rounds), due_ms
        self.held: list[Mapping[int, int]] = []

    def round(self, shares: Mapping[int, int]) -> bool:
        self.held.append(shares)
        end = self.rounds.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    def next_due_ms(self) -> int | None:
        return self.due_ms


def evaluation(evaluator: Scripted) -> Evaluation:
    return Evaluation(evaluator, lambda: {3: 1}, clock_ms=lambda: 10_000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("due_ms", "wait_s"), [(None, IDLE_S), (60_000, IDLE_S), (10_500, 0.5), (10_000, DUE_S), (3_000, DUE_S)]
)
def test_it_looks_again_when_the_next_window_is_over(due_ms: int | None, wait_s: float) -> None:
    evaluator = Scripted(False, due_ms=due_ms)
    assert evaluation(evaluator).round() == wait_s
    assert evaluator.held == [{3: 1}]


def test_with_more_to_do_or_a_store_that_has_moved_on_it_looks_at_once() -> None:
    each = evaluation(Scripted(True, SnapshotOutdated("take a new one")))
    assert [each.round(), each.round()] == [MORE_S, MORE_S]
    assert not each.is_failing


def test_a_share_that_another_keeper_has_taken_over_is_no_failure() -> None:
    """Such a round is not tried again later and later: the other shares would wait, too."""
    each = evaluation(Scripted(*[LeaseLost("keeper/b has it")] * 5, False))
    assert [each.round() for _ in range(5)] == [DUE_S] * 5
    assert not each.is_failing


def test_failures_make_it_wait_longer_until_it_works_again() -> None:
    away = StoreUnreachable("no")
    each = evaluation(Scripted(away, away, *[away] * 10, False))
    waits = [each.round() for _ in range(12)]
    assert waits[:3] == [1.0, 2.0, 4.0]
    assert waits[-1] == LONGEST_WAIT_S
    assert each.is_failing
    assert each.round() == IDLE_S
    assert not each.is_failing
