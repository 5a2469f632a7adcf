"""What should not happen, and must not cost an event or a thread when it does."""

import asyncio
import errno
import logging
import math
import multiprocessing
import shutil
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tallymark import AsyncClient, Client
from tallymark.client import spill as spills
from tallymark.client.spill import Spill
from tallymark.client.transport import Answer, HttpTransport, NoAnswer, NotConnected, Request, TimedOut
from tallymark.testing import DrivenClient, ManualClock, ScriptedTransport, until
from tallymark.testing.transport import accepted

AWAY = [NotConnected("away")] * 1_000


def spilling(transport, folder, clock=None, **options) -> DrivenClient:
    options = {"batch_events": 2, "max_events": 4, "when_full": "spill", "spill_folder": folder, **options}
    return DrivenClient(transport, clock or ManualClock(), **options)


def count(client, letters: str) -> None:
    for letter in letters:
        client.count("view", video=letter)


def left_by_a_process(folder: Path, letters: str = "AB") -> None:
    client = spilling(ScriptedTransport(AWAY), folder)
    count(client, letters)
    client.close(timeout=0)


# The spill folder


def test_files_of_others_in_the_spill_folder_are_left_alone(tmp_path):
    (tmp_path / "package.lock").write_text("theirs")
    (tmp_path / "data.lock").write_text("theirs")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "draft.tmp").write_text("theirs")
    (tmp_path / "folder.lock").mkdir()
    before = sorted(tmp_path.rglob("*"))
    spilling(ScriptedTransport(), tmp_path).close()
    assert sorted(tmp_path.rglob("*")) == before


def test_what_looks_like_ours_and_cannot_be_is_skipped(tmp_path):
    (tmp_path / f"1-{'a' * 16}.lock").mkdir()
    (tmp_path / f"2-{'b' * 16}.lock").write_text("")
    (tmp_path / f"2-{'b' * 16}").write_text("no folder")
    left_by_a_process(tmp_path)
    client = spilling(ScriptedTransport(), tmp_path)
    assert client.stats().adopted == 2
    client.settle()
    client.close()
    assert client.stats().delivered == 2


@pytest.mark.parametrize(("owner", "name"), [(Path, "read_bytes"), (Path, "rename"), (spills, "_sync_folder")])
def test_a_file_that_cannot_be_read_for_a_moment_is_sent_later(tmp_path, monkeypatch, owner, name):
    left_by_a_process(tmp_path)
    transport, clock = ScriptedTransport(), ManualClock()
    client = spilling(transport, tmp_path, clock)

    def fail(*args):
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fail)
        client.step()
        stats = client.stats()
        assert (stats.spilled, stats.dropped, stats.in_flight) == (2, 0, 0)
        assert client.step() >= clock.now() + 1.0, "after a pause"
    client.settle()
    assert client.stats().delivered == 2
    assert not any("resent" in event for event in transport.taken.values()), "it was never sent before"
    client.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_gone_is_reported(tmp_path):
    left_by_a_process(tmp_path)
    dropped = []
    client = spilling(ScriptedTransport(), tmp_path, on_dropped=dropped.extend)
    next(tmp_path.rglob("*.batch")).unlink()
    client.settle()
    assert [event.reason for event in dropped] == ["spill_failed"] * 2
    client.close()


@pytest.mark.parametrize("whole", [False, True])
def test_a_folder_that_is_removed_is_made_again(tmp_path, whole):
    spill = Spill(tmp_path / "spill", max_bytes=10_000, instance="a" * 16)
    first = spill.write(1, [b"{}"], tried_ms=0)
    shutil.rmtree(tmp_path / "spill" if whole else first.folder)
    second = spill.write(2, [b"{}"], tried_ms=0)
    assert spill.load(second) == [b"{}"]
    assert Spill(tmp_path / "spill", max_bytes=10_000, instance="b" * 16).adopted == [], "its lock is held again"
    spill.close()
    assert len(Spill(tmp_path / "spill", max_bytes=10_000, instance="b" * 16).adopted) == 1


