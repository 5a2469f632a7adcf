"""Questions go to each query node in turn, and past those that do not answer."""

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
from tallymark.collector.nodes import DOWN_S, QueryNodes, address
from tallymark.http import free_port
from tallymark.settings import SettingsError


class Node:
    """A query node that counts what it was asked; with `rude`, it hangs up instead of answering.

    With `forgetful`, it does so from the second request on a connection on.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.rude = self.forgetful = False
        self.pause_s = 0.0
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            is_first = True

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                node.asked.append(self.command)
                is_first, self.is_first = self.is_first, False
                if node.rude or (node.forgetful and not is_first):
                    self.close_connection = True
                    return
                threading.Event().wait(node.pause_s)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_PUT = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    pair = Node(), Node()
    yield pair
    for node in pair:
        node.close()


def test_questions_are_spread(make: Any, nodes: tuple[Node, Node]) -> None:
    collector = make(query=[node.address for node in nodes])
    for _ in range(10):
        assert collector.get("/v1/meters").status == 200
    assert [len(node.asked) for node in nodes] == [5, 5]


def test_a_node_that_is_down_is_passed_over_whatever_is_asked(make: Any, nodes: tuple[Node, Node]) -> None:
    collector = make(query=[f"127.0.0.1:{free_port()}", nodes[0].address])
    for method in ("GET", "PUT") * 3:
        assert collector.request(method, "/v1/meters/a", b"{}" if method == "PUT" else None).status == 200
    assert len(nodes[0].asked) == 6


def test_a_node_that_breaks_off_is_followed_by_another_only_for_questions(make: Any, nodes: tuple[Node, Node]) -> None:
    nodes[0].rude = True
    collector = make(query=[node.address for node in nodes])
    for _ in range(4):
        assert collector.get("/v1/meters").status == 200
    nodes[1].rude = True
    reply = make(query=[node.address for node in nodes]).request("PUT", "/v1/meters/a", b"{}")
    assert (reply.status, reply.json["code"]) == (502, "query_failed")
    # It may have been done, so it is not sent to the other.
    assert sum(node.asked.count("PUT") for node in nodes) == 1


def test_a_node_that_breaks_off_on_a_kept_connection_is_asked_again_on_a_new_one(
    make: Any, nodes: tuple[Node, Node]
) -> None:
    nodes[0].forgetful = True
    collector = make(query=[nodes[0].address])
    for _ in range(3):
        assert collector.get("/v1/meters").status == 200
    assert nodes[0].asked == ["GET"] * 5
    reply = collector.request("PUT", "/v1/meters/a", b"{}")
    assert (reply.status, reply.json["code"]) == (502, "query_failed")
    assert nodes[0].asked.count("PUT") == 1


@pytest.mark.parametrize(
    ("failure", "is_reused", "again", "may"),
    [
        (EOFError(), False, True, True),
        (ConnectionResetError(), False, False, False),
        (EOFError(), True, False, False),
        (BrokenPipeError(), False, False, False),
        (BrokenPipeError(), True, False, True),  # the node had closed it: nothing was sent
        (ValueError(), True, True, False),  # it has answered
    ],
)
def test_what_may_be_sent_again(failure: Exception, is_reused: bool, again: bool, may: bool) -> None:
    connection: Any = SimpleNamespace(is_reused=is_reused)
    assert forward._may_be_repeated(failure, connection, again=again) is may


@pytest.fixture
def hung() -> Iterator[str]:
    """A node that hangs: the kernel takes its connections, and nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_node_that_hangs_is_passed_over(
    make: Any, nodes: tuple[Node, Node], hung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    failed = QueryNodes.failed
    monkeypatch.setattr(QueryNodes, "failed", lambda *given: (tries.append(given), failed(*given))[1])
    monkeypatch.setattr(forward, "FIRST_TRY_S", 1.0)  # a busy machine may keep a sound node waiting for a tenth
    monkeypatch.setattr("tallymark.collector.nodes.DOWN_S", 60.0)
    collector = make(query=[hung, nodes[0].address])
    for _ in range(10):
        assert collector.get("/v1/meters").status == 200
    assert len(nodes[0].asked) == 10
    assert len(tries) == 1  # then it comes last


def test_with_one_node_that_hangs_the_answer_is_504_and_it_is_known(
    make: Any, nodes: tuple[Node, Node], hung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "ANSWER_TIMEOUT_S", 0.2)
    collector = make(query=[hung, nodes[0].address])
    replies = [collector.request("PUT", "/v1/meters/a", b"{}").status for _ in range(4)]
    # What changes something is not sent again, so one is lost on it; the others go elsewhere.
    assert sorted(replies) == [200, 200, 200, 504]


def test_a_slow_answer_is_waited_for_where_nobody_else_is(
    make: Any, nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "FIRST_TRY_S", 0.05)
    nodes[0].pause_s = 0.3
    collector = make(query=[nodes[0].address, f"127.0.0.1:{free_port()}"])
    for _ in range(3):
        assert collector.get("/v1/meters").status == 200
    assert len(nodes[0].asked) == 3


def test_a_slow_answer_is_still_heard_while_another_node_hangs(
    make: Any, nodes: tuple[Node, Node], hung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "FIRST_TRY_S", 0.05)
    nodes[0].pause_s = 0.3
    collector = make(query=[nodes[0].address, hung])
    for _ in range(4):
        assert collector.get("/v1/meters").status == 200


def test_with_no_node_at_all_questions_are_answered_503(make: Any) -> None:
    collector = make(query=[f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"])
    reply = collector.get("/v1/meters")
    assert (reply.status, reply.json["code"], reply.headers["retry-after"]) == (503, "query_away", "1")


def test_those_that_did_not_answer_come_last_for_a_while(tmp_path: Path) -> None:
    now = [0.0]
    nodes = QueryNodes(["a:1", "b:1", "c:1"], tmp_path, clock=lambda: now[0])
    assert {nodes.in_turn()[0] for _ in range(3)} == {("a", 1), ("b", 1), ("c", 1)}
    nodes.failed(("b", 1))
    assert [nodes.in_turn()[-1] for _ in range(3)] == [("b", 1)] * 3
    now[0] += DOWN_S + 1
    # One question finds out; until it has, the others do not go there.
    assert [nodes.in_turn()[0] for _ in range(9)].count(("b", 1)) == 1
    nodes.answered(("b", 1))
    assert [nodes.in_turn()[0] for _ in range(9)].count(("b", 1)) == 3


def test_all_that_run_on_the_data_folder_are_found(tmp_path: Path) -> None:
    assert QueryNodes([], tmp_path).in_turn() == []
    (tmp_path / "query-a.json").write_text(json.dumps({"address": "127.0.0.1:1"}))
    (tmp_path / "query.json").write_text(json.dumps({"address": "[::1]:2"}))
    (tmp_path / "query-b.json").write_text("{")
    assert set(QueryNodes([], tmp_path).in_turn()) == {("127.0.0.1", 1), ("::1", 2)}


@pytest.mark.parametrize("wrong", ["query-1", "query-1:", ":80", "query-1:http", "query-1:70000"])
def test_a_wrong_address_is_named(wrong: str) -> None:
    with pytest.raises(SettingsError, match=r"collector\.query"):
        address(wrong)
