"""Answers kept for a moment: computed once, never too old, never from before what was waited for."""

import threading
from collections import Counter
from concurrent.futures import Future

import msgspec
import pytest

from tallymark.http import APPLIED, decode_positions, encode_positions
from tallymark.query.cache import ENTRY_BYTES, AnswerCache, Computed
from tallymark.query.response import Response
from tallymark.telemetry import REGISTRY
from tallymark.testing import ManualClock, until

HOUR = "from=2026-11-15T11:00:00Z&to=2026-11-15T12:00:00Z"
WITHIN_THE_HOUR = "from=2026-11-15T11:00:30Z&to=2026-11-15T12:00:00Z"
TOTAL = "/v1/meters/views/total"


class Asking:
    """A cache over answers that are numbered as they are computed."""

    def __init__(self, *, ttl_s: float = 1.0, most_bytes: int = 1_000_000) -> None:
        self.clock = ManualClock()
        self.cache = AnswerCache(ttl_s=ttl_s, most_bytes=most_bytes, clock=self.clock.now)
        self.computed = 0
        self.applied: dict[int, int] = {}
        self.body_bytes = 1

    def compute(self) -> Computed:
        self.computed += 1
        return Computed(Response(200, [], b"%d" % self.computed + b" " * (self.body_bytes - 1)), dict(self.applied))

    def ask(self, question="q", **how) -> int:
        answer = self.cache.get(question, self.compute, **how)
        assert isinstance(answer, Response)
        return int(answer.body)


def outcomes() -> Counter:
    return Counter(
        {each: REGISTRY.get_sample_value("tallymark_query_cache_total", {"outcome": each}) for each in OUTCOMES}
    )


OUTCOMES = ("hit", "miss", "fresh")


def test_an_answer_is_given_again_until_its_time_is_up():
    asking = Asking(ttl_s=1.0)
    assert [asking.ask(), asking.ask()] == [1, 1]
    asking.clock.advance(0.999)
    assert asking.ask() == 1
    asking.clock.advance(0.001)
    assert asking.ask() == 2


def test_questions_are_told_apart():
    asking = Asking()
    assert [asking.ask("a"), asking.ask("b"), asking.ask("a")] == [1, 2, 1]


def test_fresh_goes_past_it_and_leaves_what_it_found():
    asking = Asking()
    assert [asking.ask(), asking.ask(fresh=True), asking.ask()] == [1, 2, 2]


def test_zero_turns_it_off():
    asking = Asking(ttl_s=0.0)
    assert [asking.ask(), asking.ask()] == [1, 2]


def test_hits_misses_and_fresh_ones_are_counted():
    asking, before = Asking(), outcomes()
    for fresh in (False, False, True, False):
        asking.ask(fresh=fresh)
    assert outcomes() - before == {"miss": 1, "hit": 2, "fresh": 1}


def test_an_answer_from_before_what_was_waited_for_is_not_given():
    asking = Asking()
    asking.applied = {0: 5, 1: 2}
    assert [asking.ask(), asking.ask(since={0: 5}), asking.ask(since={0: 5, 1: 2})] == [1, 1, 1]
    asking.applied = {0: 6, 1: 2}
    assert [asking.ask(since={0: 6}), asking.ask(), asking.ask(since={0: 6, 1: 2})] == [2, 2, 2]
    assert asking.ask(since={2: 1}) == 3, "a partition that the answer knows nothing of"


def test_a_slow_answer_of_an_earlier_moment_does_not_replace_a_later_one():
    asking = Asking()
    asking.applied = {0: 1}
    earlier = asking.compute()
    asking.applied = {0: 2}
    assert asking.ask() == 2
    asking.cache.get("q", lambda: earlier, fresh=True)
    assert asking.ask() == 2


