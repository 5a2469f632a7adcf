"""Keeping a lease while the driver works."""

import threading

from tallymark.pipeline.leading import Leading
from tallymark.store.protocol import StoreUnreachable
from tallymark.testing import until


class ScriptedLease:
    """Answers `take` as listed, the last answer for ever."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.released = 0

    def take(self) -> bool:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def release(self) -> None:
        self.released += 1


def test_a_lease_is_renewed_while_the_block_runs_and_then_given_back():
    lease, lost = ScriptedLease(True), threading.Event()
    with Leading(lease, lease_s=0.03, on_lost=lost.set):
        until(lambda: lease.asked >= 3, "three renewals")
    assert not lost.is_set()
    assert lease.released == 1


def test_a_lost_lease_is_told_once_and_not_asked_for_again():
    lease, told = ScriptedLease(True, False), []
    with Leading(lease, lease_s=0.03, on_lost=lambda: told.append(1)) as leading:
        until(lambda: leading.lost, "the loss is noticed")
    assert told == [1]
    assert lease.asked == 2


def test_a_store_that_does_not_answer_is_asked_again():
    lease, lost = ScriptedLease(StoreUnreachable("away"), StoreUnreachable("away"), True), threading.Event()
    with Leading(lease, lease_s=0.03, on_lost=lost.set):
        until(lambda: lease.asked >= 4, "renewals go on")
    assert not lost.is_set()
