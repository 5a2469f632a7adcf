"""What the HTTP services share: who is on this machine, and a port nobody uses."""

import socket

import pytest

from tallymark.http import free_port, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "localhost"])
def test_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "128.0.0.1", "192.168.1.5", "example.org", "localhost.example", ""])
def test_not_loopback(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_a_free_port_can_be_had(host, family):
    port = free_port(host)
    with socket.create_server((host, port), family=family) as server:
        assert server.getsockname()[1] == port