@pytest.mark.parametrize("where", ["_write_durably", "_sync_folder"])
def test_an_interrupted_write_ends_as_a_drop_and_leaves_no_file(tmp_path, monkeypatch, where):
    def interrupt(*args):
        raise KeyboardInterrupt

    client = spilling(ScriptedTransport(AWAY), tmp_path)
    count(client, "ABCD")
    with monkeypatch.context() as patched:
        patched.setattr(spills, where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            count(client, "E")
    stats = client.stats()
    assert (stats.called, stats.dropped, stats.queued) == (4, 2, 2)
    count(client, "FG")
    assert not list(tmp_path.rglob("*.batch"))
    with monkeypatch.context() as patched:
        patched.setattr(spills, where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.close(timeout=0)
    assert (client.stats().dropped, client.stats().queued) == (6, 0), "those after it too"


# The sending threads


class Odd:
    """A transport that does something odd once, and then is fine."""

    def __init__(self, act) -> None:
        self._acts = [act]

    def exchange(self, request, *, timeout_s=None):
        return self._acts.pop()() if self._acts else accepted(1)

    def close(self):
        raise RuntimeError("cannot even close")


def exits():
    raise SystemExit(3)


@pytest.mark.parametrize(
    "act",
    [
        lambda: None,
        exits,
        lambda: Answer(202, {}, b"[" * 100_000),
        lambda: Answer(503, {}, b'{"accepted":' + b"[" * 100_000),
        lambda: Answer("202", None, None),
    ],
)
def test_whatever_a_transport_does_the_event_is_sent_again(act, caplog):
    transport = Odd(act)
    with Client(connect=lambda url: transport, in_flight=1, batch_events=1) as client:
        client.count("view")
        assert client.flush(20)
        assert client.stats().delivered == 1
    assert client.stats().in_flight == 0


def test_a_callback_that_exits_does_not_end_the_thread():
    transport = ScriptedTransport([401])
    with Client(connect=lambda url: transport, in_flight=1, batch_events=1, on_refused=lambda _: exits()) as client:
        client.count("refused")
        client.count("taken")
        assert client.flush(20)
        until(lambda: client.stats().delivered == 1, "the thread goes on")


def test_a_callback_may_close_the_client():
    transport, done = ScriptedTransport([401]), threading.Event()
    client = Client(
        connect=lambda url: transport, in_flight=2, batch_events=1, on_refused=lambda _: (client.close(), done.set())
    )
    client.count("refused")
    assert done.wait(20)
    client.close()


def test_threads_that_cannot_be_started_are_started_with_a_later_event(monkeypatch):
    transport = ScriptedTransport()
    client = Client(connect=lambda url: transport)

    def no_more(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        client.count("first")
    client.count("second")
    assert client.flush(20)
    client.close()
    assert client.stats().delivered == 2


def test_a_client_whose_threads_never_started_can_be_closed(monkeypatch):
    def no_more(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    client = Client(connect=lambda url: ScriptedTransport(), on_dropped=lambda _: None)
    client.count("first")
    client.close(timeout=0)
    assert client.stats().dropped == 1


def test_the_second_close_waits_for_the_first(tmp_path, monkeypatch):
    begun, gate, write = threading.Event(), threading.Event(), spills._write_durably

    def slow(*args):
        begun.set()
        assert gate.wait(20)
        write(*args)

    monkeypatch.setattr(spills, "_write_durably", slow)
    client = spilling(ScriptedTransport(AWAY), tmp_path)
    count(client, "AB")
    first = threading.Thread(target=client._sender_threads.close, args=(0,))
    second = threading.Thread(target=client._sender_threads.close, args=(20,))
    first.start()
    assert begun.wait(20)
    second.start()
    second.join(0.05)
    assert second.is_alive()
    gate.set()
    first.join(20)
    second.join(20)
    assert not second.is_alive()
    client.close()


@pytest.mark.parametrize("timeout", [math.inf, 1e300])
def test_a_flush_may_have_all_the_time_there_is(timeout):
    transport = ScriptedTransport()
    with Client(connect=lambda url: transport) as client:
        client.count("view")
        assert client.flush(timeout)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"linger_s": math.inf}, ValueError),
        ({"block_s": math.nan}, ValueError),
        ({"max_timeout_s": 1e9}, ValueError),
        ({"linger_s": "1"}, TypeError),
        ({"max_events": math.inf}, TypeError),
        ({"batch_events": 1.5}, TypeError),
        ({"in_flight": 1_000_000}, ValueError),
        ({"key": "secret\n"}, ValueError),
        ({"key": "ключ"}, ValueError),
    ],
)
def test_what_cannot_work_is_refused_at_once(option, error):
    with pytest.raises(error, match=next(iter(option))) as caught:
        Client("http://127.0.0.1:9", **option)
    assert "secret" not in str(caught.value)


def test_why_nothing_is_delivered_is_in_the_log_once_a_minute(caplog):
    clock = ManualClock()
    client = DrivenClient(ScriptedTransport([NoAnswer("the dog ate it")] * 50), clock)
    count(client, "A")
    with caplog.at_level(logging.WARNING, "tallymark.client"):
        begun = clock.now()
        while clock.now() < begun + 50:
            client.settle(steps=1)
        assert [record.message.count("the dog ate it") for record in caplog.records] == [1]
        while clock.now() < begun + 100:
            client.settle(steps=1)
        assert len(caplog.records) == 2
    client.close(timeout=0)


