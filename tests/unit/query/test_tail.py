"""`/v1/tail`: events as they pass, of one tenant, sampled and bounded, whatever passes."""

import json
from urllib.parse import quote

import pytest

from listening import play, until
from tallymark.http import Problem
from tallymark.log.protocol import LogLost, LogUnreachable, Outgoing
from tallymark.query import api, tail
from tallymark.query.routes import Request
from tallymark.query.tail import Tail, Wanted, understood
from tallymark.testing import MemoryLog


def view(number, video="A", **props):
    return {"event": "view", "id": f"v{number}", "props": {"video": video, **props}}


class Follower:
    """A tail on a log in memory, looked at by hand."""

    def __init__(self, desk, build, **wanted):
        self.desk, self.build = desk, build
        self.now_s = 100.0
        self.tail = Tail(desk.sources, clock=lambda: self.now_s)
        self.tail.opening(Request("GET", "/v1/tail"))
        self.wanted = Wanted(**{"tenant": "main", "rate": 200, **wanted})

    def send(self, *events, partition=0):
        count, content = self.build.payload(events)
        self.desk.log.append([Outgoing(partition, content, count)])

    def look(self, wanted=None):
        wanted = wanted or self.wanted
        self.now_s += 0.5
        found = self.tail.news([wanted]).get(wanted)
        return None if found is None else json.loads(found.text.decode().partition("data: ")[2])


@pytest.fixture
def follow(desk, build):
    return lambda **wanted: Follower(desk, build, **wanted)


def ids(told):
    return [event["id"] for event in told["events"]]


def test_events_come_as_they_were_sent_and_once(follow):
    follower = follow()
    follower.send({**view(1, ms=5, first=True), "value": 2.5, "values": {"cpu": 1}})
    follower.send({"event": "sale", "id": "s"}, partition=1)
    told = follower.look()
    assert (told["passed"], told["matched"], told["shown"]) == (2, 2, 2)
    assert "sampled" not in told
    (seen,) = [event for event in told["events"] if event["event"] == "view"]
    assert seen["time"] == seen["received"] == "2026-11-15T12:30:00.000Z"
    assert (seen["value"], seen["values"], seen["props"]) == (
        2.5,
        {"cpu": 1.0},
        {"video": "A", "ms": 5, "first": True},
    )
    assert follower.look() is None


def test_what_was_there_before_is_not_shown_and_what_comes_after_the_first_message_is(desk, build):
    early = Follower(desk, build)
    early.send(view(1))
    follower = Follower(desk, build)
    follower.send(view(2))
    assert ids(follower.look()) == ["v2"]


def test_filters_by_name_and_where(follow):
    follower = follow(events=("view",), where="ms > 10 or video = 'it''s'")
    follower.send(view(1, ms=5), view(2, ms=50), view(3, video="it's"), {"event": "x", "id": "x", "props": {"ms": 99}})
    told = follower.look()
    assert ids(told) == ["v2", "v3"]
    assert (told["passed"], told["matched"], told["shown"]) == (4, 2, 2)
    assert follow(where="event = 'x' and value is null").look() is None


def test_only_events_of_the_tenant_are_shown_and_counted(follow, build):
    ours, theirs = follow(), Wanted("acme", rate=200)
    ours.send(*build.of_tenant("acme", view(1), view(2)), view(3))
    found = ours.tail.news([ours.wanted, theirs, Wanted("nobody")])
    told = {each.tenant: json.loads(news.text.decode().partition("data: ")[2]) for each, news in found.items()}
    assert (ids(told["main"]), told["main"]["passed"]) == (["v3"], 1)
    assert (sorted(ids(told["acme"])), told["acme"]["passed"]) == (["v1", "v2"], 2)
    assert (told["nobody"]["events"], told["nobody"]["passed"]) == ([], 0)


def test_the_rate_holds_over_time(follow):
    follower = follow(rate=1)
    shown = []
    for number in range(8):
        follower.send(*(view(f"{number}-{n}") for n in range(10)))
        told = follower.look()
        shown.append(told["shown"])
        assert told["matched"] == 10
    assert sum(shown) in (4, 5)
    assert max(shown) == 1


def test_a_trickle_is_shown_whole_even_at_the_lowest_rate(follow):
    follower = follow(rate=1)
    for number in range(3):
        follower.send(view(number))
        assert follower.look()["shown"] == 1
        follower.now_s += 1


