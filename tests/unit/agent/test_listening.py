"""The UDP socket: what is sent arrives, what is dropped is counted, what is in the way is said."""

import socket

import pytest

from tallymark.agent.listening import CannotListen, Listener, address, bind
from tallymark.testing import until


@pytest.fixture
def speak():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
        yield speaker.sendto


def test_every_datagram_arrives_also_those_sent_just_before_the_end(speak):
    heard: list[bytes] = []
    bound = bind("127.0.0.1:0")
    place = bound.getsockname()
    with Listener(bound, heard.append):
        for number in range(50):
            speak(b"m:%d|c" % number, place)
        until(lambda: len(heard) == 50, "all are heard")
        assert sorted(heard) == sorted(b"m:%d|c" % number for number in range(50))
        speak(b"last:1|c", place)
    assert heard[-1] == b"last:1|c"


def test_a_listener_that_is_stopped_has_fed_all_and_can_be_stopped_again(speak):
    heard: list[bytes] = []
    bound = bind("127.0.0.1:0")
    with Listener(bound, heard.append) as listener:
        for number in range(50):
            speak(b"m:%d|c" % number, bound.getsockname())
        listener.stop()
        assert len(heard) == 50
        listener.stop()
        assert not listener.is_alive
    assert listener.dropped() == 0


def test_datagrams_the_system_dropped_are_counted(speak):
    heard: list[bytes] = []
    bound = bind("127.0.0.1:0")
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener = Listener(bound, heard.append)
    assert listener.dropped() == 0
    for _ in range(100):  # nobody listens yet, and the buffer is small
        speak(b"m:1|c" + b"\n" * 500, bound.getsockname())
    dropped = listener.dropped()
    assert dropped > 0
    with listener:
        until(lambda: len(heard) == 100 - dropped, "the rest is heard")
    assert listener.dropped() == dropped  # still known when the socket is gone


def test_a_port_in_use_is_said_with_the_way_out():
    with bind("127.0.0.1:0") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=rf"UDP port {port} on 127\.0\.0\.1 is in use.* --statsd off"):
            bind(f"127.0.0.1:{port}")


def test_an_address_of_somebody_else_is_said():
    with pytest.raises(CannotListen, match=r"cannot listen for StatsD on 192\.0\.2\.1:8125.*--statsd"):
        bind("192.0.2.1:8125")


def test_a_host_that_is_no_text_is_said():
    with pytest.raises(CannotListen, match=r"cannot listen for StatsD on .*--statsd"):
        bind("\udcff:8125")


@pytest.mark.parametrize(
    ("text", "found"), [("127.0.0.1:8125", ("127.0.0.1", 8125)), ("[::1]:0", ("::1", 0)), ("box:1", ("box", 1))]
)
def test_addresses(text, found):
    assert address(text) == found


@pytest.mark.parametrize("text", ["", "8125", ":8125", "127.0.0.1", "127.0.0.1:", "box:http", "box:65536", "box:-1"])
def test_no_addresses(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        address(text)