def test_what_is_kept_is_bounded_and_the_oldest_goes():
    asking = Asking(most_bytes=3 * (ENTRY_BYTES + 100))
    asking.body_bytes = 90
    assert [asking.ask(question) for question in "abcd"] == [1, 2, 3, 4]
    assert [asking.ask(question) for question in "dcb"] == [4, 3, 2]
    assert asking.ask("a") == 5
    asking.body_bytes = 10_000
    assert [asking.ask("huge"), asking.ask("huge"), asking.ask("a")] == [6, 7, 5]


def test_what_has_expired_does_not_stay_in_memory():
    asking = Asking()
    for number in range(100):
        asking.ask(f"question {number}")
        asking.clock.advance(0.1)
    assert len(asking.cache._entries) <= 11
    assert asking.cache._held == sum(entry.size for entry in asking.cache._entries.values())


class SlowAsking(Asking):
    """Computes only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go_on = threading.Semaphore(0), threading.Event()
        self.error: Exception | None = None

    def compute(self) -> Computed:
        computed = super().compute()
        self.began.release()
        assert self.go_on.wait(20)
        if self.error:
            raise self.error
        return computed

    def begin(self, **how) -> Future:
        """Asks in a thread of its own, and returns once that computes."""
        result = Future()

        def run() -> None:
            try:
                result.set_result(self.cache.get("q", self.compute, **how))
            except Exception as error:
                result.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        assert self.began.acquire(timeout=20)
        return result


def test_equal_questions_at_once_are_computed_once():
    asking, before = SlowAsking(), outcomes()
    first = asking.begin()
    others = [asking.cache.get("q", asking.compute) for _ in range(10)]
    asking.go_on.set()
    assert {other.result(20).body for other in others} == {b"1"} == {first.result(20).body}
    assert asking.computed == 1
    assert outcomes() - before == {"miss": 1, "hit": 10}


def test_an_error_reaches_all_who_waited_and_is_not_kept():
    asking = SlowAsking()
    asking.error = OSError("the disk is gone")
    first = asking.begin()
    other = asking.cache.get("q", asking.compute)
    asking.go_on.set()
    for waiting in (first, other):
        with pytest.raises(OSError, match="the disk is gone"):
            waiting.result(20)
    asking.error = None
    assert asking.ask() == 2


def test_one_who_leaves_does_not_take_the_answer_from_the_others():
    asking = SlowAsking()
    asking.begin()
    leaving, staying = (asking.cache.get("q", asking.compute) for _ in range(2))
    assert not leaving.cancel()
    asking.go_on.set()
    assert staying.result(20).body == b"1"


def test_nobody_joins_a_computation_that_may_be_of_an_earlier_moment():
    asking = SlowAsking()
    asking.applied = {0: 5}
    first, fresh, after_a_wait = asking.begin(), asking.begin(fresh=True), asking.begin(since={0: 5})
    asking.go_on.set()
    assert [each.result(20).body for each in (first, fresh, after_a_wait)] == [b"1", b"2", b"3"]
    asking.clock.advance(1.0)
    asking.go_on.clear()
    asking.begin()  # begun when {0: 5} was known to be applied
    joined = asking.cache.get("q", asking.compute, since={0: 5})
    asking.go_on.set()
    assert joined.result(20).body == b"4"


def test_equal_questions_right_after_a_wait_are_computed_once():
    asking = SlowAsking()
    asking.applied = {0: 5}
    reads = []

    def applied() -> dict[int, int]:
        reads.append(1)
        return asking.applied

    first = asking.begin(since={0: 5}, applied=applied)
    others = [asking.cache.get("q", asking.compute, since={0: 5}, applied=applied) for _ in range(19)]
    asking.go_on.set()
    assert {other.result(20).body for other in others} == {b"1"} == {first.result(20).body}
    assert (asking.computed, len(reads)) == (1, 1)


def test_nobody_joins_one_that_was_begun_with_made_up_positions():
    asking = SlowAsking()
    asking.applied = {0: 4}
    made_up = asking.begin(since={0: 10**9}, applied=lambda: {0: 4})
    asking.applied = {0: 5}
    honest = asking.begin(since={0: 5}, applied=lambda: {0: 5})
    asking.go_on.set()
    assert (made_up.result(20).body, honest.result(20).body) == (b"1", b"2")


def test_one_that_was_overtaken_does_not_hide_the_later_one_when_it_ends():
    asking = SlowAsking()
    first_may_end, began = threading.Event(), threading.Event()

    def first_compute() -> Computed:
        began.set()
        assert first_may_end.wait(20)
        return Computed(Response(200, [], b"first"), {})

    first = threading.Thread(target=lambda: asking.cache.get("q", first_compute), daemon=True)
    first.start()
    assert began.wait(20)
    later = asking.begin(since={0: 5})  # takes its place
    first_may_end.set()
    first.join(20)
    asking.clock.advance(1.0)  # what the first one left is too old
    joined = asking.cache.get("q", lambda: pytest.fail("computed, although one is under way"))
    asking.go_on.set()
    assert joined.result(20).body == later.result(20).body == b"1"


# Scenes


def counted(desk, number: int) -> None:
    desk.store.count("views", (("A", "KR"), desk.now_ms // 60_000 * 60, [None]))
    desk.store.positions = {0: number}


def test_forty_equal_questions_beside_forty_events_a_second_are_mostly_hits(keeping_desk):
    #  events     ||||||||||||||||||||   40 a second, each a batch of its own
    #  questions  q    q    q    q       4 a second
    before, number = outcomes(), 0
    for _ in range(40):
        for _ in range(10):
            number += 1
            counted(keeping_desk, number)
            keeping_desk.now_ms += 25
        told = keeping_desk.ask(f"{TOTAL}?video=A")["value"]["count"]
        assert number - 40 < told <= number, "never older than a second"
    found = outcomes() - before
    assert found["hit"] + found["miss"] == 40
    assert found["hit"] >= 28


def test_freshness_is_that_of_the_kept_moment(keeping_desk):
    first = keeping_desk.ask(TOTAL)
    keeping_desk.now_ms += 900
    assert keeping_desk.ask(TOTAL) == first
    fresh = keeping_desk.ask(f"{TOTAL}?consistency=fresh")
    assert fresh["freshness"]["complete_through"] > first["freshness"]["complete_through"]


def test_whoever_waited_sees_what_they_sent_although_an_answer_is_kept(keeping_desk):
    assert keeping_desk.ask(TOTAL)["value"] == {"count": 0}
    counted(keeping_desk, 1)
    assert keeping_desk.ask(TOTAL)["value"] == {"count": 0}
    assert keeping_desk.ask(TOTAL, headers={APPLIED: "0:1"})["value"] == {"count": 1}


def test_what_is_applied_is_looked_up_in_the_store(keeping_desk, monkeypatch):
    given = {}

    def get(question, compute, **how):
        given.update(how)
        return compute().answer

    monkeypatch.setattr(keeping_desk.sources.cache, "get", get)
    counted(keeping_desk, 7)
    keeping_desk.ask(TOTAL, headers={APPLIED: "0:9"})
    assert (given["since"], given["applied"]()) == ({0: 9}, {0: 7})


def test_fresh_is_computed_and_cached_is_what_is_asked_for_by_default(keeping_desk):
    keeping_desk.ask(TOTAL)
    counted(keeping_desk, 1)
    counts = [
        keeping_desk.ask(f"{TOTAL}{how}")["value"]["count"] for how in ("", "?consistency=cached", "?consistency=fresh")
    ]
    assert counts == [0, 0, 1]


@pytest.mark.parametrize("nonsense", ["", "0", "0:x", "0:1,", "-1:5", "0:1;1:1", "9" * 5000])
def test_a_header_that_no_collector_sends_only_makes_the_answer_fresh(keeping_desk, nonsense):
    keeping_desk.ask(TOTAL)
    counted(keeping_desk, 1)
    assert keeping_desk.ask(TOTAL, headers={APPLIED: nonsense})["value"] == {"count": 1}


@pytest.mark.parametrize("positions", [{0: 1}, {0: 0, 7: 2**40}, {1023: 10**17}])
def test_positions_travel_in_a_header(positions):
    assert decode_positions(encode_positions(positions)) == positions


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ("views/total?from=-1h", "views/total?from=2026-11-15T11:30:30Z", True),
        ("views/total?video=A", "views/total?video=A&video=A", True),
        ("views/total?video=A", "views/total?video=B", False),
        ("views/total?video=A", "views/total?country=A", False),
        ("views/total", "views/total?from=-1h", False),
        ("views/total?from=-1h", "views/total?from=-2h", False),
        ("views/series?step=1m", "views/series?step=1h", False),
        (f"views/series?{HOUR}&step=1m", f"views/series?{HOUR}&step=1h", False),
        ("views/series?by=video", "views/series?by=country", False),
        ("views/series?by=video&limit=1", "views/series?by=video&limit=2", False),
        ("views/series?step=1d", "views/series?step=1d&tz=Asia/Kathmandu", False),
        ("views/top?by=video", "views/series?by=video", False),
        ("views/top?by=video&k=1", "views/top?by=video&k=2", False),
        ("latency/total?fn=sum", "latency/total?fn=max", False),
        ("latency/total?fn=sum", "latency/total?fn=sum&fn=max", False),
        ("latency/series?fn=sum", "latency/series?fn=max", False),
        ("latency/top?fn=sum", "latency/top?fn=max", False),
        ("views/total", "latency/total", False),
        # The same buckets, but the answer names the zone, or says that the range was widened.
        (f"views/series?{HOUR}", f"views/series?{HOUR}&tz=Europe/Vienna", False),
        (f"views/series?{HOUR}&step=1h", f"views/series?{WITHIN_THE_HOUR}&step=1h", False),
        (f"views/total?{HOUR}", f"views/total?{WITHIN_THE_HOUR}", False),
    ],
)
def test_which_questions_are_equal(keeping_desk, first, second, equal):
    before = outcomes()
    for question in (first, second):
        keeping_desk.ask(f"/v1/meters/{question}")
    assert (outcomes() - before)["hit"] == equal


def test_a_meter_that_changed_or_broke_or_went_is_not_answered_from_before(keeping_desk):
    keeping_desk.ask(TOTAL)
    keeping_desk.store.break_meter("views", "no such column")
    assert keeping_desk.ask(TOTAL)["broken"] == "no such column"
    keeping_desk.ask("/v1/meters/views", "PUT", {"event": "view", "by": ["video"]})
    assert keeping_desk.ask(TOTAL)["freshness"]["meter_version"] == 2
    keeping_desk.ask("/v1/meters/views", "DELETE")
    assert keeping_desk.refused(TOTAL).status == 404


def test_a_refusal_is_not_kept(keeping_desk):
    keeping_desk.store.failure = OSError("disk I/O error")
    with pytest.raises(OSError, match="disk I/O error"):
        keeping_desk.ask(TOTAL)
    keeping_desk.store.failure = None
    assert keeping_desk.ask(TOTAL)["value"] == {"count": 0}


def test_threads_that_ask_the_same_get_one_answer(keeping_desk):
    reading, go_on = threading.Semaphore(0), threading.Event()
    snapshot = keeping_desk.store.snapshots.take

    def slowly():
        reading.release()
        assert go_on.wait(20)
        return snapshot()

    keeping_desk.store.snapshots.take = slowly
    bodies = []

    def ask() -> None:
        answer = keeping_desk.send("GET", TOTAL)
        bodies.append((answer.result(20) if isinstance(answer, Future) else answer).body)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    before = outcomes()
    for thread in threads:
        thread.start()
    until(lambda: (outcomes() - before)["hit"] == 7, "seven wait for one")
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert len(bodies) == 8
    assert len(set(bodies)) == 1
    assert msgspec.json.decode(bodies[0])["value"] == {"count": 0}
    assert reading.acquire(blocking=False)
    assert not reading.acquire(blocking=False), "one snapshot for all"