# asyncio


@pytest.mark.parametrize("policy", ["drop", "block", "spill"])
def test_a_full_async_client_uses_no_thread_of_the_application(policy, tmp_path, monkeypatch):
    gate = threading.Event()

    class Gated(ScriptedTransport):
        def exchange(self, request, *, timeout_s=None):
            assert gate.wait(20)
            return super().exchange(request)

    transport = Gated()
    options = {"spill_folder": tmp_path} if policy == "spill" else {}

    async def run():
        client = AsyncClient(
            connect=lambda url: transport, max_events=1, batch_events=1, when_full=policy, on_dropped=len, **options
        )
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "to_thread", None)
            patched.setattr(asyncio.get_running_loop(), "_default_executor", None)
            await asyncio.gather(*(client.count("view") for _ in range(50)))
            assert asyncio.get_running_loop()._default_executor is None
        gate.set()
        await client.close()
        return client.stats()

    stats = asyncio.run(run())
    assert stats.called == 50 == stats.delivered + stats.dropped + stats.spilled
    assert stats.dropped == 0 if policy == "spill" else stats.dropped >= 1


# HTTP


def served(pieces, *, pause_s: float = 0.0):
    """The address of a server that sends these pieces to its first client."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = server.accept()
        with server, connection:
            connection.recv(65536)
            try:
                for piece in pieces:
                    connection.sendall(piece)
                    threading.Event().wait(pause_s)
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"])
def test_an_answer_that_drips_is_over_with_its_time(head):
    drip = b"X-A: 1\r\n" if b"length" not in head and head else b"x"
    transport = HttpTransport(served([head, *[drip] * 80], pause_s=0.02))
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        transport.exchange(Request("POST", "/"), timeout_s=0.1)
    assert time.monotonic() - begun < 1.0
    transport.close()


@pytest.mark.parametrize("head", [b"content-length: 5000\r\n", b"connection: close\r\n"])
def test_an_answer_is_as_large_as_is_asked_for_at_most(head):
    answer = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + b"x" * 5000
    for limit, fits in ((None, True), (5000, True), (4999, False)):
        transport = HttpTransport(served([answer]), timeout_s=20)
        request = Request("POST", "/", max_answer_bytes=limit)
        if fits:
            assert len(transport.exchange(request).body) == 5000
        else:
            with pytest.raises(NoAnswer, match="4,999"):
                transport.exchange(request)
        transport.close()


@pytest.mark.parametrize(("url", "port"), [("http://[::1]", 80), ("https://[::1]", 443), ("http://[::1]:8080", 8080)])
def test_an_ipv6_address_needs_no_port(url, port):
    connection = HttpTransport(url)._connection
    assert (connection.host, connection.port) == ("::1", port)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("7", 7.0), ("Mon, 16 Nov 2026 14:00:30 GMT", 30.0), ("Mon, 16 Nov 2026 13:00:00 GMT", 0.0), ("soon", None)],
)
def test_retry_after_is_seconds_or_a_date(told, seconds):
    headers = {"retry-after": told, "date": "Mon, 16 Nov 2026 14:00:00 GMT"}
    assert Answer(503, headers, b"").retry_after_s == seconds


# The fakes


def test_the_scripted_transport_reads_what_a_client_sends_by_default():
    transport = ScriptedTransport()
    with Client(connect=lambda url: transport) as client:
        for _ in range(100):
            client.count("view")
    assert len(transport.taken) == 100
    assert "content-encoding" in transport.requests[0].headers


@pytest.mark.parametrize(("script", "delivered"), [([503], 1), (AWAY, 0)])
def test_a_driven_client_ends_in_its_own_time(script, delivered):
    clock = ManualClock()
    begun, began = time.monotonic(), clock.now()
    with DrivenClient(ScriptedTransport(script), clock, on_dropped=len) as client:
        count(client, "A")
    assert client.stats().delivered == delivered
    assert time.monotonic() - begun < 2.0
    assert clock.now() <= began + 5.0


# Processes


def test_workers_of_multiprocessing_send_what_they_counted(fake_service):
    options = {"compress": "none", "linger_s": 60, "connect_timeout_s": 5, "min_timeout_s": 5}
    run_in_worker(lambda: Client(**options).count("own"))
    client = Client(**options)
    client.count("parent")
    run_in_worker(lambda: client.count("inherited"))
    client.close()
    assert Counter(name for name, _ in fake_service.events) == {"parent": 1, "inherited": 1, "own": 1}


def run_in_worker(work) -> None:
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(30)
    assert worker.exitcode == 0
