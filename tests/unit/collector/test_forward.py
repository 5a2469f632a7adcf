"""One public port: what is not the collector's own is answered by the query service."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tallymark.collector import forward
from tallymark.collector.forward import Forwarder
from tallymark.collector.health import merged
from tallymark.collector.nodes import QueryNodes
from tallymark.http import Problem, decode_positions
from tallymark.testing import until

LONG = 400_000


class Query(BaseHTTPRequestHandler):
    """Answers like a query service: an echo, a large answer in chunks, and an endless stream."""

    protocol_version = "HTTP/1.1"
    connections: set[Any]
    seen: list[str]
    left: threading.Event
    more: threading.Event

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.connections.add(self.client_address)
        self.seen.append(f"{self.command} {self.path}")
        if self.path == "/live":
            self._live()
        elif self.path == "/long":
            self._long()
        elif self.path == "/large":
            self._large()
        elif self.path.startswith("/cut"):
            self.send_response(200)
            self.send_header("content-length", self.path.removeprefix("/cut"))
            self.end_headers()
            self.wfile.write(b"x" * 10)
            self.close_connection = True
        elif self.path == "/twice":
            answers = (b"mine", b"somebody else's")
            self.wfile.write(
                b"".join(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(a), a) for a in answers)
            )
        elif self.path == "/hops":
            body = b"mine"
            self.send_response(200)
            for name, value in (("keep-alive", "timeout=5"), ("proxy-authenticate", "Basic"), ("x-kept", "yes")):
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        elif self.path == "/applied":
            self._reply(200, {"applied": self.headers.get_all("tallymark-applied")})
        elif self.path.startswith("/tenant"):
            self._reply(200, {"path": self.path, "tenant": self.headers.get_all("tallymark-tenant")})
        elif self.path == "/readyz":
            self._reply(200, {"ready": True, "applied": 7})
        else:
            self._reply(200, {"path": self.path, "method": self.command, "cookie": self.headers.get("cookie")})

    do_DELETE = do_HEAD = do_GET

    def do_PUT(self) -> None:
        self.connections.add(self.client_address)
        body = self.rfile.read(int(self.headers["content-length"]))
        self._reply(201, {"path": self.path, "body": body.decode(), "type": self.headers["content-type"]})

    do_PATCH = do_PUT

    def _reply(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _large(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(100):
            self.wfile.write(b"1000\r\n" + b"%x" % (number % 16) * 4096 + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _long(self) -> None:
        """Half of an answer of a known length, and the rest when it is told to."""
        self.send_response(200)
        self.send_header("content-length", str(LONG))
        self.end_headers()
        self.wfile.write(b"x" * (LONG // 2))
        self.more.wait(20)
        self.wfile.write(b"x" * (LONG // 2))

    def _live(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            while not self.left.wait(0.02):
                self.wfile.write(b"data: tick\n\n")
        except OSError:
            self.left.set()


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Any]:
    Query.connections, Query.seen, Query.left, Query.more = set(), [], threading.Event(), threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Query)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "query.json").write_text(json.dumps({"address": f"127.0.0.1:{server.server_port}"}))
    yield server
    Query.left.set()
    Query.more.set()
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("query")
def test_requests_and_answers_pass_through(collector: Any) -> None:
    got = collector.get("/v1/meters/views/total?video=A%20B", cookie="a=b")
    assert (got.status, got.headers["content-type"]) == (200, "application/json")
    assert got.json == {"path": "/v1/meters/views/total?video=A%20B", "method": "GET", "cookie": "a=b"}
    put = collector.request("PUT", "/v1/meters/views", b'{"event":"view"}', content_type="application/json")
    assert (put.status, put.json["body"]) == (201, '{"event":"view"}')
    assert collector.request("DELETE", "/v1/meters/views").json["method"] == "DELETE"
    assert collector.request("HEAD", "/").status == 200
    assert collector.get("/large").body == b"".join(b"%x" % (number % 16) * 4096 for number in range(100))


@pytest.mark.usefixtures("query")
def test_only_tables_may_be_larger_than_events_one_at_a_time_and_beside_their_budget(make: Any) -> None:
    collector = make(max_body_bytes=1000, max_pending_bytes=2000)
    large = b"x" * 50_000
    for method in ("PUT", "PATCH"):
        passed = collector.request(method, "/v1/tables/videos?key=video", large, content_type="text/csv")
        assert (passed.status, passed.json["body"], passed.json["type"]) == (201, large.decode(), "text/csv")
    assert collector.request("PUT", "/v1/meters/views", b"x" * 1001).status == 413
    with collector.connect() as slow:
        slow.sendall(b"PUT /v1/tables/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50000\r\n\r\n" + b"x" * 40_000)

        def second() -> Any:
            found = collector.request("PUT", "/v1/tables/b", large)
            return found if found.status == 503 else None

        refused = until(second, "the second large table is refused")
        assert (refused.json["code"], refused.headers["retry-after"]) == ("overloaded", "2")
        assert collector.request("PUT", "/v1/tables/b", b"small").status == 201
        assert collector.post({"event": "view"}).status == 202, "events have their own budget"
        slow.sendall(b"x" * 10_000)
        assert slow.recv(100).startswith(b"HTTP/1.1 201")
    until(lambda: collector.request("PUT", "/v1/tables/b", large).status == 201, "the next one is taken")
    with collector.connect() as liar:
        liar.sendall(b"PUT /v1/tables/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 32000001\r\n\r\n")
        assert liar.recv(10_000).startswith(b"HTTP/1.1 413")


def test_what_became_of_forwarded_requests_is_counted_from_zero(collector: Any) -> None:
    exposed = collector.get("/metrics").body.decode()
    for outcome in ("answered", "away", "timeout"):
        assert f'tallymark_collector_forwarded_total{{outcome="{outcome}"}}' in exposed


def test_the_meaning_of_a_refusal_is_told_also_while_no_query_service_is_up(collector: Any) -> None:
    refusal = collector.get("/v1/meters")
    assert (refusal.status, refusal.json["code"]) == (503, "query_away")
    page, _, anchor = refusal.json["type"].partition("#")
    told = collector.get(page)
    assert (told.status, told.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f'id="{anchor}"'.encode() in told.body
    assert collector.post(b"", path=page).status == 405


@pytest.mark.usefixtures("query")
def test_questions_say_what_was_waited_for_and_nobody_else_can(collector: Any) -> None:
    assert collector.get("/applied", tallymark_applied="0:999").json == {"applied": None}
    event = {"event": "view", "id": "one"}
    assert collector.post(event, path="/v1/events?wait=applied&timeout=0").status == 202
    assert collector.get("/applied").json == {"applied": None}, "not applied, so nothing was promised"
    collector.applied = {0: 100, 1: 100}
    assert collector.post({**event, "id": "two"}, path="/v1/events?wait=applied").status == 200
    ends = {number: each.end for number, each in collector.log.positions().items()}
    (said,) = collector.get("/applied", tallymark_applied="0:999").json["applied"]
    found = decode_positions(said)
    assert found
    assert all(ends[number] == offset for number, offset in found.items())
    assert (
        collector.post([{**event, "id": f"{number}"} for number in range(50)], "/v1/events?wait=applied").status == 200
    )
    ends = {number: each.end for number, each in collector.log.positions().items()}
    (said,) = collector.get("/applied").json["applied"]
    assert decode_positions(said) == ends


@pytest.mark.usefixtures("query")
def test_a_question_keeps_its_tenant_on_the_way(collector: Any) -> None:
    assert collector.get("/tenant", tallymark_tenant="acme").json == {"path": "/tenant", "tenant": ["acme"]}
    assert collector.get("/tenant?tenant=acme&x=1").json == {"path": "/tenant?tenant=acme&x=1", "tenant": None}
    refused = collector.get("/tenant?tenant=acme", tallymark_tenant="globex")
    assert (refused.status, refused.json["code"]) == (400, "bad_tenant")
    assert len(Query.seen) == 2


@pytest.mark.usefixtures("query")
def test_the_page_is_passed_on_whatever_tenant_its_link_names(collector: Any) -> None:
    for path in ("/?tenant=ACME", "/static/app.js?tenant=ACME"):
        assert collector.get(path).status == 200
        assert Query.seen[-1] == f"GET {path}"
    assert collector.get("/tenant?tenant=ACME").status == 400


@pytest.mark.usefixtures("query")
def test_connections_to_the_query_service_are_kept(collector: Any) -> None:
    for _ in range(10):
        assert collector.get("/").status == 200
    assert len(Query.connections) == 1


@pytest.mark.usefixtures("query")
def test_headers_that_concern_one_connection_are_not_passed_on(collector: Any) -> None:
    with collector.connect() as client:
        client.sendall(b"GET /hops HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        received = b"".join(iter(lambda: client.recv(65_536), b""))
    head, _, body = received.decode().partition("\r\n\r\n")
    names = [line.partition(":")[0].lower() for line in head.split("\r\n")[1:]]
    assert body == "mine"
    assert "x-kept" in names
    assert not {"keep-alive", "proxy-authenticate"} & set(names)
    assert len(names) == len(set(names)), "the collector states its own length, date and name"
    assert "BaseHTTP" not in head


@pytest.mark.usefixtures("query")
def test_a_path_cannot_smuggle_a_second_request(collector: Any) -> None:
    for middle in ("%20HTTP/1.1%0d%0aHost:%20q%0d%0a%0d%0aDELETE%20/v1/meters/views", "%0a", "%00", "%7f"):
        reply = collector.get(f"/v1/meters/a{middle}")
        assert (reply.status, reply.json["code"]) == (400, "bad_target")
    assert collector.get("/v1/meters/a%20HTTP/1.1").status == 200
    assert Query.seen == ["GET /v1/meters/a%20HTTP/1.1"]


@pytest.mark.parametrize(
    ("path", "query", "headers", "code"),
    [
        ("/", "a b", {}, "bad_target"),
        ("/", "a\r\n", {}, "bad_target"),
        ("", "", {}, "bad_target"),
        ("/", "", {"x": "a\r\ny: b"}, "bad_header"),
    ],
)
def test_what_the_server_lets_through_is_not_trusted(
    tmp_path: Path, path: str, query: str, headers: dict[str, str], code: str
) -> None:
    # Granian refuses these today; nothing but a check of our own says that it will tomorrow.
    scope: Any = SimpleNamespace(method="GET", path=path, query_string=query, headers=headers)

    async def forward() -> None:
        await Forwarder(QueryNodes([], tmp_path), stop=asyncio.Event()).forward(scope, None, b"")

    with pytest.raises(Problem) as refused:
        asyncio.run(forward())
    assert (refused.value.status, refused.value.code) == (400, code)


@pytest.mark.usefixtures("query")
@pytest.mark.parametrize("segment", ["a%20b", "100%25", "a%3Fb", "a%23b", "%C3%A9", "a%252Fb", "a:b@c!$&'()*+,;=~-._"])
def test_a_path_arrives_as_it_was_sent(collector: Any, segment: str) -> None:
    assert collector.get(f"/v1/meters/{segment}?x=%0d%0a").json["path"] == f"/v1/meters/{segment}?x=%0d%0a"


@pytest.mark.usefixtures("query")
def test_an_encoded_slash_is_a_slash_here_as_it_is_at_the_query_service(collector: Any) -> None:
    assert collector.get("/v1/meters/a%2Fb").json["path"] == "/v1/meters/a/b"


@pytest.mark.usefixtures("query")
def test_a_connection_with_something_left_on_it_is_not_used_again(collector: Any) -> None:
    assert collector.get("/twice").body == b"mine"
    for number in range(5):
        assert collector.get(f"/{number}").json["path"] == f"/{number}"


def test_a_question_that_is_given_up_leaves_no_connection_behind(tmp_path: Path) -> None:
    async def ask() -> bytes:
        ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
            ended.set_result(await reader.read())
            writer.close()

        async with await asyncio.start_server(stall, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            (tmp_path / "query.json").write_text(json.dumps({"address": f"{host}:{port}"}))
            forwarder = Forwarder(QueryNodes([], tmp_path), stop=asyncio.Event())
            with pytest.raises(TimeoutError) as given_up:
                await forwarder.get("/readyz", within_s=0.1)
            async with asyncio.timeout(5):
                # The trace is still held, so it was not the garbage collector that hung up.
                assert given_up.tb is not None
                return await ended

    assert asyncio.run(ask()) == b""


@pytest.mark.usefixtures("query")
def test_live_changes_stream_through_and_end_with_the_client(collector: Any) -> None:
    with collector.connect() as client:
        client.sendall(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        received = b""
        while received.count(b"data: tick") < 3:
            received += client.recv(1000)
        assert b"text/event-stream" in received
    assert Query.left.wait(20)


@pytest.mark.usefixtures("query")
def test_an_endless_stream_does_not_hold_up_the_stop(collector: Any) -> None:
    with collector.connect() as client:
        client.sendall(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert client.recv(1000)
        collector.stop()


def begun(client: socket.socket, path: str) -> bytes:
    """The first piece of this answer, headers and all."""
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
    received = b""
    while b"x" not in received.partition(b"\r\n\r\n")[2]:
        received += client.recv(65_536)
    return received


@pytest.mark.usefixtures("query")
def test_a_long_answer_in_hand_at_the_stop_is_passed_on_whole(collector: Any) -> None:
    with collector.connect() as client:
        received = begun(client, "/long")
        collector.ask_to_stop()
        until(lambda: _refused(collector), "no connection is taken")
        Query.more.set()
        while piece := client.recv(65_536):
            received += piece
        assert received.count(b"x") == LONG
    collector.stop()


@pytest.mark.usefixtures("query")
def test_a_long_answer_that_does_not_come_does_not_hold_up_the_stop(
    collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "LAST_ANSWER_S", 0.1)
    with collector.connect() as client:
        begun(client, "/long")
        collector.stop()
        assert _refused(collector), "it has ended, though the answer is still owed"


def _refused(collector: Any) -> bool:
    try:
        collector.connect().close()
    except OSError:
        return True
    return False


def test_a_query_service_that_is_away_is_503_and_events_are_still_taken(collector: Any) -> None:
    reply = collector.get("/v1/meters")
    assert (reply.status, reply.json["code"], reply.headers["retry-after"]) == (503, "query_away", "1")
    assert collector.post({"event": "view", "id": "1"}).status == 202


@pytest.mark.usefixtures("query")
def test_an_answer_that_breaks_off_is_not_passed_on_as_whole(collector: Any) -> None:
    reply = collector.get("/cut1000")
    assert (reply.status, reply.json["code"]) == (502, "query_failed")
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        collector.get("/cut1000000")


def test_a_query_service_that_moved_is_found_again(collector: Any, query: Any, tmp_path: Path) -> None:
    assert collector.get("/").status == 200
    query.shutdown()
    query.server_close()
    other = ThreadingHTTPServer(("127.0.0.1", 0), Query)
    other.daemon_threads = True
    threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    (tmp_path / "run" / "query.json").write_text(json.dumps({"address": f"127.0.0.1:{other.server_port}"}))
    until(lambda: collector.get("/").status == 200, "the new address is used")
    other.shutdown()
    other.server_close()


@pytest.mark.usefixtures("query")
def test_ready_together_means_that_every_role_is(make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TALLYMARK_SUPERVISED", "collector,pipeline,keeper,query")
    collector = make()
    reply = collector.get("/readyz")
    assert (reply.status, reply.json["ready"]) == (503, False)
    assert reply.json["query"] == {"ready": True, "applied": 7}
    assert reply.json["pipeline"] == {"ready": False, "troubles": ["pipeline has not reported ready"]}
    for role in ("pipeline", "keeper"):
        (tmp_path / "run" / f"{role}.json").write_text("{}")
    assert collector.get("/readyz").status == 200


def test_on_a_cluster_the_others_are_told_of_and_do_not_decide(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # A balancer asks: while the store is away events are still taken, so no collector may be taken away.
    monkeypatch.setenv("TALLYMARK_SUPERVISED", "collector,query,keeper")
    for cluster in ({"log__kind": "kafka", "log__brokers": "127.0.0.1:1"}, {"store__kind": "cassandra"}):
        reply = make(**cluster).get("/readyz")
        assert (reply.status, reply.json["ready"], reply.json["collector"]) == (200, True, {"ready": True})
        assert (reply.json["query"]["ready"], reply.json["keeper"]["ready"]) == (False, False)


def test_on_a_cluster_its_own_trouble_is_503_whatever_the_others_do(
    make: Any, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYMARK_SUPERVISED", "collector,query")
    reply = make(store__kind="cassandra", min_free_bytes=10**18).get("/readyz")
    assert (reply.status, reply.json["ready"], reply.json["query"]["ready"]) == (503, False, True)


def test_too_little_disk_is_not_ready(make: Any) -> None:
    reply = make(min_free_bytes=10**18).get("/readyz")
    assert reply.status == 503
    assert "collector.min_free_bytes = 1,000,000,000,000,000,000" in reply.json["collector"]["troubles"][0]


def test_alive_is_alive(collector: Any) -> None:
    assert collector.get("/healthz").status == 200


def test_metrics_of_all_roles_are_one_exposition(collector: Any, tmp_path: Path) -> None:
    own = "# HELP tallymark_pipeline_x x\n# TYPE tallymark_pipeline_x counter\ntallymark_pipeline_x_total 5.0\n"
    (tmp_path / "run" / "pipeline.prom").write_text(own)
    text = collector.get("/metrics").body.decode()
    assert "tallymark_pipeline_x_total 5.0" in text
    assert text.count("# TYPE tallymark_collector_events_received_total counter") == 1


def test_a_metric_comes_from_the_role_it_is_named_after() -> None:
    def family(name: str, value: int) -> bytes:
        return f"# HELP tallymark_{name} x\n# TYPE tallymark_{name} counter\ntallymark_{name} {value}\n".encode()

    texts = {
        "collector": family("collector_a", 1) + family("log_b", 2) + family("keeper_c", 0),
        "keeper": family("collector_a", 0) + family("log_b", 0) + family("keeper_c", 3),
    }
    assert merged(texts) == family("collector_a", 1) + family("log_b", 2) + family("keeper_c", 3)
