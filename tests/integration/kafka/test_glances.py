"""`seen` and `tail` on a log on Kafka, which keeps no count of events."""

import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from asking import Desk
from tallymark.log import Outgoing
from tallymark.query import seen, tail
from tallymark.query.newest import Budget, LogGlances
from tallymark.query.routes import Request
from tallymark.query.tail import Tail, Wanted


@pytest.fixture
def sources(stage, tmp_path: Path):
    stage.writer()
    made = Desk(tmp_path).sources
    return replace(made, newest=LogGlances(stage.reader), clock_ms=lambda: time.time_ns() // 1_000_000)


def test_the_newest_events_are_seen_and_followed(stage, sources, build, monkeypatch):
    log = stage.writer()

    def send(first, count, *, partition):
        frames = [
            build.payload([build.event(f"{number}-{n}", video="A", at=number) for n in range(10)])
            for number in range(first, first + count)
        ]
        log.append([Outgoing(partition, content, events) for events, content in frames])

    follower, wanted = Tail(sources), Wanted("main", rate=200)
    follower.opening(Request("GET", "/v1/tail"))

    def look():
        found = follower.news([wanted])
        return msgspec.json.decode(found[wanted].text.partition(b"data: ")[2]) if found else None

    assert look() is None
    send(0, 2, partition=0)
    send(2, 1, partition=1)
    told = look()
    assert (told["passed"], told["matched"], told["shown"]) == (30, 30, 30)
    assert look() is None
    stage.produce(b"of another program", partition=1)
    assert look() is None

    monkeypatch.setattr(tail, "BUDGET", Budget(events=100, size=10**6, places=4))
    send(3, 200, partition=0)
    send(203, 200, partition=1)
    told = look()
    assert (told["passed"], told["sampled"], told["shown"]) == (4_000, True, 100)
    assert len({event["props"]["at"] // 100 for event in told["events"]}) == 4
    assert look() is None

    # Everything was appended in the last minutes, whatever time the events say they are of.
    monkeypatch.setattr(seen, "BUDGET", Budget(events=10**6, size=10**7, places=4))
    (views,) = seen.seen(sources, "main", [])["events"]
    assert (views["count"], {each["name"] for each in views["props"]}) == (4_030, {"video", "at"})
