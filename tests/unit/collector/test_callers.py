"""Who may call: not a page whose name was made to lead here, and no foreign page may change anything."""

from typing import Any

import pytest

EVENT = {"event": "view", "id": "1"}
PATHS = ["/v1/events", "/healthz", "/readyz", "/metrics", "/v1/meters", "/"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host", ["rebound.example", "127.0.0.1.example", "10.0.0.1:8080", "[", "[::1", "", "a@127.0.0.1"]
)
def test_another_name_is_refused_on_every_path(collector: Any, path: str, host: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        reply = collector.request(method, path, host=host)
        assert (reply.status, reply.json["code"]) == (421, "wrong_host")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9:1", "localhost", "LOCALHOST:8080", "[::1]:80", "tally.example"]
)
def test_loopback_and_listed_names_are_answered(make: Any, host: str) -> None:
    collector = make(hosts="tally.example")
    assert collector.get("/healthz", host=host).status == 200
    assert collector.post(EVENT, host=host).status == 202


def test_a_caller_that_names_no_host_is_answered(collector: Any) -> None:
    with collector.connect() as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 200")


def test_a_rebound_name_is_refused_though_it_equals_its_origin(collector: Any) -> None:
    assert collector.post(EVENT, origin="http://rebound.example", host="rebound.example").status == 421
    # Both malformed in the same way: refused like any other, not a mistake of ours.
    assert collector.post(EVENT, origin="http://[", host="[").status == 421
    assert collector.post(EVENT, origin="http://[", host="localhost").status == 403
    assert collector.events() == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("origin", ["https://b.example", "null", "http://localhost:1", "http://["])
def test_a_foreign_page_changes_nothing(collector: Any, method: str, origin: str) -> None:
    reply = collector.request(method, "/v1/meters/views", b"{}", origin=origin, host="localhost:8080")
    assert (reply.status, reply.json["code"]) == (403, "foreign_origin")


def test_our_own_page_and_listed_ones_do(make: Any) -> None:
    collector = make(cors_origins="https://a.example", hosts="tally.example")
    own = [("http://localhost:8080", "localhost:8080"), ("https://tally.example", "tally.example")]
    for origin, host in [*own, ("https://a.example", "localhost")]:
        assert collector.post(EVENT, origin=origin, host=host).status == 202
        # Passed on: there is no query service in this test.
        assert collector.request("DELETE", "/v1/meters/views", origin=origin, host=host).status == 503


def test_a_foreign_page_may_ask_since_its_browser_keeps_the_answer_from_it(collector: Any) -> None:
    reply = collector.get("/healthz", origin="https://b.example")
    assert (reply.status, "access-control-allow-origin" in reply.headers) == (200, False)
