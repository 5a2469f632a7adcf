"""The breaker opens on failures, rests, lets one probe through, and closes on its answer."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tallymark.client.breaker import FIRST_REST_S, LONGEST_REST_S, TIMED_OUT_WEIGHT, Breaker


def tripped(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(5):
        breaker.failed(breaker.begin(), now)
    return breaker


def test_four_failures_are_not_enough_and_five_are():
    breaker = Breaker()
    for expected in ["closed"] * 4 + ["open"]:
        breaker.failed(breaker.begin(), 0.0)
        assert breaker.state == expected


def test_three_time_outs_are_enough():
    breaker = Breaker()
    for expected in ["closed", "closed", "open"]:
        breaker.failed(breaker.begin(), 0.0, weight=TIMED_OUT_WEIGHT)
        assert breaker.state == expected


def test_failures_that_are_long_ago_do_not_count():
    breaker = Breaker()
    for now in range(0, 100, 3):
        breaker.failed(breaker.begin(), now)
    assert breaker.state == "closed"


def test_an_address_that_fails_every_second_time_stays_in_use():
    breaker = Breaker()
    for number in range(60):
        (breaker.failed if number % 2 == 0 else breaker.succeeded)(breaker.begin(), 0.0)
    assert breaker.state == "closed"


def test_one_that_has_answered_well_and_fails_six_times_in_a_row_is_left_alone():
    breaker = Breaker()
    for _ in range(20):
        breaker.succeeded(breaker.begin(), 0.0)
    for expected in ["closed"] * 5 + ["open"]:
        breaker.failed(breaker.begin(), 0.0)
        assert breaker.state == expected


def test_each_failed_probe_doubles_the_rest_up_to_five_seconds():
    breaker, now, rests = tripped(), 0.0, []
    for _ in range(7):
        at = breaker.free_at()
        rests.append(at - now)
        now = at
        breaker.failed(breaker.begin(), now)
    assert rests == [1, 2, 4, 5, 5, 5, 5]


def test_what_was_begun_before_it_opened_says_nothing_about_the_probe():
    breaker = Breaker()
    early = breaker.begin()
    for _ in range(5):
        breaker.failed(breaker.begin(), 0.0)
    breaker.begin()
    breaker.succeeded(early, 2.0)
    assert breaker.state == "half_open"


class Breaking(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.breaker, self.now, self.pending, self.probe = Breaker(), 0.0, [], None

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 5.0, 31.0]))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def ask(self):
        at = self.breaker.free_at()
        if at is not None and at <= self.now:
            was = self.breaker.state
            token = self.breaker.begin()
            assert self.breaker.state == ("closed" if was == "closed" else "half_open")
            self.pending.append(token)

    @rule(which=st.integers(0, 9), outcome=st.sampled_from(["succeeded", "failed", "timed_out", "released"]))
    def end(self, which, outcome):
        if not self.pending:
            return
        token = self.pending.pop(which % len(self.pending))
        if outcome == "released":
            self.breaker.released(token)
        elif outcome == "timed_out":
            self.breaker.failed(token, self.now, weight=TIMED_OUT_WEIGHT)
        else:
            getattr(self.breaker, outcome)(token, self.now)

    @invariant()
    def never_stuck(self):
        at = self.breaker.free_at()
        if self.breaker.state == "half_open":
            assert at is None
            assert self.pending, "a probe is under way, so its outcome will free the breaker"
        else:
            assert at is not None
            assert at <= self.now + LONGEST_REST_S
        assert FIRST_REST_S <= self.breaker._rest_s <= LONGEST_REST_S


Breaking.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestBreaking = Breaking.TestCase
