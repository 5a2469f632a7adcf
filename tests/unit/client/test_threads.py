"""The real thing: threads, HTTP, forks, the event loop."""

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
from collections import Counter

import pytest

from tallymark import AsyncClient, Client
from tallymark.client.compression import SMALLEST_BYTES
from tallymark.client.transport import Answer, NoAnswer
from tallymark.testing import ScriptedTransport, until
from tallymark.testing.transport import accepted, decoded

LAW = "called + adopted == delivered + refused + dropped + queued + in_flight + spilled"


def lawful(client) -> bool:
    stats = client.stats()
    return eval(LAW, {name: getattr(stats, name) for name in stats.__slots__})


def test_events_of_many_threads_arrive_once_over_http(fake_service, monkeypatch):
    monkeypatch.setattr(fake_service, "_take", taking(fake_service, fake_service._take))
    fake_service.script = ["503", "half", "silent", "500"]
    with Client(batch_events=50, compress="gzip", min_timeout_s=5.0, connect_timeout_s=5.0) as client:
        threads = [threading.Thread(target=lambda: [client.count("view") for _ in range(250)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.flush(60)
        stats = client.stats()
    assert (stats.called, stats.delivered, stats.dropped, stats.refused) == (1_000, 1_000, 0, 0)
    assert len(fake_service.events) == 1_000
    plain = [len(body) for *_, headers, body in fake_service.requests if "content-encoding" not in headers]
    assert max(plain, default=0) < SMALLEST_BYTES
    assert len(fake_service.requests) - len(plain) >= 15, "batches of 50 are larger than what goes uncompressed"


def taking(service, take):
    def take_compressed(headers, body, fate):
        return take(headers, gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body, fate)

    return take_compressed


@pytest.mark.parametrize(("compress", "encoding"), [("auto", "zstd"), ("gzip", "gzip"), ("none", None)])
def test_bodies_are_compressed_as_asked(compress, encoding):
    sent = []

    class Taker:
        def exchange(self, request, *, timeout_s=None):
            sent.append(request.headers.get("content-encoding"))
            return accepted(100)

        def close(self):
            pass

    client = Client(connect=lambda url: Taker(), compress=compress, batch_events=100)
    for _ in range(100):
        client.count("view")
    assert client.flush(10)
    client.close()
    assert sent == [encoding]


def test_a_blocked_call_goes_on_when_there_is_room_and_drops_when_there_is_none_in_time():
    gate, dropped = threading.Event(), []

    class Gated(ScriptedTransport):
        def exchange(self, request, *, timeout_s=None):
            assert gate.wait(60)
            return super().exchange(request)

    transport = Gated()
    client = Client(
        connect=lambda url: transport,
        compress="none",
        batch_events=1,
        max_events=1,
        block_s=0.01,
        on_dropped=dropped.extend,
    )
    client.count("first")
    client.count("second")
    assert [event.reason for event in dropped] == ["full"]
    threading.Timer(0.0, gate.set).start()
    until(lambda: client.count("third") in transport.taken or client.stats().delivered >= 2, "a later one goes")
    assert lawful(client)
    client.close()


def test_a_hanging_address_does_not_hold_up_the_other_one():
    good, stop = ScriptedTransport(), threading.Event()

    class Hanging:
        def exchange(self, request, *, timeout_s=None):
            stop.wait(60)
            raise NoAnswer("hangs")

        def close(self):
            pass

    client = Client(
        ["http://bad", "http://good"],
        connect=lambda url: good if url == "http://good" else Hanging(),
        compress="none",
        batch_events=1,
        in_flight=4,
    )
    for _ in range(200):
        client.count("view")
    until(lambda: client.stats().delivered >= 199, "all but the one that hangs are delivered")
    stop.set()
    assert client.flush(30)
    client.close()


def test_a_forked_child_starts_empty_and_both_deliver_their_own(tmp_path, fake_service):
    client = Client(
        compress="none", linger_s=60, when_full="spill", spill_folder=tmp_path, connect_timeout_s=5, min_timeout_s=5
    )
    mine = client.count("parent")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        stats = client.stats()
        theirs = client.count("child")
        done = client.flush(30)
        client.close()
        os.write(write, json.dumps([stats.called, stats.queued, done, theirs]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        called, queued, done, theirs = json.loads(stream.read())
    os.waitpid(child, 0)
    assert (called, queued, done) == (0, 0, True)
    assert theirs.partition("-")[0] != mine.partition("-")[0]
    assert client.flush(30)
    client.close()
    assert Counter(name for name, _ in fake_service.events) == {"parent": 1, "child": 1}


def test_what_was_counted_before_the_end_of_a_program_is_sent(fake_service):
    script = "import tallymark; tallymark.Client(compress='none', connect_timeout_s=5, min_timeout_s=5).count('last')"
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True, env={**os.environ})
    assert [name for name, _ in fake_service.events] == ["last"]


def test_the_async_client_delivers_and_does_not_block_the_loop_when_full():
    gate, dropped = threading.Event(), []

    class Gated(ScriptedTransport):
        def exchange(self, request, *, timeout_s=None):
            assert gate.wait(60)
            return super().exchange(request)

    transport = Gated()

    async def run():
        async with AsyncClient(
            connect=lambda url: transport, compress="none", max_events=1, block_s=60.0, on_dropped=dropped.extend
        ) as client:
            await client.count("first", video="A")
            second = asyncio.create_task(client.event("second", value=1.5, props={"value": "B"}))
            await asyncio.sleep(0)
            assert not second.done(), "it waits for room, and the loop goes on"
            gate.set()
            await second
            assert await client.flush(30)
            return client.stats()

    stats = asyncio.run(run())
    assert (stats.called, stats.delivered, dropped) == (2, 2, [])
    assert [event["event"] for event in transport.taken.values()] == ["first", "second"]


def test_the_law_holds_whenever_one_looks():
    answers = iter(range(10**9))

    class Moody(ScriptedTransport):
        def exchange(self, request, *, timeout_s=None):
            if next(answers) % 3 == 0:
                return Answer(429, {}, b"")
            return accepted(len(decoded(request)))

    transport = Moody()
    client = Client(connect=lambda url: transport, compress="none", batch_events=7, max_events=200, when_full="drop")
    threads = [threading.Thread(target=lambda: [client.count("view") for _ in range(3_000)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert lawful(client)
    assert client.flush(60)
    assert lawful(client)
    client.close()
    assert client.stats().called == 9_000


def test_importing_the_client_brings_no_asyncio_ssl_or_http():
    script = (
        "import sys, tallymark; tallymark.Client; print(sorted({'asyncio', 'ssl', 'http.client'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert said.stdout.strip() == "[]"
