"""Stale or none: what is answered while the store is away, or the counts are behind."""

import threading
from concurrent.futures import Future

import msgspec
import pytest

from tallymark.http import Problem
from tallymark.log.protocol import LogUnreachable, Outgoing
from tallymark.query.delivery import LastKnown, settled
from tallymark.query.response import Response
from tallymark.store.protocol import StoreUnreachable

TOTAL = "/v1/meters/views/total"
NOON = 1_794_744_000


def take_away(desk) -> None:
    """The store does not answer, and neither does its registry."""
    desk.store.failure = StoreUnreachable("1 of 3 nodes answers")


def test_while_the_store_is_away_the_last_known_answer_says_how_old_it_is(desk):
    desk.store.count("views", (("A", "KR"), NOON, [None] * 3))
    desk.ask(TOTAL)
    desk.now_ms += 90_500
    take_away(desk)
    response = desk.send("GET", f"{TOTAL}?consistency=stale")
    body = msgspec.json.decode(response.body)
    assert body["value"] == {"count": 3}
    assert body["freshness"]["stale_s"] == 90.5
    assert body["freshness"]["complete_through"] == "2026-11-15T12:30:30.000Z"
    assert (dict(response.headers)["age"], dict(response.headers)["tallymark-stale-s"]) == ("90", "90.5")


@pytest.mark.parametrize("how", ["", "?consistency=cached", "?consistency=fresh"])
def test_without_stale_it_is_refused(desk, how):
    desk.ask(TOTAL)
    take_away(desk)
    with pytest.raises(StoreUnreachable):
        desk.send("GET", TOTAL + how)


def test_what_was_never_asked_is_not_known(desk):
    desk.ask(TOTAL)
    take_away(desk)
    for other in (f"{TOTAL}?video=A&consistency=stale", f"{TOTAL}?consistency=stale&format=csv"):
        with pytest.raises(StoreUnreachable):
            desk.send("GET", other)


def test_another_tenant_does_not_get_it(desk):
    desk.store.registry.add_tenant("acme")
    desk.ask("/v1/meters/events/total")
    take_away(desk)
    with pytest.raises(StoreUnreachable):
        desk.send("GET", "/v1/meters/events/total?consistency=stale", headers={"tallymark-tenant": "acme"})


def test_stale_is_computed_as_long_as_the_store_answers(desk):
    desk.ask(TOTAL)
    desk.store.count("views", (("A", "KR"), NOON, [None] * 3))
    answer = desk.ask(f"{TOTAL}?consistency=stale")
    assert answer["value"] == {"count": 3}
    assert "stale_s" not in answer["freshness"]


def test_other_forms_say_their_age_in_a_header(desk):
    desk.ask(TOTAL)
    known = desk.send("GET", f"{TOTAL}?format=csv")
    desk.now_ms += 1000
    take_away(desk)
    stale = desk.send("GET", f"{TOTAL}?format=csv&consistency=stale")
    assert stale.body == known.body
    assert dict(stale.headers)["tallymark-stale-s"] == "1"


def test_fresh_is_refused_while_the_counts_are_too_far_behind(desk):
    desk.log.append([Outgoing(0, b"", 1)])  # nobody has counted it yet
    desk.ask(f"{TOTAL}?consistency=fresh")
    desk.now_ms += 61_000
    problem = desk.refused(f"{TOTAL}?consistency=fresh")
    assert (problem.status, problem.code) == (503, "not_fresh")
    assert (problem.extra["limit"], problem.extra["actual"]) == (60.0, 61.0)
    assert ("retry-after", "5") in problem.headers
    assert "consistency=cached" in problem.detail
    assert desk.ask(TOTAL)["freshness"]["lag_ms"] == 61_000


def test_fresh_is_refused_if_nobody_knows_how_fresh_it_is(desk):
    def positions():
        raise LogUnreachable("no broker answers")

    desk.log.positions = positions
    problem = desk.refused(f"{TOTAL}?consistency=fresh")
    assert problem.code == "not_fresh"
    assert "unknown" in problem.detail


def test_a_question_that_waits_for_another_thread_gets_the_last_known_answer_too():
    coming: Future[Response] = Future()
    known = Response(200, [], b"known")

    def then(get):
        try:
            return get()
        except StoreUnreachable:
            return known

    found = settled(coming, then)
    assert isinstance(found, Future)
    thread = threading.Thread(target=lambda: coming.set_exception(StoreUnreachable("away")))
    thread.start()
    thread.join()
    assert found.result(timeout=5) is known
    refused = settled(coming, lambda get: get())
    with pytest.raises(StoreUnreachable):
        refused.result(timeout=5)


def test_what_is_known_is_bounded_and_the_least_used_goes_first():
    known = LastKnown(most_bytes=3 * 1_101)
    answers = {name: Response(200, [], b"x" * 100) for name in "abcd"}
    for name in "abc":
        known.keep(name, answers[name])
    known.get("a")
    known.keep("d", answers["d"])
    assert [name for name in "abcd" if known.get(name)] == ["a", "c", "d"]
    known.keep("e", Response(200, [], b"x" * 10_000))
    assert known.get("e") is None
    assert known.get("d") is answers["d"]
    for _ in range(10):
        known.keep("d", answers["d"])
    assert known.get("a") is not None


def test_nothing_is_kept_of_no_bytes():
    known = LastKnown(most_bytes=0)
    known.keep("a", Response(200, [], b""))
    assert known.get("a") is None


@pytest.mark.parametrize("mistake", ["consistency=stael", "format=xml", "consistency=stale&consistency=fresh"])
def test_mistakes_are_refused_also_while_the_store_is_away(desk, mistake):
    take_away(desk)
    with pytest.raises(Problem):
        desk.send("GET", f"{TOTAL}?{mistake}")
