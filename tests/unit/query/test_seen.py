"""`/v1/events/seen`: what came lately and what it carries, never more than a bounded part of the log."""

import pytest

from tallymark.log.protocol import LogUnreachable, Outgoing
from tallymark.query import newest, seen
from tallymark.query.newest import Budget, sampled
from tallymark.testing import MemoryLog


def send(desk, build, events, *, partition=0, received="12:30:00"):
    count, content = build.payload(events, received=received)
    desk.log.append([Outgoing(partition, content, count)])


def view(number, **props):
    return {"event": "view", "id": f"v{number}", "props": props}


def test_names_properties_types_and_examples_of_what_came(desk, build):
    send(desk, build, [view(n, video="AB"[n % 2], ms=n, first=n == 0) for n in range(4)])
    send(desk, build, [{"event": "sale", "id": "s", "value": 9.5, "values": {"tax": 1, "net": 2}}], partition=1)
    told = desk.ask("/v1/events/seen")
    assert (told["minutes"], told["sampled"], told["whole"]) == (5, 5, True)
    views, sale = told["events"]
    assert (views["event"], views["count"], views["value"], views["values"]) == ("view", 4, None, [])
    assert views["last"] == "2026-11-15T12:30:00.000Z"
    assert {each["name"]: each for each in views["props"]} == {
        "video": {"name": "video", "types": ["text"], "share": 1.0, "distinct": 2, "examples": ["A", "B"]},
        "ms": {"name": "ms", "types": ["number"], "share": 1.0, "distinct": 4, "examples": [0, 1, 2, 3]},
        "first": {"name": "first", "types": ["boolean"], "share": 1.0, "distinct": 2, "examples": [True, False]},
    }
    assert (sale["value"], sale["values"]) == ({"share": 1.0, "example": 9.5}, ["net", "tax"])


def test_a_property_of_several_types_has_them_all_and_its_share(desk, build):
    send(desk, build, [view(1, size="big"), view(2, size=3), view(3), view(4)])
    (views,) = desk.ask("/v1/events/seen")["events"]
    assert views["props"] == [
        {"name": "size", "types": ["number", "text"], "share": 0.5, "distinct": 2, "examples": ["big", 3]}
    ]


def test_only_what_is_recent_and_of_the_tenant(desk, build):
    desk.now_ms -= 10 * 60_000
    send(desk, build, [view(1, video="old")])
    desk.now_ms += 10 * 60_000
    desk.store.registry.add_tenant("acme")
    send(desk, build, [*build.of_tenant("acme", view(2, video="theirs")), view(3, video="ours")])
    (ours,) = desk.ask("/v1/events/seen")["events"]
    (theirs,) = desk.ask("/v1/events/seen?tenant=acme")["events"]
    assert ours["props"][0]["examples"] == ["ours"]
    assert theirs["props"][0]["examples"] == ["theirs"]
    assert desk.ask("/v1/events/seen?minutes=11")["sampled"] == 2


def test_nothing_yet_is_an_empty_list_and_an_unknown_tenant_is_refused(desk):
    assert desk.ask("/v1/events/seen") == {"minutes": 5, "sampled": 0, "whole": True, "events": []}
    assert desk.refused("/v1/events/seen?tenant=nobody").code == "unknown_tenant"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("minutes=0", "bad_number"),
        ("minutes=61", "over_limit"),
        ("minutes=x", "bad_number"),
        ("minuets=5", "unknown_parameter"),
        ("minutes=1&minutes=2", "repeated_parameter"),
        ("limit=3", "unknown_parameter"),
    ],
)
def test_wrong_parameters_are_named(desk, query, code):
    assert desk.refused(f"/v1/events/seen?{query}").code == code


def test_what_does_not_decode_is_counted_and_stops_nothing(desk, build):
    desk.log.append([Outgoing(0, b"not a frame", 7)])
    send(desk, build, [view(1)])
    told = desk.ask("/v1/events/seen")
    assert (told["sampled"], told["unreadable"]) == (1, 7)


def test_hostile_names_and_texts_are_bounded(desk, build):
    send(desk, build, [view(n, **{f"p{n}_{each}": "x" * 1000 for each in range(60)}) for n in range(4)])
    send(desk, build, [{"event": f"e{n}", "id": str(n)} for n in range(300)], partition=1)
    told = desk.ask("/v1/events/seen")
    assert (len(told["events"]), told["left_out"]) == (seen.MOST_NAMES, 101)
    assert len(told["events"][0]["props"]) == seen.MOST_PROPS
    assert all(len(text) <= 100 for prop in told["events"][0]["props"] for text in prop["examples"])


def test_a_busy_log_is_looked_at_in_a_few_places(desk, build, monkeypatch):
    monkeypatch.setattr(seen, "MOST_ROWS", 1_000)
    for number in range(100):
        send(desk, build, [view(1000 * number + n, video=number % 7) for n in range(1000)], partition=number % 2)
    read = []
    glance = desk.log.glance

    def counted(*arguments, **limits):
        found = glance(*arguments, **limits)
        read.extend(found)
        return found

    monkeypatch.setattr(desk.log, "glance", counted)
    told = desk.ask("/v1/events/seen")
    assert len(read) <= 20
    assert told["whole"] is False
    assert 800 <= told["sampled"] <= 1_100
    assert told["events"][0]["props"][0]["distinct"] == 7


def test_a_log_that_does_not_answer_is_said_and_asked_again(desk, build):
    def away():
        raise LogUnreachable("no broker")

    opening = [away, lambda: desk.log]
    desk.sources.newest._open_reader = lambda: opening.pop(0)()
    send(desk, build, [view(1)])
    problem = desk.refused("/v1/events/seen")
    assert (problem.status, problem.code) == (503, "log_unreachable")
    assert desk.ask("/v1/events/seen")["sampled"] == 1


def test_places_cover_a_range_without_overlap_newest_first():
    places = list(newest._places({0: (10, 110), 1: (0, 3)}, 8))
    for partition, (start, end) in {0: (10, 110), 1: (0, 3)}.items():
        own = [place[1:] for place in places if place[0] == partition]
        assert own == sorted(own, reverse=True)
        assert sorted(offset for begin, stop in own for offset in range(begin, stop)) == list(range(start, end))


def test_a_budget_holds_but_for_one_record():
    log = MemoryLog(4)
    for number in range(400):
        log.append([Outgoing(number % 4, b"x" * 100, 50)])
    every = dict.fromkeys(range(4), (0, 100))
    sample = sampled(log, every, Budget(events=1_000, size=10**9, places=8))
    assert sample.events <= 1_050
    assert {record.partition for record in sample.records} == {0, 1, 2, 3}
    assert sample.passed == 20_000
    assert not sample.is_whole
    small = sampled(log, every, Budget(events=10**9, size=1_000, places=8))
    assert small.size <= 1_100
    assert sampled(log, every, Budget(events=10**9, size=10**9, places=8)).is_whole
    # One record may be more than all that is wanted.
    assert len(sampled(log, every, Budget(events=30, size=10**9, places=8)).records) == 1
