"""The small rules: pauses, the budget for retries, the time-out, the choice of an address, the verdict."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.client.addresses import BALANCES, Address, Addresses, Health
from tallymark.client.backoff import BackOff, chance
from tallymark.client.budget import RetryBudget
from tallymark.client.timeouts import FIRST_S, TimeOut
from tallymark.client.transport import Answer
from tallymark.client.verdict import MAX_RETRY_AFTER_S, judge


def test_chance_is_at_least_nothing_and_less_than_one():
    drawn = [chance() for _ in range(1_000)]
    assert 0 <= min(drawn) < 0.1
    assert 0.9 < max(drawn) < 1


@given(st.integers(1, 10_000), st.floats(0, 0.999))
def test_a_pause_is_never_beyond_its_bound_however_many_tries(tries, drawn):
    back_off = BackOff(0.01, 5.0, chance=lambda: drawn)
    assert 0 <= back_off.pause(tries) <= back_off.longest(tries) <= 5.0


@given(st.lists(st.sampled_from(["first", "retry", "wait"]), max_size=300))
def test_retries_are_a_fifth_of_the_first_attempts_beyond_the_floor(acts):
    now, firsts, retries = 0.0, 0, 0
    budget = RetryBudget(now=now)
    for act in acts:
        if act == "first":
            budget.earn()
            firsts += 1
        elif act == "wait":
            now += 0.05
        elif budget.ready_at(now) <= now:
            budget.spend(now)
            retries += 1
        assert retries <= 20 + 0.2 * firsts + 10 * now + 1e-6


def test_a_retry_without_budget_waits_a_tenth_of_a_second():
    budget = RetryBudget(now=0.0)
    for _ in range(20):
        budget.spend(0.0)
    assert budget.ready_at(0.0) == pytest.approx(0.1)


def test_the_time_out_is_three_times_the_99th_percentile_of_the_last_answers_within_bounds():
    timeout = TimeOut(min_s=0.25, max_s=10.0)
    assert timeout.seconds == FIRST_S
    for number in range(200):
        timeout.answered(1.0 if number % 50 == 0 else 0.2)
    assert timeout.seconds == 3.0
    for _ in range(200):
        timeout.answered(0.001)
    assert timeout.seconds == 0.25, "what is longer ago is forgotten"
    timeout.answered(9.0)
    timeout.answered(9.0)
    timeout.answered(9.0)
    assert timeout.seconds == 10.0


def test_time_outs_in_a_row_double_it_until_an_answer_comes():
    timeout = TimeOut(min_s=0.25, max_s=10.0)
    seen = []
    for _ in range(6):
        seen.append(timeout.seconds)
        timeout.timed_out()
    assert seen == [0.5, 1, 2, 4, 8, 10]
    timeout.answered(0.1)
    assert timeout.seconds == pytest.approx(0.3)


def addresses(balance: str, count: int = 3) -> tuple[Addresses, list[Address]]:
    made = [Address(f"http://{number}", min_timeout_s=0.25, max_timeout_s=10) for number in range(count)]
    for address in made:
        address.end(address.begin(), Health.GOOD, 0.0, 0.01)
    return Addresses(made, balance), made


def test_round_robin_takes_turns():
    chosen, made = addresses("round_robin")
    assert [made.index(chosen.choose(0.0)) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_least_pending_takes_the_one_with_the_fewest_under_way():
    chosen, made = addresses("least_pending")
    made[0].begin(), made[0].begin(), made[1].begin()
    assert chosen.choose(0.0) is made[2]


def test_least_time_takes_the_quickest_and_tries_the_slow_one_again_some_day():
    chosen, made = addresses("least_time", 2)
    for _ in range(30):
        made[0].end(made[0].begin(), Health.GOOD, 0.0, 1.0)
    assert chosen.choose(0.0) is made[1]
    made[1].end(made[1].begin(), Health.GOOD, 100.0, 0.01)
    assert chosen.choose(100.0) is made[0]


@pytest.mark.parametrize("balance", BALANCES)
def test_a_retry_goes_to_another_address_and_one_that_is_set_aside_gets_nothing(balance):
    chosen, made = addresses(balance)
    assert all(chosen.choose(0.0, after=made[1]) is not made[1] for _ in range(6))
    for _ in range(5):
        made[2].end(made[2].begin(), Health.BAD, 0.0, 0.01)
    assert made[2].breaker.state == "open"
    assert made[2] not in [chosen.choose(0.0) for _ in range(6)]
    made[0].hold(7.0)
    made[1].hold(9.0)
    assert chosen.free_at() == 1.0, "the first to be free is the one whose breaker may be probed"


def test_an_address_that_has_not_answered_yet_gets_one_request_at_a_time():
    address = Address("http://new", min_timeout_s=0.25, max_timeout_s=10)
    token = address.begin()
    assert address.free_at() is None
    address.end(token, Health.GOOD, 0.0, 0.01)
    address.begin()
    assert address.free_at() == 0.0


def told(accepted: int, *errors: tuple[int, bool]) -> bytes:
    shaped = [{"index": index, "code": "bad", "detail": "d", "retryable": again} for index, again in errors]
    return json.dumps({"accepted": accepted, "rejected": len(errors), "errors": shaped}).encode()


@pytest.mark.parametrize(
    ("status", "body", "again", "refused"),
    [
        (202, told(3), [], []),
        (200, told(3), [], []),
        (202, told(1, (0, True), (2, False)), [0], [2]),
        (422, told(0, (0, False), (1, False), (2, False)), [], [0, 1, 2]),
        (503, told(0, (0, True), (1, False), (2, True)), [0, 2], [1]),
        (503, b"{}", [0, 1, 2], []),
        (429, b"", [0, 1, 2], []),
        (408, b"", [0, 1, 2], []),
        (500, b"<html>", [0, 1, 2], []),
        (502, b"", [0, 1, 2], []),
        (504, b"", [0, 1, 2], []),
        (400, b'{"code": "bad_json", "detail": "not JSON"}', [], [0, 1, 2]),
        (401, b"", [], [0, 1, 2]),
        (403, b"\xff", [], [0, 1, 2]),
        (404, b"", [], [0, 1, 2]),
        (415, b"", [], [0, 1, 2]),
        (301, b"", [], [0, 1, 2]),
        # Not what a collector says: the events have no outcome.
        (202, b"", [0, 1, 2], []),
        (200, b"<html>hello</html>", [0, 1, 2], []),
        (202, told(2), [0, 1, 2], []),
        (202, told(2, (7, True)), [0, 1, 2], []),
        (202, told(1, (0, True), (0, False)), [0, 1, 2], []),
    ],
)
def test_what_an_answer_decides(status, body, again, refused):
    verdict = judge(Answer(status, {}, body), 3)
    assert (list(verdict.again), sorted(verdict.refused)) == (again, refused)


def test_too_large_is_split_unless_it_is_one_event():
    assert judge(Answer(413, {}, b""), 2).split
    assert judge(Answer(413, {}, b""), 1).refused[0][0] == "too_large"


def test_an_absurd_retry_after_is_bounded():
    assert judge(Answer(429, {"retry-after": "86400"}, b""), 1).retry_after_s == MAX_RETRY_AFTER_S