def test_the_choice_is_fair(follow):
    follower = follow(rate=20)
    counts = dict.fromkeys("ABCDE", 0)
    for number in range(60):
        follower.send(*(view(f"{number}-{n}", video="ABCDE"[n // 20]) for n in range(100)))
        for event in follower.look()["events"]:
            counts[event["props"]["video"]] += 1
    assert sum(counts.values()) == 600
    # Five standard deviations.
    assert all(70 < count < 170 for count in counts.values())


def test_200_000_events_at_once_are_sampled_and_the_follower_is_at_the_end(follow, monkeypatch):
    follower = follow(where="ms >= 0")
    for number in range(200):
        follower.send(*(view(f"{number}-{n}", ms=n) for n in range(1000)), partition=number % 2)
    read = []
    glance = follower.desk.log.glance

    def counted(*arguments, **limits):
        found = glance(*arguments, **limits)
        read.extend(found)
        return found

    monkeypatch.setattr(follower.desk.log, "glance", counted)
    told = follower.look()
    assert (told["passed"], told["matched"], told["shown"], told["sampled"]) == (200_000, 200_000, 100, True)
    assert sum(record.events for record in read) <= tail.BUDGET.events + 1_000
    assert len({record.partition for record in read}) == 2
    follower.send(view("next", ms=1))
    after = follower.look()
    assert (ids(after), after["passed"]) == (["vnext"], 1)


def test_a_stretch_is_read_from_all_over(follow, monkeypatch):
    monkeypatch.setattr(tail, "BUDGET", tail.Budget(events=80, size=10**9, places=8))
    follower = follow()
    for number in range(80):
        follower.send(*(view(f"{number}-{n}", at=number) for n in range(10)))
    eighths = {event["props"]["at"] // 10 for event in follower.look()["events"]}
    assert eighths == set(range(8))


def test_without_counts_in_the_log_what_passed_is_estimated(follow, monkeypatch):
    monkeypatch.setattr(tail, "BUDGET", tail.Budget(events=50, size=10**9, places=4))
    log = MemoryLog(1)
    positions = log.positions

    def uncounted():
        return {number: type(at)(at.first, at.synced, at.end, None) for number, at in positions().items()}

    log.positions = uncounted
    follower = follow()
    follower.desk.log = log
    follower.tail = Tail(follower.desk.sources)
    follower.desk.sources.newest._reader = log
    follower.tail.opening(Request("GET", "/v1/tail"))
    for number in range(40):
        follower.send(*(view(f"{number}-{n}") for n in range(10)))
    told = follower.look()
    assert (told["passed"], told["sampled"]) == (400, True)


def test_what_does_not_decode_is_counted_and_stops_nothing(follow):
    follower = follow()
    follower.desk.log.append([Outgoing(0, b"not a frame", 7)])
    follower.send(view(1))
    told = follower.look()
    assert (ids(told), told["passed"], told["unreadable"]) == (["v1"], 1, 7)
    follower.desk.log.append([Outgoing(0, b"not a frame", 7)])
    assert "unreadable" not in follower.look(Wanted("acme"))


def test_frames_of_a_newer_version_are_left_out(follow, build):
    follower = follow()
    count, content = build.payload([view(1), view(2)])
    newer = content.replace(b"tallymark.frame", b"tallymark.frame").replace(b"\x01\x00\x00\x001", b"\x01\x00\x00\x009")
    assert newer != content
    follower.desk.log.append([Outgoing(0, newer, count)])
    follower.send(view(3))
    assert ids(follower.look()) == ["v3"]


def test_a_message_is_bounded_whatever_events_hold(follow, monkeypatch):
    monkeypatch.setattr(tail, "MOST_MESSAGE_BYTES", 10_000)
    follower = follow()
    big = {f"p{n}": "x" * 1000 for n in range(8)}
    follower.send(*(view(n, **big) for n in range(20)))
    told = follower.look()
    assert (told["matched"], told["shown"]) == (20, 1)
    follower.send({"event": "m", "id": "m", "values": {f"n{n}": n for n in range(4_000)}})
    (event,) = follower.look()["events"]
    assert (len(event["values"]), event["left_out_values"]) == (tail.MOST_VALUES, 4_000 - tail.MOST_VALUES)


def test_another_log_in_its_place_begins_anew(follow):
    follower = follow()
    follower.send(view(1))
    follower.look()
    other = MemoryLog(2)
    other.identity = "another"
    follower.desk.sources.newest._reader = follower.desk.log = other
    follower.send(view(2))
    assert follower.look() is None
    follower.send(view(3))
    assert ids(follower.look()) == ["v3"]


def test_after_a_failure_nothing_is_told_twice_and_the_next_look_goes_on(follow, monkeypatch):
    follower = follow()
    follower.send(view(1))
    real = follower.desk.log.glance

    def failing(*_, **__):
        raise LogUnreachable("no broker")

    monkeypatch.setattr(follower.desk.log, "glance", failing)
    with pytest.raises(Problem, match="does not answer"):
        follower.look()
    monkeypatch.setattr(follower.desk.log, "glance", real)
    assert ids(follower.look()) == ["v1"]
    assert follower.look() is None


def test_records_that_retention_took_are_passed_over(follow, monkeypatch):
    follower = follow()
    follower.send(view(1))

    def gone(*_, **__):
        raise LogLost("gone")

    monkeypatch.setattr(follower.desk.log, "glance", gone)
    told = follower.look()
    assert (told["events"], told["matched"]) == ([], 0)


@pytest.mark.parametrize(
    ("query", "code", "parameter"),
    [
        ("rate=0", "bad_number", "rate"),
        ("rate=-1", "bad_number", "rate"),
        ("rate=1e9", "bad_number", "rate"),
        ("rate=1000000000", "over_limit", "rate"),
        ("rate=201", "over_limit", "rate"),
        ("rate=5&rate=6", "repeated_parameter", "rate"),
        ("where=", "bad_where", "where"),
        ("where=country = KR", "bad_where", "where"),
        ("where=(((((", "bad_where", "where"),
        ("where=" + "(" * 3_000, "bad_where", "where"),
        ("where=a=1&where=b=2", "repeated_parameter", "where"),
        ("event=", "bad_event", "event"),
        ("event=li ke", "bad_event", "event"),
        ("event=\x1b[31m", "bad_event", "event"),
        ("evnt=view", "unknown_parameter", "evnt"),
        ("limit=3", "unknown_parameter", "limit"),
        ("&".join(f"event=e{n}" for n in range(65)), "over_limit", "event"),
    ],
)
def test_wrong_filters_are_named(query, code, parameter):
    pairs = [tuple(each.split("=", 1)) for each in query.split("&")]
    with pytest.raises(Problem) as refused:
        understood("main", pairs)
    assert (refused.value.status, refused.value.code) == (400, code)
    assert refused.value.extra["parameter"] == parameter
    if code == "bad_where":
        assert refused.value.extra["position"] >= 0


def test_the_nearest_parameter_is_named():
    with pytest.raises(Problem, match="did you mean event"):
        understood("main", [("evnt", "view")])


def test_equal_filters_are_one_topic():
    one = understood("main", [("event", "b"), ("event", "a"), ("where", "x=1")])
    other = understood("main", [("where", "x = 1"), ("event", "a"), ("event", "b")])
    assert one == other


def test_over_http_many_listeners_share_one_look_and_one_that_never_reads_holds_nobody_up(desk, build, monkeypatch):
    monkeypatch.setattr(tail, "INTERVAL_S", 0.05)
    desk.routes = api.routes(desk.sources, desk.rates)

    async def scene(dispatcher, open_):
        pages = [open_("/v1/tail?rate=200") for _ in range(40)]
        never = open_("/v1/tail?rate=200", reads=False)
        picky = open_(f"/v1/tail?where={quote('ms > 1')}&event=view")
        await until(lambda: all(page.sent for page in [*pages, picky]) and never.status)
        looks = []
        real = desk.log.glance
        monkeypatch.setattr(desk.log, "glance", lambda *a, **k: looks.append(1) or real(*a, **k))
        count, content = build.payload([view(1, ms=1), view(2, ms=2)])
        desk.log.append([Outgoing(0, content, count)])
        await until(lambda: all(page.told("events") for page in [*pages, picky]))
        assert sum(len(told["events"]) for told in pages[0].told("events")) == 2
        assert [ids(told) for told in picky.told("events")] == [["v2"]]
        assert len(looks) <= 2
        assert dispatcher.listeners == 42
        for page in pages:
            page.left.set_result(None)
        await until(lambda: dispatcher.listeners == 2)

    play(desk, scene)


def test_an_unknown_tenant_is_refused_before_the_stream(desk):
    async def scene(dispatcher, open_):
        page = open_("/v1/tail", tenant="nobody")
        await until(page.task.done)
        assert (page.status, json.loads(page.sent)["code"]) == (404, "unknown_tenant")
        wrong = open_(f"/v1/tail?where={quote('a ~ 1')}")
        await until(wrong.task.done)
        assert (wrong.status, json.loads(wrong.sent)["code"]) == (400, "bad_where")

    play(desk, scene)
