"""Changes as they are applied, over connections that come and go."""

import json
import threading
import time

import pytest

from scripted_server import says, streams
from tallymark import QuestionRefused, Reader, Unanswered

HELLO = b'retry: 1\n\nid: 7\nevent: start\ndata: {"meter": "views", "version": 1}\n\n'


def change(number: int, *, count: int = 1, **more: object) -> bytes:
    changes = [{"labels": {"video": "A"}, "time": "2026-11-15T12:00:00Z", "count": count}]
    data = json.dumps({"meter": "views", "version": 1, "changes": changes, **more})
    return f"id: {number}\nevent: change\ndata: {data}\n\n".encode()


@pytest.fixture
def reader(server):
    with Reader(server.url, timeout_s=5) as reader:
        yield reader


def test_changes_come_one_batch_after_the_other(server, reader):
    server.answers(streams(HELLO, b": still here\n\n", change(8), change(9, count=2, gap=True, left_out=3)))
    with reader.live("views", video="A") as live:
        first, second = next(live), next(live)
    assert (server.asked[0].path, server.asked[0].pairs) == ("/v1/meters/views/live", [("video", "A")])
    assert server.asked[0].headers["accept"] == "text/event-stream"
    assert [(each.labels, each["count"]) for each in first] == [({"video": "A"}, 1)]
    assert (first.id, first.gap, second.gap, second.left_out) == ("8", False, True, 3)
    assert second.rows()[0]["count"] == 2


def test_a_message_may_come_in_pieces(server, reader):
    whole = HELLO + change(8)
    server.answers(streams(*(whole[place : place + 7] for place in range(0, len(whole), 7))))
    with reader.live("views") as live:
        assert next(live).id == "8"


def test_a_lost_connection_goes_on_after_the_last_change(server, reader):
    # The second message is cut off, so it counts for nothing and comes again.
    server.answers(
        streams(HELLO, change(8), change(9)[:-20]), streams(HELLO.replace(b"7", b"8"), change(9), change(10))
    )
    with reader.live("views") as live:
        assert [next(live).id for _ in range(3)] == ["8", "9", "10"]
    assert [asked.headers.get("last-event-id") for asked in server.asked[:2]] == [None, "8"]


def test_even_before_the_first_change_nothing_is_missed(server, reader):
    server.answers(streams(HELLO), streams(HELLO, change(8)))
    with reader.live("views") as live:
        assert next(live).id == "8"
    assert server.asked[1].headers["last-event-id"] == "7"


def test_a_server_that_is_away_for_a_moment_is_waited_for(server, reader):
    busy = says({"detail": "stopping"}, 503)
    server.answers(streams(HELLO), busy, busy, streams(HELLO, change(8)))
    with reader.live("views") as live:
        assert next(live).id == "8"
    assert len(server.asked) == 4


def test_a_meter_that_was_deleted_ends_it_with_the_reason(server, reader):
    end = b'event: end\ndata: {"reason": "deleted", "detail": "the meter views was deleted"}\n\n'
    server.answers(streams(HELLO, end), says({"code": "unknown_meter", "detail": "no meter views"}, 404))
    with reader.live("views") as live, pytest.raises(QuestionRefused, match="no meter views"):
        next(live)


def test_it_goes_on_from_where_another_program_stopped(server, reader):
    server.answers(streams(HELLO, change(8)))
    with reader.live("views", since="41"):
        assert server.asked[0].headers["last-event-id"] == "41"


def test_a_first_connection_that_fails_is_an_error_at_once(server, reader):
    server.answers(says({"code": "too_many_listeners", "detail": "256 listeners"}, 503))
    with pytest.raises(Unanswered, match="256 listeners"):
        reader.live("views")
    server.answers(says({"value": {}}))
    with pytest.raises(Unanswered, match="really a Tallymark server"):
        reader.live("views")
    with Reader("http://127.0.0.1:9") as nobody, pytest.raises(Unanswered, match="refused"):
        nobody.live("views")


def test_closing_it_from_another_thread_ends_the_loop(server, reader):
    released = threading.Event()
    server.answers(streams(HELLO, change(8), then=released.wait))
    live = reader.live("views")
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(changes.id for changes in live))
    thread.start()
    deadline = time.monotonic() + 5
    while not seen and time.monotonic() < deadline:
        time.sleep(0.01)
    began = time.monotonic()
    live.close()
    thread.join(5)
    released.set()
    assert not thread.is_alive()
    assert time.monotonic() - began < 1
    assert len(server.asked) == 1


def test_closing_it_ends_the_wait_for_a_server_that_is_away(server, reader):
    server.answers(streams(HELLO.replace(b"retry: 1", b"retry: 5000")))
    live = reader.live("views")
    thread = threading.Thread(target=lambda: list(live))
    thread.start()
    live.close()
    thread.join(2)
    assert not thread.is_alive()


def test_a_silent_connection_is_given_up(server, reader):
    from tallymark.reader.live import Live

    released = threading.Event()
    server.answers(streams(HELLO, then=released.wait), streams(HELLO, change(8)))
    with Live(reader._connect, "/v1/meters/views/live", timeout_s=5, silent_s=0.1) as live:
        assert next(live).id == "8"
    released.set()
