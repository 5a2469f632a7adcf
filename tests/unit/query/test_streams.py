"""Streams of server-sent events through the application: which there are, their end, and who shares what."""

import asyncio
import json

import pytest

from listening import play, until
from tallymark.query import api, status_feed, streams
from tallymark.query.routes import Request
from tallymark.query.status_feed import StatusFeed
from tallymark.query.streams import Feed, News, Source


def test_the_status_comes_at_once_and_then_again_and_again(desk, monkeypatch):
    async def scene(dispatcher, open_):
        page = open_("/v1/status/live")
        await until(lambda: page.told("status"))
        assert page.headers["content-type"].startswith("text/event-stream")
        assert page.told("status")[0] == desk.ask("/v1/status")
        await until(lambda: len(page.told("status")) >= 2)

    monkeypatch.setattr(status_feed, "KEPT_S", 0.0)
    monkeypatch.setattr(status_feed, "INTERVAL_S", 0.005)
    desk.routes = api.routes(desk.sources, desk.rates)
    play(desk, scene)


def test_the_status_is_computed_once_for_all_who_listen(desk):
    made, now_s = [], [0.0]

    def status():
        made.append(1)
        return {"healthy": True}

    feed = StatusFeed(status, clock=lambda: now_s[0])
    openings = [feed.opening(Request("GET", "/v1/status/live")) for _ in range(100)]
    assert len(made) == 1
    assert {opening.hello for opening in openings} == {b'event: status\ndata: {"healthy":true}\n\n'}
    (source,) = {opening.source for opening in openings}
    now_s[0] += 1
    assert source.ask([()])[()].text == openings[0].hello
    assert len(made) == 2


def test_service_stop_ends_every_kind_of_stream_and_opens_no_more(desk):
    async def scene(dispatcher, open_):
        targets = ("/v1/status/live", "/v1/meters/views/live", "/v1/tail", "/v1/tail?event=view")
        pages = [open_(target) for target in targets for _ in range(5)]
        await until(lambda: all(page.sent for page in pages))
        assert dispatcher.listeners == len(pages)
        dispatcher.end_streams()
        await until(lambda: all(page.task.done() for page in pages))
        assert all(page.told("end")[-1]["reason"] == "stopping" for page in pages)
        assert dispatcher.listeners == 0
        late = open_("/v1/status/live")
        await until(late.task.done)
        assert (late.status, json.loads(late.sent)["code"]) == (503, "stopping")

    play(desk, scene)


@pytest.mark.parametrize("target", ["/v1/status/live?x=1", "/v1/meters/views/live?vide=1", "/v1/status/live?limit=2"])
def test_wrong_parameters_are_refused_before_a_stream_begins(desk, target):
    async def scene(dispatcher, open_):
        page = open_(target)
        await until(page.task.done)
        assert (page.status, json.loads(page.sent)["code"]) == (400, "unknown_parameter")
        assert dispatcher.listeners == 0

    play(desk, scene)


def test_a_listener_that_never_reads_is_bounded_and_ends_by_itself():
    async def run():
        asked = []

        def ask(topics):
            asked.append(len(topics))
            return {topic: News(b"x" * 1000) for topic in topics}

        async def in_thread(work):
            return work()

        feed = Feed(Source("test", ask, interval_s=0), in_thread)
        with feed.listen("a") as reads, feed.listen("a") as never:
            while not never.ended:
                await asyncio.wait_for(reads.waiting.get(), 5)
            assert never.waiting.qsize() <= streams.MOST_WAITING + 1
            assert not reads.ended
        assert set(asked) == {1}
        await until(lambda: not feed.following)

    asyncio.run(run())


def test_what_fails_once_is_asked_again():
    async def run():
        tries = []

        def ask(topics):
            tries.append(1)
            if len(tries) < 3:
                raise OSError("away")
            return {topic: News(b"back") for topic in topics}

        async def in_thread(work):
            return work()

        feed = Feed(Source("test", ask, interval_s=0), in_thread)
        with feed.listen("a") as listener:
            assert await asyncio.wait_for(listener.waiting.get(), 5) == b"back"
        await until(lambda: not feed.following)

    asyncio.run(run())
