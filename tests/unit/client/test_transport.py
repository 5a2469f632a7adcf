"""One exchange: an answer of any status, or NoAnswer."""

import contextlib
import os
import socket
import threading
import time

import pytest

from tallymark.client.transport import BadUrl, HttpTransport, NoAnswer, NotConnected, Request


def test_the_answer_comes_with_its_status_whatever_it_is(fake_service):
    transport = HttpTransport(os.environ["TALLYMARK_URL"])
    answer = transport.exchange(Request("GET", "/v1/nothing"))
    assert (answer.status, answer.json()) == (404, {"detail": "no /v1/nothing"})
    fake_service.script = ["503"]
    assert transport.exchange(Request("POST", "/v1/events", b"[]")).worth_a_retry
    transport.close()


def test_nobody_there_is_no_answer():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(NoAnswer, match="connection refused"):
        HttpTransport(f"http://127.0.0.1:{port}").exchange(Request("GET", "/"))


def test_silence_is_no_answer_after_the_time_out():
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = HttpTransport(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(NoAnswer, match="timed out"):
            transport.exchange(Request("GET", "/"), timeout_s=0.05)
        transport.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_connection_closed_in_use_is_replaced_for_a_get_but_a_post_is_left_to_the_caller(method):
    requests: list[bytes] = []

    def serve(server: socket.socket) -> None:
        # Answers one request a connection, promises to stay, and closes it when the next one comes.
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                requests.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                if len(requests) == 1:
                    connection.recv(1)
                    # With unread bytes the kernel resets the connection, as a server that is gone does.

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        transport = HttpTransport(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=5)
        assert transport.exchange(Request(method, "/")).status == 200
        if method == "GET":
            assert transport.exchange(Request(method, "/")).status == 200
        else:
            with pytest.raises(NoAnswer):
                transport.exchange(Request(method, "/"))
            assert transport.exchange(Request(method, "/")).status == 200
        thread.join(5)
        transport.close()
    assert len(requests) == 2


def test_a_connection_closed_while_idle_is_seen_before_a_post_is_sent_into_it():
    served = threading.Event()

    def serve(server: socket.socket) -> None:
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            served.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        transport = HttpTransport(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=5)
        assert transport.exchange(Request("POST", "/")).status == 200
        assert served.wait(5)
        assert transport.exchange(Request("POST", "/")).status == 200
        transport.close()


def test_connecting_has_a_time_out_of_its_own():
    # A full backlog: the kernel of a machine that is there but does not accept leaves the caller waiting.
    with socket.socket() as server, contextlib.ExitStack() as others:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(server.getsockname())
        transport = HttpTransport(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=30, connect_timeout_s=0.05)
        begun = time.monotonic()
        with pytest.raises(NotConnected, match="connecting timed out"):
            transport.exchange(Request("POST", "/", b"[]"))
        assert time.monotonic() - begun < 5
        transport.close()


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:port", ""])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(BadUrl, match=r"http://127\.0\.0\.1:8080"):
        HttpTransport(url)


def test_a_path_in_the_address_is_kept(fake_service):
    transport = HttpTransport(os.environ["TALLYMARK_URL"] + "/tallymark/")
    transport.exchange(Request("GET", "/readyz"))
    assert fake_service.requests[-1][1] == "/tallymark/readyz"
    transport.close()
