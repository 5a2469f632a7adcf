"""`live`: one follower for all who listen, nothing missed, nothing unbounded."""

import asyncio
import json

import pytest

from tallymark.http import Problem
from tallymark.query import live, streams

NOON = 1_794_744_000


class Transport:
    """Keeps what is sent; `blocked` holds senders up until it is set free."""

    def __init__(self):
        self.sent = b""
        self.free = asyncio.Event()
        self.free.set()

    async def send_bytes(self, data):
        await self.free.wait()
        self.sent += data

    def events(self, kind):
        blocks = [
            dict(line.split(": ", 1) for line in block.splitlines())
            for block in self.sent.decode().split("\n\n")
            if block
        ]
        return [
            (int(block["id"]) if "id" in block else None, json.loads(block["data"]))
            for block in blocks
            if block.get("event") == kind
        ]


async def in_thread(work):
    return await asyncio.to_thread(work)


async def until(condition, seconds=5.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


class Listening:
    """A follower on the fake store, and as many streams as a test opens."""

    def __init__(self, store):
        self.store = store
        source = streams.Source("live", lambda groups: live.news(store, groups), interval_s=0.005)
        self.follower = streams.Feed(source, in_thread)
        self.tasks = []

    async def open(self, name="views", where=None, since=None, transport=None, tenant="main"):
        transport = transport or Transport()
        gone = asyncio.get_running_loop().create_future()

        async def stream():
            since_ = self.store.snapshots.journal_end() if since is None else since
            picked = tuple((key, tuple(values)) for key, values in (where or {}).items())
            wanted = live.Wanted(tenant, name, picked, since_)
            with self.follower.listen(wanted) as listener:
                transport.listener = listener
                await streams.stream(transport, listener, hello=live.hello(wanted, 1), gone=gone)

        transport.task, transport.gone = asyncio.create_task(stream()), gone
        self.tasks.append(transport.task)
        await until(lambda: hasattr(transport, "listener") or transport.task.done())
        return transport

    async def close(self):
        self.follower.close()
        await asyncio.wait_for(asyncio.gather(*self.tasks), 5)


def play(desk, scene):
    async def run():
        listening = Listening(desk.store)
        try:
            await scene(listening)
        finally:
            await listening.close()

    asyncio.run(run())


def test_a_listener_gets_what_each_batch_adds(desk):
    async def scene(listening):
        page = await listening.open()
        desk.store.count("views", (("A", "KR"), NOON, [None] * 3), (("B", "DE"), NOON, [None]))
        desk.store.count("revenue", ((), NOON, [1.0]))
        await until(lambda: page.events("change"))
        ((_, told),) = page.events("change")
        assert told["meter"] == "views"
        assert told["changes"] == [
            {"labels": {"video": "A", "country": "KR"}, "time": "2026-11-15T12:00:00Z", "count": 3},
            {"labels": {"video": "B", "country": "DE"}, "time": "2026-11-15T12:00:00Z", "count": 1},
        ]

    play(desk, scene)


def test_filters_and_meters_without_labels(desk):
    async def scene(listening):
        korea = await listening.open(where={"country": ["KR"]})
        money = await listening.open("revenue")
        desk.store.count("views", (("A", "KR"), NOON, [None]), (("A", "DE"), NOON, [None] * 9))
        desk.store.count("revenue", ((), NOON, [0.1, 0.2]))
        await until(lambda: korea.events("change") and money.events("change"))
        assert [change["count"] for _, told in korea.events("change") for change in told["changes"]] == [1]
        assert b'"count":2,"sum":0.30' in money.sent
        assert money.events("change")[0][1]["decimals"] == 2

    play(desk, scene)


def test_the_journal_is_read_once_for_all_and_only_while_somebody_listens(desk):
    async def scene(listening):
        assert not listening.follower.following
        pages = [await listening.open() for _ in range(20)]
        reads = desk.store.journal_reads
        desk.store.count("views", (("A", "KR"), NOON, [None]))
        await until(lambda: all(page.events("change") for page in pages))
        assert desk.store.journal_reads - reads < 20
        for page in pages:
            page.gone.set_result(None)
        await until(lambda: not listening.follower.following)
        assert listening.follower.listeners == 0
        again = await listening.open()
        desk.store.count("views", (("A", "KR"), NOON, [None] * 2))
        await until(lambda: again.events("change"))

    play(desk, scene)


def test_whoever_comes_back_misses_nothing(desk):
    async def scene(listening):
        first = await listening.open()
        desk.store.count("views", (("A", "KR"), NOON, [None]))
        await until(lambda: first.events("change"))
        ((seen, _),) = first.events("change")
        desk.store.count("views", (("A", "KR"), NOON, [None] * 2))
        desk.store.count("views", (("A", "KR"), NOON, [None] * 4))
        back = await listening.open(since=seen)
        await until(lambda: back.events("change"))
        assert sum(change["count"] for _, told in back.events("change") for change in told["changes"]) == 6
        assert not any("gap" in told for _, told in back.events("change"))

    play(desk, scene)


def test_one_who_comes_back_repeats_nothing_to_the_others(desk):
    async def scene(listening):
        desk.store.count("views", (("A", "KR"), NOON, [None]))
        current = await listening.open()
        back = await listening.open(since=0)
        desk.store.count("views", (("B", "KR"), NOON, [None]))
        await until(lambda: current.events("change") and b'"B"' in back.sent)
        assert b'"A"' in back.sent
        assert b'"A"' not in current.sent

    play(desk, scene)


def test_a_gap_is_said(desk):
    async def scene(listening):
        for _ in range(3):
            desk.store.count("views", (("A", "KR"), NOON, [None]))
        del desk.store.journal[:2]  # folded and dropped
        back = await listening.open(since=1)
        await until(lambda: back.events("change"))
        assert back.events("change")[0][1]["gap"] is True

    play(desk, scene)


def test_a_slow_listener_is_dropped_with_a_word_and_holds_nobody_up(desk):
    async def scene(listening):
        slow, quick = Transport(), await listening.open()
        slow.free.clear()
        await listening.open(transport=slow)
        for number in range(streams.MOST_WAITING + 5):
            desk.store.count("views", (("A", "KR"), NOON, [None]))
            await until(lambda number=number: len(quick.events("change")) > number)
        assert slow.listener.ended
        assert slow.listener.waiting.qsize() <= streams.MOST_WAITING + 1
        slow.free.set()
        await until(slow.task.done)
        assert slow.events("end")[-1][1]["reason"] == "slow"
        assert len(quick.events("change")) == streams.MOST_WAITING + 5

    play(desk, scene)


def test_a_stream_ends_after_its_share_of_memory(desk, monkeypatch):
    monkeypatch.setattr(streams, "MOST_STREAM_BYTES", 1000)

    async def scene(listening):
        page = await listening.open()
        for _ in range(20):
            before = len(page.sent)
            desk.store.count("views", (("A", "KR"), NOON, [None]))
            await until(lambda before=before: len(page.sent) > before or page.task.done())
        await until(page.task.done)
        assert page.events("end")[-1][1]["reason"] == "length"
        assert len(page.sent) < 2000

    play(desk, scene)


def test_quiet_streams_are_kept_open(desk, monkeypatch):
    monkeypatch.setattr(streams, "KEEP_ALIVE_S", 0.01)

    async def scene(listening):
        page = await listening.open()
        await until(lambda: page.sent.count(b": still here\n\n") >= 2)
        assert page.events("end") == []

    play(desk, scene)


def test_a_deleted_meter_ends_its_streams(desk):
    async def scene(listening):
        page = await listening.open()
        desk.store.registry.delete_meter("main", "views", now_ms=0)
        desk.store.count("revenue", ((), NOON, [1.0]))
        await until(page.task.done)
        assert page.events("end")[-1][1]["reason"] == "deleted"

    play(desk, scene)


def test_many_changes_are_cut_and_said(desk, monkeypatch):
    monkeypatch.setattr(live, "MOST_CHANGES", 3)

    async def scene(listening):
        page = await listening.open()
        desk.store.count("views", *((("A", str(number)), NOON, [None] * (number + 1)) for number in range(5)))
        await until(lambda: page.events("change"))
        ((_, told),) = page.events("change")
        assert [change["count"] for change in told["changes"]] == [5, 4, 3]
        assert told["left_out"] == 2

    play(desk, scene)


def test_too_many_listeners_are_refused(desk, monkeypatch):
    monkeypatch.setattr(streams, "MOST_LISTENERS", 1)

    async def scene(listening):
        await listening.open()
        wanted = live.Wanted("main", "views", (), 0)
        with pytest.raises(Problem, match="at most 1"), listening.follower.listen(wanted):
            pass

    play(desk, scene)


def test_a_store_that_is_away_for_a_moment_loses_nothing(desk):
    async def scene(listening):
        real, calls = desk.store.snapshots.journal_since, []

        def failing(sequence):
            calls.append(sequence)
            if len(calls) < 4:
                raise OSError("database is locked")
            return real(sequence)

        desk.store.journal_since = failing
        page = await listening.open()
        desk.store.count("views", (("A", "KR"), NOON, [None] * 7))
        await until(lambda: page.events("change"))
        assert page.events("change")[0][1]["changes"][0]["count"] == 7

    play(desk, scene)
